"""Partitions and offsets as Spark's options, checkpoints and manifests write them. Pure functions.

    {"clicks": {"0-0": 1234, "0-1": -2}, "views": {"1-0": -1}}      offsets
    {"clicks": ["0-0", "0-1"]}                                      partitions

A partition is named `<broker id>-<partition>`, as in ZooKeeper. -2 is the earliest offset and -1
the latest, as in Spark's connector for Kafka.
"""

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from hermes.coordination.layout import BrokerPartition, parse_partition
from hermes.errors import InvalidNodeError
from hermes.quoting import quoted

#: Instead of an offset: the earliest one.
EARLIEST_OFFSET: Final = -2
#: Instead of an offset: the end.
LATEST_OFFSET: Final = -1


class TopicPartition(NamedTuple):
    """A partition of a topic in the whole cluster. As text, `clicks 0-1`."""

    topic: str
    broker_id: int
    partition: int

    @property
    def name(self) -> str:
        return str(BrokerPartition(self.broker_id, self.partition))

    def __str__(self) -> str:
        return f"topic {self.topic!r} partition {self.name}"


Offsets: TypeAlias = dict[TopicPartition, int]
"""An offset for each partition."""


def nested(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {}
    for each, offset in sorted(offsets.items()):
        result.setdefault(each.topic, {})[each.name] = offset
    return result


def unnested(value: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The reverse of `nested`. Raises ValueError."""
    return dict(sorted(_pairs(value)))


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Offsets as JSON text, for the options `startingOffsets` and `endingOffsets`."""
    return json.dumps(nested(offsets))


def parse_offsets(text: str) -> Offsets:
    """Read what `format_offsets` writes. ValueError says what was expected."""
    return unnested(_json_object(text, '{"topic": {"<broker>-<partition>": offset}}'))


def parse_partitions(text: str) -> tuple[TopicPartition, ...]:
    """Read `{"topic": ["<broker>-<partition>", ...]}`, sorted, each once. Raises ValueError."""
    found: set[TopicPartition] = set()
    expected = '{"topic": ["<broker>-<partition>", ...]}'
    for topic, names in _json_object(text, expected).items():
        if not isinstance(names, list):
            raise ValueError(f"{topic}: expected a list of partitions, got {quoted(names)}")
        found.update(_partition(topic, name) for name in names)
    if not found:
        raise ValueError(f"expected at least one partition, {expected}")
    return tuple(sorted(found))


def _json_object(text: str, expected: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"expected {expected}, got {quoted(text)}: {error}") from error
    if not isinstance(value, dict):
        raise ValueError(f"expected {expected}, got {quoted(text)}")
    return value


def _pairs(value: Mapping[str, Mapping[str, int]]) -> Any:
    for topic, offsets in value.items():
        if not isinstance(offsets, Mapping):
            raise ValueError(f"{topic}: expected offsets by partition, got {quoted(offsets)}")
        for name, offset in offsets.items():
            if type(offset) is not int or not EARLIEST_OFFSET <= offset < 1 << 63:
                raise ValueError(
                    f"{topic} {name}: expected an offset, {EARLIEST_OFFSET} for the earliest or "
                    f"{LATEST_OFFSET} for the latest, got {quoted(offset)}"
                )
            yield _partition(topic, name), offset


def _partition(topic: str, name: object) -> TopicPartition:
    try:
        return TopicPartition(topic, *parse_partition(topic, str(name)))
    except InvalidNodeError as error:
        raise ValueError(str(error)) from error
