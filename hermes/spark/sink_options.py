"""What a user may say to `df.write.format("hermes")` and `df.writeStream.format("hermes")`.

`SINK_OPTIONS` is the table, read as that of the source is (`hermes.spark.options`). What Spark
itself adds to the options of a stream's sink is known here and ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from hermes.errors import ConfigError, InvalidTopicError, PluginError
from hermes.interfaces import IPartitioner
from hermes.plugins.discovery import load_plugin
from hermes.protocol import check_topic_name
from hermes.spark.options import (
    CONNECTION_HINTS,
    CONNECTION_OPTIONS,
    ConnectionOptions,
    Option,
    address_of,
    byte_count,
    parse_options,
    some,
    whole_number,
)


def _topic(text: str) -> str:
    try:
        check_topic_name(text)
    except InvalidTopicError as error:
        raise ValueError(str(error)) from error
    return text


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text.lower() not in choices:
            raise ValueError(f"expected {' or '.join(choices)}, got {text!r}")
        return text.lower()

    return parse


def _acks(text: str) -> str:
    if text.lower() in ("none", "0"):
        raise ValueError(
            f"expected flushed or written, got {text!r}: without acknowledgements a task could "
            "not know whether its messages arrived"
        )
    return _choice("flushed", "written")(text)


def _partitioner(text: str) -> str:
    try:
        load_plugin("hermes.partitioners", text, IPartitioner)
    except PluginError as error:
        raise ValueError(str(error)) from error
    return text


def _message_bytes(text: str) -> int:
    size = byte_count(text)
    if size >= 2**31:
        raise ValueError(f"expected less than 2 GiB, got {text!r}")
    return size


SINK_OPTIONS: Final = (
    *CONNECTION_OPTIONS,
    Option(
        "topic",
        _topic,
        None,
        "the topic of all rows, whatever a column `topic` says; without it, every row needs one",
    ),
    Option(
        "idColumn",
        some("the name of a column"),
        None,
        "a column (string or binary) with an id of each row, which is sent inside the value; "
        "`hermes.spark.split_id` takes it out again",
    ),
    Option(
        "partitioner",
        _partitioner,
        "java-hash",
        "which partition a key goes to: a name among the entry points `hermes.partitioners`",
    ),
    Option(
        "acks",
        _acks,
        "flushed",
        "what a task waits for: `flushed`, the messages are on the brokers' disks, or `written`, "
        "the brokers have them",
    ),
    Option(
        "compression",
        _choice("none", "gzip", "snappy"),
        "none",
        "how message sets are compressed: `none`, `gzip` or `snappy`",
    ),
    Option(
        "maxMessageBytes",
        _message_bytes,
        1_000_000,
        "the largest message that is sent, with its id; brokers have a limit of their own, by "
        "default the same",
    ),
    Option(
        "batchSize",
        whole_number(1),
        200,
        "how many messages without a key go to one partition before the next is chosen, and "
        "after how many messages the first request leaves",
    ),
    Option(
        "send.numRetries",
        whole_number(0),
        3,
        "how often messages are sent again when a broker fails, and how often a broker that does "
        "not answer is asked again, before Spark sees an error",
    ),
    Option(
        "send.retryIntervalMs",
        whole_number(0),
        1000,
        "how long to wait before each of these retries, in ms",
    ),
)

# Spark passes these to the sink of a stream, though they don't concern it.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})

_HINTS: Final = {
    **CONNECTION_HINTS,
    "kafka.acks": "here it is acks: flushed or written",
    "kafka.compression.type": "here it is compression: none, gzip or snappy",
    "kafka.retries": "here it is send.numRetries",
    "kafka.retry.backoff.ms": "here it is send.retryIntervalMs",
    "kafka.max.request.size": "here it is maxMessageBytes",
    "kafka.batch.size": "here it is batchSize, in messages",
    "kafka.partitioner.class": "here it is partitioner: a name among hermes.partitioners",
    "kafka.enable.idempotence": "the sink sends at least once; see idColumn",
    "path": "the option topic, or a column topic, says where rows go, not a path",
    "subscribe": "a write names its topic by the option topic, or in a column topic",
    "checkpointlocation": "has no meaning for a batch: only streams have checkpoints",
    "queryname": "has no meaning for a batch: only streams have names",
}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    address: ConnectionOptions
    topic: str | None
    id_column: str | None
    partitioner: str
    acks: Literal["flushed", "written"]
    compression: Literal["none", "gzip", "snappy"]
    max_message_bytes: int
    batch_size: int
    retries: int
    retry_ms: int

    @classmethod
    def parse(cls, given: Mapping[str, str], *, stream: bool) -> "SinkOptions":
        """Read what Spark hands over. Raises ConfigError."""
        ours = {
            name: text for name, text in given.items() if not (stream and name.lower() in _OF_SPARK)
        }
        values = parse_options(ours, SINK_OPTIONS, "sink", _HINTS)
        # The attributes are in the order of the table.
        own = SINK_OPTIONS[len(CONNECTION_OPTIONS) :]
        return cls(address_of(values), *(values[option.name] for option in own))


def refuse_overwriting(*, stream: bool) -> None:
    """Raise the ConfigError that explains why a log isn't overwritten."""
    if stream:
        raise ConfigError(
            "outputMode",
            "a topic is a log, what was sent can't be replaced: use outputMode('append'), with a "
            "watermark where rows are aggregated; or foreachBatch, to append every result",
        )
    raise ConfigError(
        "mode", "a topic is a log, what was sent can't be replaced: use mode('append')"
    )
