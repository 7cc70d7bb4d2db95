"""The responses to Hermes' requests for operators, types 71 to 76.

A refusal may have a reason in words after its code, for instance what is wrong with a setting: all
decoders raise what `decode_refusable_response` does.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hermes.protocol.error_codes import ErrorCode, error_for
from hermes.protocol.wire import Buffer, ByteReader, encode_string, frame, pack

#: The most changes in the response to a reload.
MAX_CHANGES = 1000

#: What a text of a response is cut to; no string of the wire is longer than 32,767 bytes.
_MAX_TEXT_BYTES = 4000
_MAX_CHANGE_BYTES = 400

_UNKNOWN_TIME = -1


class SettingDescription(NamedTuple):
    """A setting in force, its name and value as in broker.yaml.

    Attributes:
        origin: where the value comes from: "default", "broker.yaml", "broker.yaml, topics" (of a
            topic: from its own entry), "altered" (by `hermes topics`), "creation" (a format that it
            has kept), "always" (nothing else is possible); perhaps others later.
        is_live: whether it can be changed while the broker runs.
    """

    name: str
    value: str
    origin: str
    is_live: bool


class PartitionDescription(NamedTuple):
    """A partition that was written to.

    Attributes:
        size_bytes: unflushed bytes included.
        first_append_ms, last_append_ms: when its first and its last readable message were
            appended, in ms since 1970; None if unknown.
        offline_reason: empty while it is in service.
        damage: which of its messages are known to be damaged; empty for none, and from brokers that
            don't look for it.
    """

    partition: int
    earliest: int
    high_watermark: int
    size_bytes: int
    segment_count: int
    first_append_ms: int | None
    last_append_ms: int | None
    offline_reason: str
    damage: str = ""


class PartitionDescriptions(NamedTuple):
    """Some of a topic's partitions: those that were written to, by number.

    `next_partition`: the number from which to ask for the others; -1 when that was all.
    """

    partition_count: int
    next_partition: int
    partitions: list[PartitionDescription]


class ConfigChange(NamedTuple):
    """A difference between what a broker runs with and what its broker.yaml says.

    Attributes:
        name: the setting's key; with dots for a topic's (`topics.clicks.retention_time`).
        before, after: what the broker ran with; what broker.yaml says.
        left_because: why it stays as it was ("it needs a restart"); empty if it has changed.
    """

    name: str
    before: str
    after: str
    left_because: str


class LogLine(NamedTuple):
    """A line of a broker's log.

    Attributes:
        time_ms: ms since 1970.
        level: debug, info, warn, error or critical.
        message: without line breaks and controls; long ones are cut.
    """

    time_ms: int
    level: str
    logger: str
    message: str


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of a broker's log, in order.

    `first`: the number of the first of them: above the one asked for when lines between were
    dropped meanwhile.
    """

    first: int
    lines: tuple[LogLine, ...]

    @property
    def next(self) -> int:
        return self.first + len(self.lines)


def encode_refusal(error: int, reason: str = "") -> bytes:
    """Encode `int16 error | string reason`; the reason is cut if it is long.

    With error 0 it answers a request that was carried out and has nothing to report.
    """
    return frame(pack(">h", error), _text(reason))


def decode_refusable_response(body: Buffer, *, detail: str = "") -> ByteReader:
    """Read the error of a response, and return what reads the rest.

    Args:
        detail: what was asked, for the error's message where the broker gives no reason.

    Raises:
        BrokerError: the code is not 0; its text is the broker's reason, if there is one.
        RemoteProtocolError: the response is truncated.
    """
    reader = ByteReader(body)
    code = reader.int16()
    if code != ErrorCode.NONE:
        error = error_for(code, detail)
        reason = reader.string() if reader.remaining else ""
        if reason:
            error.args = (f"{detail}: {reason}" if detail else reason,)
        raise error
    return reader


