"""The compiled loops against those in Python: the same results, errors and positions."""

from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from batches import fetch_body, fetch_request, plain_request, resealed
from either_core import (
    using,
    what_a_broker_sees,
    what_a_consumer_sees,
    what_a_consumer_sees_in_rows,
    what_answers_it,
    what_batches_are,
    what_is_counted,
    what_is_encoded,
    what_is_fetched,
    what_is_fetched_of_one,
    what_is_plain,
    what_is_produced,
    what_records_are,
    what_records_count_as,
    what_request_it_is,
)
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes.plugins.partitioners.java_hash import JavaHashPartitioner
from hermes.protocol import (
    Codec,
    Message,
    MessageSet,
    compress,
    core,
    encode_message,
    encode_message_set,
    frame,
    loops,
)
from hermes.protocol.record_batches import BatchHeader, BatchRules, check_batches
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, encode_records
from hermes.protocol.stamps import Stamper

payloads = st.binary(max_size=30) | st.integers(0, 400).map(bytes)


@st.composite
def stamped(draw: st.DrawFn) -> bytes:
    """Payloads with stamps of some processes and windows, some of which are none."""
    times = st.sampled_from([0, 999, 1000, 1 << 47, (1 << 48) - 1]) | st.integers(0, 100_000)
    stamper = Stamper(draw(st.integers(1, 70) | st.just((1 << 64) - 1)), draw(st.text(max_size=4)))
    return stamper.stamped([draw(st.binary(max_size=9))], draw(times))[0]


payloads = payloads | stamped()


LENGTHS = ["ffffffff", "7fffffff0100", "00000000000000000000", "0000000501", "0000000601"]


def wrapped(data: bytes, codec: Codec) -> bytes:
    return encode_message(compress(codec, data), attributes=codec)


messages = st.one_of(
    st.lists(payloads, max_size=8).map(encode_message_set),
    payloads.map(lambda each: encode_message(each, magic=0)),
    st.builds(
        lambda each, bits: encode_message(each, attributes=bits), payloads, st.integers(0, 255)
    ),
    st.builds(
        lambda each, codec: wrapped(encode_message_set(each), codec),
        st.lists(payloads, max_size=4),
        st.sampled_from([Codec.GZIP, Codec.SNAPPY]),
    ),
    st.binary(max_size=20),
    st.sampled_from(
        [b"\xff" * 4, b"\x7f\xff\xff\xff\1\0", bytes(10), b"\0\0\0\5\1", b"\0\0\0\6\1"]
    ),
)


@st.composite
def sets(draw: st.DrawFn) -> bytes:
    """Messages of all kinds, of which some bytes may have been exchanged, and the end cut off."""
    data = bytearray(b"".join(draw(st.lists(messages, max_size=6))))
    for _ in range(draw(st.integers(0, 3))):
        if data:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))] if draw(st.booleans()) else data)


@pytest.fixture(scope="module")
def either_core() -> None:
    """Stands in for the one that runs everything twice: here each example does."""
    pytest.importorskip("hermes.protocol._core", reason="there was no compiler")


def with_each(what: Callable[..., object], *arguments: object) -> None:
    results = []
    for module in (loops, import_module("hermes.protocol._core")):
        with using(module):
            results.append(what(*arguments))
    assert results[0] == results[1]


@settings(max_examples=examples(150))
@given(
    sets(),
    st.sampled_from([0, 1, 1 << 40, (1 << 63) - 100, 1 << 70]),
    st.sampled_from(["raise", "skip"]),
    st.booleans(),
)
def test_a_consumer_sees_the_same(data: bytes, base: int, on_corrupt: str, deep: bool) -> None:
    with_each(what_a_consumer_sees, data, base, on_corrupt, deep)


@given(sets(), st.sampled_from([0, (1 << 63) - 100]), st.sampled_from(["raise", "skip"]))
def test_rows_say_what_messages_say(data: bytes, base: int, on_corrupt: str) -> None:
    def rows() -> object:
        messages, *ends = what_a_consumer_sees(data, base, on_corrupt, deep=True)
        seen = [(m[1][0], m[2]) if isinstance(m[1], tuple) else m for m in messages]
        for most in (1, 3, 1000):
            assert what_a_consumer_sees_in_rows(data, base, on_corrupt, most) == (seen, *ends)
        return seen

    with_each(rows)


@given(sets(), st.integers(0, 500))
def test_a_broker_sees_the_same(data: bytes, most: int) -> None:
    with_each(what_a_broker_sees, data, most)


@given(st.data())
def test_every_part_of_it_counts_the_same(data: st.DataObject) -> None:
    whole = data.draw(sets())
    start = data.draw(st.integers(0, len(whole)))
    end = data.draw(st.integers(start, len(whole)))
    with_each(what_is_counted, whole, start, end)


