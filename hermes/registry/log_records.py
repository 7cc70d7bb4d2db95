"""What the registry's topic holds: events, each in a record that says what it follows.

A message is one JSON object, UTF-8, never compressed:

    {"n": 7, "after": "5e0c...-6", "id": "91ab...-2", "event": {...}}

`after` is the id of the record on whose state this one was decided, empty for the first. A record
is **valid** if that is the last valid one before it in the topic, and void otherwise. So of two
registries that both take themselves for the leader, the one whose record comes first has decided,
for every reader alike; what the other had in flight is void, and so is a message that is repeated.
Ids are random, since a deposed writer's second record must not fit behind another's first. `n`
counts valid records, for people and as a check.

Anything else in the topic, whoever has produced it, is void as well.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

_MOST_ID: Final = 100


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One event with its place in the chain.

    Attributes:
        number: how many valid records there are with this one, 1 or more.
        after: the id of the valid record before it; "" for the first.
        id: its own; nobody else ever gives the same.
        event: a JSON object, see `hermes.registry.events`.
    """

    number: int
    after: str
    id: str
    event: dict[str, Any]


def encode_record(record: LogRecord) -> bytes:
    value = {
        "n": record.number,
        "after": record.after,
        "id": record.id,
        "event": record.event,
    }
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return text.encode(errors="surrogatepass")  # which `json.loads` undoes


def decode_record(payload: bytes) -> LogRecord | None:
    try:
        value = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    number, after, own = value.get("n"), value.get("after"), value.get("id")
    event = value.get("event")
    if type(number) is not int or number < 1 or not isinstance(event, dict):
        return None
    if not (isinstance(after, str) and isinstance(own, str) and 0 < len(own) <= _MOST_ID):
        return None
    return LogRecord(number, after, own, event)
