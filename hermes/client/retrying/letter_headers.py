"""Letters as records of Kafka's format: what failed as it was, and in headers why and from where.

    hermes-letter            1
    hermes-group             the group in which it failed
    hermes-topic, hermes-partition, hermes-offset (and hermes-broker, where that is known)
    hermes-attempts          how many times it has failed
    hermes-first-failed-ms, hermes-failed-ms
    hermes-reason
    hermes-timestamp-ms      the record's own time, if it had one; the letter's says when it failed

All are text, numbers in decimal digits. They follow the record's own headers; of a name that occurs
several times the last one counts. A record of another producer may hold anything under these names:
they are looked at in retry topics and among dead letters alone, and replaced when a record fails.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from hermes.client.payloads import RecordData
from hermes.client.retrying.letters import LONGEST_REASON, Letter, parse_letter
from hermes.errors import InvalidTopicError
from hermes.protocol import Message, check_topic_name
from hermes.protocol.records import Headers

_VERSION: Final = "1"
_MARK: Final = "hermes-letter"
_TEXTS: Final = ("group", "topic", "reason")
_NUMBERS: Final = ("partition", "offset", "attempts", "first_failed_ms", "failed_ms")
_OPTIONAL: Final = ("broker", "timestamp_ms")
_NAMES: Final = {
    each: f"hermes-{each.replace('_', '-')}" for each in (*_TEXTS, *_NUMBERS, *_OPTIONAL)
}
_RESERVED: Final = frozenset({_MARK, *_NAMES.values()})
_INT64_END: Final = 1 << 63
_MOST_DIGITS: Final = 20


def letter_record(letter: Letter) -> RecordData:
    """The value and the headers of a letter's record; its key is the letter's."""
    fields = {each: str(getattr(letter, each)) for each in (*_TEXTS, *_NUMBERS)}
    if letter.broker is not None:
        fields["broker"] = str(letter.broker)
    if letter.timestamp_ms is not None:
        fields["timestamp_ms"] = str(letter.timestamp_ms)
    told = [(_NAMES[name], _encoded(text)) for name, text in fields.items()]
    return RecordData(letter.payload, (*own_headers(letter.headers), (_MARK, b"1"), *told))


def own_headers(headers: Iterable[tuple[str, bytes | None]] | None) -> Headers:
    """What a record has beside the headers of a letter."""
    return tuple((name, value) for name, value in headers or () if name not in _RESERVED)


def letter_of(message: Message) -> Letter | None:
    """Read a letter of either form; None if the message isn't one."""
    return read_letter(message.payload, message.key, message.headers)


def read_letter(value: bytes | None, key: bytes | None, headers: Headers) -> Letter | None:
    found = {name: data for name, data in headers if name in _RESERVED}
    if found.get(_MARK) == _VERSION.encode():
        try:
            return replace(_letter(found), payload=value, key=key, headers=own_headers(headers))
        except (ValueError, KeyError, InvalidTopicError):
            return None
    return parse_letter(value or b"")


def _letter(found: dict[str, bytes | None]) -> Letter:
    texts = {each: _text(found[_NAMES[each]]) for each in _TEXTS}
    numbers = {each: _number(found[_NAMES[each]]) for each in _NUMBERS}
    broker, time = (found.get(_NAMES[each]) for each in _OPTIONAL)
    check_topic_name(texts["topic"])
    return Letter(
        texts["group"],
        texts["topic"],
        None if broker is None else _number(broker),
        numbers["partition"],
        numbers["offset"],
        numbers["attempts"],
        numbers["first_failed_ms"],
        numbers["failed_ms"],
        texts["reason"][:LONGEST_REASON],
        payload=None,
        timestamp_ms=None if time is None else _number(time, -_INT64_END),
    )


def _encoded(text: str) -> bytes:
    # An exception's text may hold what is no character.
    return text.encode("utf-8", "backslashreplace")


def _text(data: bytes | None) -> str:
    if data is None:
        raise ValueError
    return data.decode()


def _number(data: bytes | None, least: int = 0) -> int:
    text = _text(data)
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(text) > _MOST_DIGITS:
        raise ValueError
    if not least <= int(text) < _INT64_END:
        raise ValueError
    return int(text)