PREFIX = bytes.fromhex("0000 0001 74 00000003")


@given(st.data())
def test_produces_are_collected_alike(data: st.DataObject) -> None:
    plain = st.lists(payloads, max_size=3).map(encode_message_set)
    requests = bytearray()
    for _ in range(data.draw(st.integers(0, 4))):
        whole = data.draw(st.one_of(plain, plain, sets()))
        claimed = max(0, len(whole) + data.draw(st.sampled_from([0, 0, 0, 0, -1, 1])))
        rest = data.draw(st.sampled_from([b"", b"", b"", b"more"]))
        requests += frame(PREFIX, claimed.to_bytes(4), whole, rest)
    for _ in range(data.draw(st.integers(0, 2))):
        if requests:
            place = data.draw(st.integers(0, len(requests) - 1))
            new = data.draw(st.sampled_from([b"\xff", b"\0", b"\x7f\xff\xff\xff", b"\x80\0\0\0"]))
            requests[place : place + len(new)] = new
    whole = bytes(requests)
    end = data.draw(st.sampled_from([len(whole), len(whole) // 2]))
    start = data.draw(st.sampled_from([0, 0, 0, end // 2]))
    largest = data.draw(st.sampled_from([1000, 60]))
    for kind in (bytes, memoryview):
        with_each(what_is_produced, kind(whole), start, end, PREFIX, largest)


@given(
    st.lists(
        payloads
        | st.sampled_from([bytearray(b"x"), memoryview(b"xyz"), memoryview(b"abcd")[::2]])
        | st.sampled_from([None, 5, "text", [b"x"]])
    )
)
def test_payloads_are_encoded_or_refused_alike(payloads: list[object]) -> None:
    with_each(what_is_encoded, payloads)


@given(st.lists(payloads), st.integers(0, 1))
def test_what_was_encoded_is_read(payloads: list[bytes], magic: int) -> None:
    def round_trip() -> list[Message]:
        return [message for message, _ in MessageSet.of(payloads, magic=magic)]

    with_each(round_trip)
    assert [message.payload for message in round_trip()] == payloads


parts = st.none() | st.binary(max_size=12) | st.integers(60, 200).map(bytes)
headers = st.lists(st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)), max_size=3)
times = st.integers(-3, 300) | st.integers(-(2**63), 2**63 - 1)
DAMAGE = ["80", "ff", "01", "8080808080", "ffffffff7f", "80808080808080808001", "ff" * 12]


@settings(max_examples=examples(40))
@given(
    st.lists(st.tuples(times, parts, parts, headers.map(tuple)), max_size=5),
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(DAMAGE)), max_size=2),
    times,
    st.integers(0, 9),
)
def test_records_are_what_they_are(
    contents: list[Any], damage: list[tuple[int, str]], base_ms: int, cut: int
) -> None:
    records = [Record(n, *each) for n, each in enumerate(contents)]
    whole = encode_records(records, 0, 0)
    data = bytearray(whole)
    for place, what in damage:
        data[place : place + len(what) // 2] = bytes.fromhex(what)
    count = len(records)
    with_each(what_records_are, whole, 0, len(whole), count, base_ms)
    with_each(what_records_are, bytes(data), 0, max(0, len(data) - cut // 3), count, base_ms)
    with_each(what_records_are, bytes(data), cut, len(data), count + cut - 3, base_ms)
    fault, number, _, unkeyed, listed = core.check_records(whole, 0, len(whole), count, 0)
    assert (fault, number) == (0, count)
    assert listed == [each.offset for each in records if each.key is None]
    assert unkeyed == len(listed)


headers_with_stamps = st.lists(
    st.tuples(st.sampled_from(["hermes-audit", "hermes-audi", "source"]), stamped() | parts),
    max_size=3,
).map(tuple)


@settings(max_examples=examples(60))
@given(
    st.lists(st.tuples(times, parts, stamped() | parts, headers_with_stamps), max_size=6),
    st.lists(st.tuples(st.integers(0, 200), st.sampled_from(DAMAGE)), max_size=2),
    times,
    times,
    st.integers(0, 9),
)
def test_records_count_as_what_they_are(
    contents: list[Any], damage: list[tuple[int, str]], base_ms: int, append_ms: int, cut: int
) -> None:
    records = [Record(n, *each) for n, each in enumerate(contents)]
    whole = encode_records(records, 0, 0)
    data = bytearray(whole)
    for place, what in damage:
        data[place : place + len(what) // 2] = bytes.fromhex(what)
    count = len(records)
    with_each(what_records_count_as, whole, 0, len(whole), count, base_ms, append_ms, cut - 4)
    end = max(0, len(data) - cut // 3)
    with_each(what_records_count_as, bytes(data), 0, end, count, base_ms, -1, 0)
    with_each(what_records_count_as, bytes(data), cut, len(data), count + cut - 3, 0, append_ms, 0)
    found: dict[tuple[int, int], tuple[int, int]] = {}
    args = (count, base_ms, append_ms, 0, 1000)
    assert core.tally_records(whole, 0, len(whole), *args, found) == count
    assert sum(number for number, _ in found.values()) == count


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    """Batches of all kinds, whose headers may lie, with CRCs that fit."""
    contents = draw(st.lists(st.tuples(st.integers(-1, 300), parts, parts), min_size=1, max_size=4))
    made = [Record(n, *each) for n, each in enumerate(contents)]
    batch = encode_batch(made, draw(st.sampled_from(RecordCodec)))
    numbers = st.sampled_from([-(2**31), -1, 0, 1, 2, 3, 2**30 - 1, 2**30, 2**31 - 1])
    changes = {
        "base_offset": st.sampled_from([0, 1, 2**63 - 1]),
        "leader_epoch": numbers,
        "attributes": st.integers(0, 9) | st.sampled_from([0x10, 0x20, 0x40, 0x80, -(2**15)]),
        "last_offset_delta": st.integers(0, 3),
        "base_timestamp_ms": times,
        "max_timestamp_ms": times,
        "producer_id": st.sampled_from([-1, 0, 4711, 2**63 - 1]),
        "producer_epoch": st.integers(-1, 2**15 - 1),
        "base_sequence": numbers,
        "record_count": st.integers(0, 4),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(changes)), max_size=2))
    return resealed(batch, **{name: draw(changes[name]) for name in chosen})


@st.composite
def kafka_produces(draw: st.DrawFn) -> bytes:
    """Requests of Kafka's, most of them plain until some bytes are exchanged."""
    version = draw(st.integers(3, 13) | st.integers(0, 20))
    return plain_request(
        version,
        draw(batches()),
        topic=draw(st.uuids()) if version >= 13 else draw(st.text(max_size=3)) * 60,
        acks=draw(st.sampled_from([-1, 0, 1, 1, 2])),
        partition=draw(st.integers(-(2**31), 2**31 - 1)),
        timeout_ms=draw(st.integers(-(2**31), 2**31 - 1)),
        client_id=draw(st.none() | st.text(max_size=5)),
        transactional_id=draw(st.sampled_from([None, None, None, "", "x"])),
    )


@settings(max_examples=examples(200))
@given(
    kafka_produces(),
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=3)), max_size=2),
    st.sampled_from([0, 0, 0, 1, 5]),
    st.sampled_from([b"", b"", b"\0", b"\0\0\0\x09more"]),
    st.integers(-2, 40),
)
def test_plain_produces_are_found_alike(
    request: bytes, damage: list[tuple[float, bytes]], before: int, after: bytes, cut: int
) -> None:
    changed = bytearray(request)
    for place, what in damage:
        at = int(place * len(changed))
        changed[at : at + len(what)] = what
    for each in (request, bytes(changed), bytes(changed[: len(changed) - cut // 3])):
        data = bytes(before) + each + after
        for kind in (bytes, memoryview):
            with_each(what_is_plain, kind(data), before, 1 << 20)
            other = data[: before + 5] + b"\3" + data[before + 6 :]
            with_each(what_request_it_is, kind(other), before, len(each) - 4 - cut % 2)
        with_each(what_request_it_is, data, before, 1 << 20)
        with_each(what_is_plain, data, before, len(each) - 4 - cut % 2)
        with_each(what_is_plain, data, cut, 1 << 20)


int32 = st.integers(-(2**31), 2**31 - 1)


@given(
    st.integers(3, 19),
    st.lists(st.tuples(int32, st.integers(-(2**63), 2**63 - 1), int32), max_size=3),
    st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=3)), max_size=2),
    st.integers(0, 40),
)
def test_plain_fetches_are_found_alike(
    version: int,
    places: list[tuple[int, int, int]],
    damage: list[tuple[float, bytes]],
    cut: int,
) -> None:
    body = fetch_body(version, *places, topic=UUID(int=cut) if version >= 13 else "t" * cut)
    changed = bytearray(body)
    for place, what in damage:
        at = int(place * len(changed))
        changed[at : at + len(what)] = what
    for data in (body, bytes(changed), bytes(changed[: len(changed) - cut])):
        for kind in (bytes, memoryview):
            with_each(what_is_fetched, kind(b"\0" * cut + data), cut, version)
        for each in (fetch_request(version, data), fetch_request(version, data)[:-1] + data):
            with_each(what_is_fetched_of_one, b"\0" * cut + each, cut, len(each) - cut % 7)
            with_each(what_is_fetched_of_one, memoryview(each), cut % 5, 1 << 20)
    with_each(what_is_fetched, body, -1, version)
    with_each(what_is_fetched, body, len(body) + cut, version)


class Fields(tuple[Any, ...]):
    """What a request says."""


@given(st.integers(4, 18), int32, st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**31 - 1))
def test_a_fetch_of_one_partition_is_found_with_all_that_it_says(
    version: int, partition: int, offset: int, size: int
) -> None:
    topic = UUID(int=7) if version >= 13 else "clicks"
    request = fetch_request(version, fetch_body(version, (partition, offset, size), topic=topic))
    asked = topic.bytes if isinstance(topic, UUID) else topic
    one = b"\x02" if version >= 12 else b"\0\0\0\1"
    named = {4: b"\0\6clicks", 12: b"\7clicks", 13: UUID(int=7).bytes}
    place = one + named[max(each for each in named if each <= version)] + one
    found = core.single_fetch(Fields, b"\1" + request + b"\1", 1, len(request) - 4)
    epoch = 3 if version >= 9 else -1
    assert found == (
        *(request[4:], version, 7, 500, 1, 1 << 20, 0),
        *(asked, partition, offset, size, epoch),
        place + partition.to_bytes(4, signed=True),
    )
    assert core.single_fetch(Fields, request, 0, len(request) - 5) is None
    assert core.single_fetch(Fields, request[:-1], 0, len(request)) is None
    many = fetch_body(version, (0, 0, 1), (1, 0, 1), topic=topic)
    assert core.single_fetch(Fields, fetch_request(version, many), 0, 1 << 20) is None


int64 = st.integers(-(2**63), 2**63 - 1)


@given(
    *(st.integers(4, 18), int32, st.integers(-1, 2), st.binary(max_size=300)),
    *(int64, int64, int64),
    st.none() | st.integers(0, 20_000).map(bytes),
    st.integers(0, 2**31 - 1000),
)
def test_fetches_are_answered_alike(
    version: int,
    correlation_id: int,
    level: int,
    place: bytes,
    mark: int,
    stable_end: int,
    start: int,
    records: bytes | None,
    size: int,
) -> None:
    size = size if records is None else len(records)
    about = version, correlation_id, level, place, mark, stable_end, start, size
    with_each(what_answers_it, *about, records)
    whole = core.single_fetched(*about, records)
    to_come = 0 if records is not None else size + (3 if version >= 12 else 0)
    assert int.from_bytes(whole[:4]) + 4 == len(whole) + to_come


@given(
    st.lists(batches(), max_size=4).map(b"".join),
    st.integers(-2, 90),
    st.tuples(*(st.sampled_from([-1, 0, 1, 3, 90, 200, 2**31, 2**63 - 1]) for _ in range(4))),
)
def test_batches_are_stepped_over_alike(
    data: bytes, position: int, numbers: tuple[int, int, int, int]
) -> None:
    for kind in (bytes, memoryview):
        with_each(what_batches_are, kind(data), position, *numbers)
        with_each(what_batches_are, kind(data), 0, *numbers)
        with_each(what_batches_are, kind(data), 0, 1 << 40, 0, 1 << 40, numbers[3])


@given(kafka_produces())
def test_what_is_plain_is_what_is_checked_by_hand(request: bytes) -> None:
    found = core.plain_produce(BatchHeader, request, 0, len(request))
    if found is not None:
        (end, *_, start, header) = found
        assert end == len(request)
        batch = request[4 + start :][: header.size_bytes]
        assert check_batches(batch, BatchRules(1 << 20)) == [header]


@given(
    st.lists(
        st.text(max_size=20)
        | st.text(st.characters(max_codepoint=127), max_size=40)
        | st.just("\ud800")
        | st.binary(max_size=20)
        | st.integers()
        | st.integers(-(2**33), 2**33)
        | st.none()
        | st.booleans()
        | st.floats(),
        max_size=8,
    ),
    st.integers(1, 12),
)
def test_keys_are_put_where_the_partitioner_puts_them(keys: list[object], count: int) -> None:
    with_each(lambda: core.java_partitions(keys, count))
    partition = JavaHashPartitioner().partition
    for key, chosen in zip(keys, core.java_partitions(keys, count), strict=True):
        assert chosen in (None, None if chosen is None else partition("t", key, count))
        assert chosen is not None or not (isinstance(key, str) and key.isascii())


@pytest.mark.parametrize("count", [0, -1, 2**31])
def test_there_is_a_partition_to_put_keys_into(either_core: None, count: int) -> None:
    for module in (loops, import_module("hermes.protocol._core")):
        with pytest.raises(ValueError, match="1 partition"):
            module.java_partitions(["a"], count)
