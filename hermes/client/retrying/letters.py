r"""Letters: messages that failed, with where they came from and why, on their way to another try.

A message of Kafka 0.7 has a payload and nothing else, so all of it travels in the payload: a line
of JSON, and after it the failed message's payload as it was.

    {"hermes_letter":1,"group":"billing","topic":"orders","broker":0,"partition":3,"offset":4711,
     "attempts":2,"first_failed_ms":1795221927872,"failed_ms":1795221932902,"reason":"..."}\n
    payload

In truth the JSON is one line; it begins with `{"hermes_letter":1,`, which tells a letter from
another payload. Readers ignore fields that they don't know. `"no_payload":true` is that of a record
of Kafka's format without a value.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from hermes.errors import InvalidTopicError
from hermes.protocol import check_topic_name

_VERSION: Final = 1
_START: Final = b'{"hermes_letter":1,'
# A line is never longer; a payload without a newline isn't searched to its end.
_LONGEST_LINE_BYTES: Final = 64 * 1024
_LONGEST_REASON: Final = 1000
_INT64_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that failed, in a retry topic or among the dead letters.

    Attributes:
        group: the consumer group in which it failed.
        topic: where it was published at first.
        broker: the id of the broker that has it there.
        partition: its partition there.
        offset: where it starts in that partition; those within a compressed message share one.
        attempts: how many times it has failed, 1 or more.
        first_failed_ms: when it failed first, in ms since 1970.
        failed_ms: when it failed last, in ms since 1970.
        reason: why it failed last; the class of the exception and its text, shortened.
        payload: its payload, not decoded; None of a record without a value.
    """

    group: str
    topic: str
    broker: int
    partition: int
    offset: int
    attempts: int
    first_failed_ms: int
    failed_ms: int
    reason: str
    payload: bytes | None

    def encode(self) -> bytes:
        """Write it as a payload."""
        line = {"hermes_letter": _VERSION, **asdict(self)}
        del line["payload"]
        if self.payload is None:
            line["no_payload"] = True
        text = json.dumps(line, separators=(",", ":"))
        return text.encode("ascii") + b"\n" + (self.payload or b"")


def parse_letter(payload: bytes) -> Letter | None:
    """Read a letter; None if the payload isn't one, or its line is damaged."""
    if not payload.startswith(_START):
        return None
    end = payload.find(b"\n", 0, _LONGEST_LINE_BYTES)
    if end < 0:
        return None
    try:
        line = json.loads(payload[:end])
        return _letter(line, payload[end + 1 :])
    except (ValueError, KeyError, TypeError, RecursionError, InvalidTopicError):
        return None


def reason_of(error: BaseException) -> str:
    """Say why a message failed: the exception's class and text, shortened."""
    try:
        text = str(error)
    except Exception:  # an application's exception may fail at that, too
        text = ""
    name = type(error).__name__
    reason = f"{name}: {text}" if text else name
    return reason if len(reason) <= _LONGEST_REASON else reason[: _LONGEST_REASON - 3] + "..."


def _letter(line: Any, payload: bytes) -> Letter:
    check_topic_name(_text(line["topic"]))
    return Letter(
        group=_text(line["group"]),
        topic=line["topic"],
        broker=_number(line["broker"]),
        partition=_number(line["partition"]),
        offset=_number(line["offset"]),
        attempts=_number(line["attempts"]),
        first_failed_ms=_number(line["first_failed_ms"]),
        failed_ms=_number(line["failed_ms"]),
        reason=_text(line["reason"]),
        payload=None if line.get("no_payload") is True else payload,
    )


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _INT64_END:
        raise ValueError
    return value
