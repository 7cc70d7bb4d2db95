"""Which messages of the topic count."""

import json

import pytest

from hermes.registry.entities import AVRO, StoredSchema
from hermes.registry.events import SchemaRegistered, event_to_json
from hermes.registry.log_records import LogRecord, decode_record, encode_record
from hermes.registry.replica import Replica, UnreadableEventError


def registered(schema_id: int) -> dict[str, object]:
    text = json.dumps({"type": "record", "name": f"R{schema_id}", "fields": []})
    return event_to_json(SchemaRegistered(f"s{schema_id}", 1, schema_id, StoredSchema(AVRO, text)))


def record(number: int, after: str, own: str, event: dict[str, object] | None = None) -> bytes:
    return encode_record(LogRecord(number, after, own, event or registered(number)))


class Topic:
    """Feeds a replica with messages that follow one another."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self.offset = replica.mark.position

    def add(self, payload: bytes) -> str | None:
        begin, self.offset = self.offset, self.offset + len(payload) + 10
        return self.replica.read_message(begin, self.offset, payload)


def ids(replica: Replica) -> list[int]:
    with replica.reading() as state:
        return sorted(state.schemas)


def test_a_record_counts_if_it_follows_the_last_that_does() -> None:
    replica = Replica()
    topic = Topic(replica)
    assert topic.add(record(1, "", "a")) == "a"
    assert topic.add(record(2, "a", "b")) == "b"
    assert (replica.mark.events, replica.mark.last_id) == (2, "b")
    assert replica.mark.position == topic.offset
    assert ids(replica) == [1, 2]


@pytest.mark.parametrize(
    "payload",
    [
        record(2, "a", "x", registered(9)),  # decided when there was one
        record(3, "a", "x", registered(9)),
        record(2, "b", "x", registered(9)),
        record(1, "", "a", registered(1)),  # repeated
        b"\xff\xfe junk",
        b"[" * 100_000,
        b"{}",
        b'{"n": true, "after": "b", "id": "c", "event": {}}',
        b'{"n": 3, "after": "b", "id": "", "event": {}}',
        b'{"n": 3, "after": 7, "id": "c", "event": {}}',
        b'{"n": 3, "after": "b", "id": "c", "event": []}',
    ],
)
def test_anything_else_is_void(payload: bytes) -> None:
    replica = Replica()
    topic = Topic(replica)
    topic.add(record(1, "", "a"))
    topic.add(record(2, "a", "b"))
    assert topic.add(payload) is None
    assert (replica.mark.events, replica.void, ids(replica)) == (2, 1, [1, 2])
    assert topic.add(record(3, "b", "c")) == "c"


def test_nothing_of_a_deposed_writers_batch_counts() -> None:
    """Its second record would fit by its number: there are as many before it as it says."""
    topic = Topic(Replica())
    topic.add(record(1, "", "a"))
    assert topic.add(record(2, "a", "new-1", registered(2))) == "new-1"
    assert topic.add(record(2, "a", "old-1", registered(7))) is None
    assert topic.add(record(3, "old-1", "old-2", registered(8))) is None
    assert topic.add(record(3, "new-1", "new-2", registered(3))) == "new-2"
    assert ids(topic.replica) == [1, 2, 3]


def test_an_event_of_a_newer_hermes_is_not_passed() -> None:
    replica = Replica()
    topic = Topic(replica)
    topic.add(record(1, "", "a"))
    mark = replica.mark
    with pytest.raises(UnreadableEventError, match="newer Hermes"):
        topic.add(record(2, "a", "b", {"event": "painted"}))
    assert replica.mark == mark
    # A void one is no obstacle, whatever it says.
    assert Topic(replica).add(record(9, "z", "y", {"event": "painted"})) is None


def test_what_is_written_down_is_the_same_copy() -> None:
    replica, other = Replica(), Replica()
    topic = Topic(replica)
    for number, (after, own) in enumerate([("", "a"), ("a", "b"), ("b", "c")], 1):
        topic.add(record(number, after, own))
    other.restore(json.loads(json.dumps(replica.to_json())))
    assert other.mark == replica.mark
    assert other.to_json() == replica.to_json()
    assert Topic(other).add(record(4, "c", "d")) == "d"


@pytest.mark.parametrize(
    "change",
    [{"position": "7"}, {"last_id": 3}, {"state": []}, {"state": {"format": 99}}, {"events": None}],
)
def test_nothing_else_is_taken_for_a_copy(change: dict[str, object]) -> None:
    replica = Replica()
    Topic(replica).add(record(1, "", "a"))
    before = replica.to_json()
    with pytest.raises(ValueError):
        replica.restore({**replica.to_json(), **change})
    assert replica.to_json() == before


def test_a_record_survives_any_text() -> None:
    event = {"event": "config-changed", "subject": "\ud800 \u2028 ☃", "config": '{"a":"\\ud800"}'}
    made = LogRecord(1, "", "a", event)
    assert decode_record(encode_record(made)) == made
