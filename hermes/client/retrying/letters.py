r"""Letters: messages that failed, with where they came from and why, on their way to another try.

A message of Kafka 0.7 has a payload and nothing else, so all of it travels in the payload: a line
of JSON, and after it the failed message's payload as it was.

    {"hermes_letter":1,"group":"billing","topic":"orders","broker":0,"partition":3,"offset":4711,
     "attempts":2,"first_failed_ms":1795221927872,"failed_ms":1795221932902,"reason":"..."}\n
    payload

In truth the JSON is one line; it begins with `{"hermes_letter":1,`, which tells a letter from
another payload. Readers ignore fields that they don't know. What a record of Kafka's format has
beside its value is in the line, too, since the letter's topic may be of 0.7's format: `"key"` and
the headers' values in base64, `"timestamp_ms"`, and `"no_payload":true` if it has no value. In a
topic of Kafka's format a letter is a record instead: `letter_headers`.
"""

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import Any, Final

from hermes.errors import InvalidTopicError, MessageTooLargeError
from hermes.protocol import check_topic_name
from hermes.protocol.records import Headers
from hermes.quoting import printable

_VERSION: Final = 1
_START: Final = b'{"hermes_letter":1,'
# A line is never longer; a payload without a newline isn't searched to its end. Enough for a key
# and headers as large as batches may be by default.
_LONGEST_LINE_BYTES: Final = 2 * 1024 * 1024
LONGEST_REASON: Final = 1000
_INT64_END: Final = 1 << 63


@dataclass(frozen=True, slots=True)
class Letter:
    """A message that failed, in a retry topic or among the dead letters.

    Attributes:
        topic, broker, partition, offset: where it was published at first; the broker is None where
            a client of Kafka's found it, which knows a partition by its number alone.
        attempts: how many times it has failed, 1 or more.
        first_failed_ms, failed_ms: when it failed first and last, in ms since 1970.
        reason: why it failed last; the class of the exception and its text, shortened.
        payload: its payload, not decoded; None of a record without a value.
        key, headers, timestamp_ms: a record's; none of a message of 0.7's format.
    """

    group: str
    topic: str
    broker: int | None
    partition: int
    offset: int
    attempts: int
    first_failed_ms: int
    failed_ms: int
    reason: str
    payload: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None

    @property
    def origin(self) -> str:
        """The partition where it was published, for people; what fails there keeps together."""
        number = f"{self.partition}" if self.broker is None else f"{self.broker}-{self.partition}"
        return f"{printable(self.topic)} {number}"

    def encode(self) -> bytes:
        """Raises MessageTooLargeError if key and headers are larger than a letter's line can be."""
        line: dict[str, Any] = {"hermes_letter": _VERSION}
        line.update((each, getattr(self, each)) for each in _PLAIN_FIELDS)
        if self.broker is None:
            del line["broker"]
        if self.payload is None:
            line["no_payload"] = True
        if self.key is not None:
            line["key"] = _base64(self.key)
        if self.headers:
            line["headers"] = [[name, _base64(value)] for name, value in self.headers]
        if self.timestamp_ms is not None:
            line["timestamp_ms"] = self.timestamp_ms
        text = json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"
        if len(text) > _LONGEST_LINE_BYTES:
            raise MessageTooLargeError(len(text), _LONGEST_LINE_BYTES)
        return text + (self.payload or b"")


#: What stands in a line as it is.
_PLAIN_FIELDS: Final = tuple(Letter.__dataclass_fields__)[:9]


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
    try:
        text = str(error)
    except Exception:  # an application's exception may fail at that, too
        text = ""
    name = type(error).__name__
    reason = f"{name}: {text}" if text else name
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 3] + "..."


def _letter(line: Any, payload: bytes) -> Letter:
    check_topic_name(_text(line["topic"]))
    return Letter(
        group=_text(line["group"]),
        topic=line["topic"],
        broker=_number(line["broker"]) if "broker" in line else None,
        partition=_number(line["partition"]),
        offset=_number(line["offset"]),
        attempts=_number(line["attempts"]),
        first_failed_ms=_number(line["first_failed_ms"]),
        failed_ms=_number(line["failed_ms"]),
        reason=_text(line["reason"]),
        payload=None if line.get("no_payload") is True else payload,
        key=_bytes(line.get("key")),
        headers=tuple((_text(name), _bytes(value)) for name, value in line.get("headers", ())),
        timestamp_ms=_time(line.get("timestamp_ms")),
    )


def _base64(value: bytes | None) -> str | None:
    return None if value is None else b64encode(value).decode("ascii")


def _bytes(value: Any) -> bytes | None:
    return None if value is None else b64decode(_text(value), validate=True)


def _time(value: Any) -> int | None:
    if value is not None and (type(value) is not int or not -_INT64_END <= value < _INT64_END):
        raise ValueError
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _INT64_END:
        raise ValueError
    return value