def encode_settings_response(settings: Sequence[SettingDescription]) -> bytes:
    parts = [pack(">hh", ErrorCode.NONE, len(settings))]
    for name, value, origin, is_live in settings:
        parts += (_text(name), _text(value), _text(origin), pack(">h", is_live))
    return frame(*parts)


def decode_settings_response(body: Buffer, *, detail: str = "") -> list[SettingDescription]:
    reader = decode_refusable_response(body, detail=detail)
    count = reader.count(reader.int16())
    return [
        SettingDescription(reader.string(), reader.string(), reader.string(), reader.int16() != 0)
        for _ in range(count)
    ]


def encode_partitions_response(described: PartitionDescriptions) -> bytes:
    parts = [
        pack(
            ">hiih",
            ErrorCode.NONE,
            described.partition_count,
            described.next_partition,
            len(described.partitions),
        )
    ]
    for each in described.partitions:
        first_ms, last_ms = each.first_append_ms, each.last_append_ms
        parts.append(
            pack(
                ">iqqqiqq",
                each.partition,
                each.earliest,
                each.high_watermark,
                each.size_bytes,
                each.segment_count,
                _UNKNOWN_TIME if first_ms is None else first_ms,
                _UNKNOWN_TIME if last_ms is None else last_ms,
            )
        )
        parts.append(_text(each.offline_reason))
    # At the end, where clients that don't know of it stop reading.
    parts += [_text(each.damage) for each in described.partitions]
    return frame(*parts)


def decode_partitions_response(body: Buffer, *, detail: str = "") -> PartitionDescriptions:
    reader = decode_refusable_response(body, detail=detail)
    partition_count, next_partition = reader.int32(), reader.int32()
    count = reader.count(reader.int16())
    partitions = [
        PartitionDescription(
            reader.int32(),
            reader.int64(),
            reader.int64(),
            reader.int64(),
            reader.int32(),
            _time(reader),
            _time(reader),
            reader.string(),
        )
        for _ in range(count)
    ]
    if reader.remaining:  # else it is of a broker that doesn't report it
        partitions = [each._replace(damage=reader.string()) for each in partitions]
    return PartitionDescriptions(partition_count, next_partition, partitions)


def encode_reload_response(changes: Sequence[ConfigChange]) -> bytes:
    """Encode the first `MAX_CHANGES` changes, and how many there are."""
    told = changes[:MAX_CHANGES]
    parts = [pack(">hih", ErrorCode.NONE, len(changes), len(told))]
    parts += (_text(text, _MAX_CHANGE_BYTES) for change in told for text in change)
    return frame(*parts)


def decode_reload_response(body: Buffer) -> tuple[int, list[ConfigChange]]:
    """Decode how many changes there are, and the first of them."""
    reader = decode_refusable_response(body)
    total, count = reader.int32(), reader.count(reader.int16())
    return total, [
        ConfigChange(reader.string(), reader.string(), reader.string(), reader.string())
        for _ in range(count)
    ]


def encode_log_lines_response(found: LogLines) -> bytes:
    parts = [pack(">hqh", ErrorCode.NONE, found.first, len(found.lines))]
    for time_ms, level, logger, message in found.lines:
        parts += (pack(">q", time_ms), _text(level), _text(logger), _text(message))
    return frame(*parts)


def decode_log_lines_response(body: Buffer) -> LogLines:
    reader = decode_refusable_response(body)
    first, count = reader.int64(), reader.count(reader.int16())
    return LogLines(
        first,
        tuple(
            LogLine(reader.int64(), reader.string(), reader.string(), reader.string())
            for _ in range(count)
        ),
    )


def _time(reader: ByteReader) -> int | None:
    time_ms = reader.int64()
    return None if time_ms < 0 else time_ms


def _text(text: str, max_bytes: int = _MAX_TEXT_BYTES) -> bytes:
    """Encode a string of any length and content, cut to what a response takes."""
    data = text.encode("utf-8", "replace")
    if len(data) <= max_bytes:
        return pack(">h", len(data)) + data
    return encode_string(data[: max_bytes - 3].decode("utf-8", "ignore") + "...")
