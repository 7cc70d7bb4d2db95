"""The compiled loops and those in Python: tests that run with both, and what both must agree on.

And the two ways that a Produce request of Kafka's goes: by a loop that knows it, or decoded.

A directory whose conftest imports the fixture has every test run twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from hermes.errors import HermesError
from hermes.protocol import MessageSet, check_message_set, core, encode_message_set, loops
from hermes.protocol.record_batches import BatchHeader

__all__ = [
    "either_core",
    "either_produce",
    "using",
    "what_a_broker_sees",
    "what_a_consumer_sees",
    "what_a_consumer_sees_in_rows",
    "what_answers_it",
    "what_batches_are",
    "what_is_counted",
    "what_is_encoded",
    "what_is_fetched",
    "what_is_fetched_of_one",
    "what_is_plain",
    "what_is_produced",
    "what_records_are",
    "what_records_count_as",
    "what_request_it_is",
]


@contextmanager
def using(module: Any) -> Iterator[None]:
    """Exchange the loops that the protocol uses."""
    with pytest.MonkeyPatch.context() as patch:
        for name in set(core.__all__) - {"KIND"}:
            patch.setattr(core, name, getattr(module, name))
        yield


@pytest.fixture(params=["compiled", "pure"], scope="module", autouse=True)
def either_core(request: pytest.FixtureRequest) -> Iterator[None]:
    """Use the loops that the parameter names."""
    chosen = loops
    if request.param == "compiled":
        chosen = pytest.importorskip("hermes.protocol._core", reason="there was no compiler")
    with using(chosen):
        yield


@pytest.fixture(params=["plain", "pure", "decoded"], autouse=True)
def either_produce(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have plain Produce requests of Kafka's found, or none of them; says which."""
    way: str = request.param
    if way == "pure":
        monkeypatch.setattr(core, "plain_produce", loops.plain_produce)
    if way == "decoded":
        monkeypatch.setattr(core, "plain_produce", lambda *_: None)
    return way


def _told(error: Exception) -> tuple[Any, ...]:
    names = ("offset", "next_offset", "size_bytes")
    return type(error), str(error), [getattr(error, name, None) for name in names]


def what_a_consumer_sees(data: bytes, base: int, on_corrupt: Any, deep: bool) -> tuple[Any, ...]:
    """The messages and offsets of a set, the error at its end, and the positions behind it."""
    message_set = MessageSet(data, base, on_corrupt=on_corrupt, max_expanded_bytes=2_000)
    seen: list[object] = []
    try:
        for message, next_offset in message_set.iterate(deep=deep):
            seen.append((type(message), tuple(message), next_offset))
    except HermesError as error:
        seen.append(_told(error))
    return seen, message_set.valid_bytes, message_set.next_offset, message_set.skipped_count


class _Row(tuple[Any, ...]):
    __slots__ = ()


def what_a_consumer_sees_in_rows(
    data: bytes, base: int, on_corrupt: Any, most: int
) -> tuple[Any, ...]:
    """The same of the messages in all compressed ones, payloads and offsets only."""
    message_set = MessageSet(data, base, on_corrupt=on_corrupt, max_expanded_bytes=2_000)
    seen: list[object] = []
    end = base
    try:
        for rows in message_set.rows(_Row, ("t", 2, 3), most):
            for row in rows.items:
                payload, topic, partition, offset, next_offset, broker = row
                assert (type(row), topic, partition, broker) == (_Row, "t", 2, 3)
                assert offset >= end  # more behind what was skipped, or an empty compressed set
                seen.append((payload, next_offset))
                end = next_offset
    except HermesError as error:
        seen.append(_told(error))
    return seen, message_set.valid_bytes, message_set.next_offset, message_set.skipped_count


def what_a_broker_sees(data: bytes, max_message_bytes: int) -> tuple[Any, ...]:
    """What may be appended of a set, or why nothing may."""
    try:
        return check_message_set(
            data, max_message_bytes=max_message_bytes, max_expanded_bytes=2_000
        )
    except HermesError as error:
        return _told(error)


def what_is_counted(data: bytes, start: int, end: int) -> tuple[Any, ...]:
    """The messages in a part of a set; it may end before it starts."""
    tallied: dict[tuple[int, int], tuple[int, int]] = {(0, 0): (1, (1 << 64) - 1)}
    return (
        core.count_plain(data, start, end),
        core.count_plain(memoryview(data), start, end),
        core.count_uncompressed(data, start, end),
        core.pack_plain(data, start, 7),
        core.whole_bytes(data),
        core.tally(data, start, 1000, tallied),
        tallied,
    )


def what_is_produced(
    data: Any, position: int, end: int, prefix: bytes, largest: int
) -> tuple[Any, ...]:
    """The sets of produce requests, and where something else starts."""
    sets: list[Any] = []
    taken = core.collect_produces(data, position, end, prefix, largest, sets)
    return taken, [(type(each), bytes(each)) for each in sets]


def what_records_are(data: bytes, start: int, end: int, count: int, base_ms: int) -> object:
    """What is wrong with the records of a batch, and what is known of them."""
    return core.check_records(data, start, end, count, base_ms)


def what_records_count_as(
    data: bytes, start: int, end: int, count: int, base_ms: int, append_ms: int, first: int
) -> object:
    """The windows of a batch's records, and how many could be read."""
    found: dict[tuple[int, int], tuple[int, int]] = {(0, 0): (1, (1 << 64) - 1)}
    times = base_ms, append_ms, first, 1000
    return core.tally_records(data, start, end, count, *times, found), found


def what_is_plain(data: Any, position: int, most: int) -> object:
    """The plain Produce request of Kafka's at a position."""
    found = core.plain_produce(BatchHeader, data, position, most)
    return found and (type(found), type(found[-1]), found)


def what_request_it_is(data: Any, position: int, most: int) -> object:
    """The header of the request of Kafka's at a position."""
    return core.whole_request(data, position, most)


def what_is_fetched(data: Any, position: int, version: int) -> object:
    """The plain body of a Fetch request of Kafka's at a position."""
    found = core.plain_fetch(_Row, data, position, version)
    return found and (type(found), [type(each) for each in found[-2]], found)


def what_is_fetched_of_one(data: Any, position: int, most: int) -> object:
    """The plain Fetch request of Kafka's for one partition at a position."""
    found = core.single_fetch(_Row, data, position, most)
    return found and (type(found), [type(each) for each in found], found)


def what_answers_it(*fields: Any) -> object:
    """The response to such a request."""
    return core.single_fetched(*fields)


def what_batches_are(
    data: Any, position: int, limit: int, offset: int, end_offset: int, most: int
) -> tuple[int, int, int, int]:
    """Where the batches of a range of a segment end."""
    return core.whole_batches(data, position, limit, offset, end_offset, most)


def what_is_encoded(payloads: list[Any]) -> object:
    """A set of these payloads, or why there is none."""
    try:
        return encode_message_set(payloads)
    except (TypeError, ValueError, BufferError) as error:
        return _told(error)
