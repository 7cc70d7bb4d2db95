"""What the compiled loops and those in Python have to have in common beside their results."""

import contextlib
import gc
import itertools
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import weakref
from functools import partial
from itertools import chain, repeat
from uuid import UUID

import pytest
from batches import GZIP, PLAIN, plain_request, resealed

from hermes.protocol import Codec, Message, MessageSet, core, encode_message_set
from hermes.protocol.record_batches import BatchHeader, decode_header
from hermes.protocol.record_compression import RecordCodec

HELLO = bytes.fromhex("0000000b01003610a68668656c6c6f")
WORLD = bytes.fromhex("0000000c0100718498e8776f726c6421")


def nothing(position):
    return None


def ask(program, **environment):
    return subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "/nowhere"} | environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()


KIND = "from hermes.protocol import core; print(core.KIND)"


@pytest.mark.parametrize("value", ["1", "yes"])
def test_python_is_used_when_asked_for(value):
    assert ask(KIND, HERMES_PURE=value) == "pure"


@pytest.mark.parametrize("value", ["0", ""])
def test_the_compiled_one_is_used_where_there_is_one(value):
    pytest.importorskip("hermes.protocol._core", reason="there was no compiler")
    assert ask(KIND) == ask(KIND, HERMES_PURE=value) == "compiled"


def test_python_is_used_where_nothing_was_compiled():
    without = "import sys; sys.modules['hermes.protocol._core'] = None\n"
    assert ask(without + KIND) == "pure"


def test_python_is_used_where_the_build_is_older_than_the_sources():
    stale = "import sys, types; sys.modules['hermes.protocol._core'] = types.ModuleType('stale')\n"
    assert ask(stale + KIND) == "pure"


def test_messages_are_of_the_type_that_was_asked_for():
    class Mine(tuple):
        __slots__ = ()

    ((message, offset),) = core.iterate(Mine, HELLO, 7, nothing)
    assert (type(message), message, offset) == (Mine, (b"hello", 1, 0, 0x3610A686), 22)
    assert hash(message) == hash((b"hello", 1, 0, 0x3610A686))


@pytest.mark.parametrize("make", [tuple, int, len])
def test_the_compiled_one_makes_nothing_but_such_types(make):
    compiled = pytest.importorskip("hermes.protocol._core", reason="there was no compiler")
    with pytest.raises(TypeError):
        compiled.iterate(make, HELLO, 0, nothing)


def test_a_message_is_no_other_when_the_next_one_is_taken():
    pairs = list(MessageSet(HELLO + WORLD))
    assert pairs == [(Message.of(b"hello"), 15), (Message.of(b"world!"), 31)]
    assert len({id(each) for each, _ in pairs}) == 2
    assert hash(pairs[0][0]) == hash(Message.of(b"hello"))


@pytest.mark.parametrize("base", [0, 2**63 - 32, 2**63 - 31, 2**63, 2**80])
def test_offsets_have_no_limit(base):
    assert [offset for _, offset in MessageSet(HELLO + WORLD, base)] == [base + 15, base + 31]


def test_an_iteration_has_an_end_and_stays_there():
    messages = core.iterate(Message, HELLO, 0, nothing)
    assert iter(messages) is messages
    assert next(messages)[1] == 15
    for _ in range(3):
        assert next(messages, "end") == "end"


@pytest.mark.parametrize("wrong", [5, (1, 2, 3), ("text",)])
def test_an_error_of_the_one_who_is_asked_comes_out_and_ends_the_iteration(wrong):
    def fail(position):
        raise LookupError(position)

    messages = core.iterate(Message, HELLO + b"?", 0, fail)
    next(messages)
    with pytest.raises(LookupError, match="15"):
        next(messages)
    assert next(messages, "end") == "end"

    messages = core.iterate(Message, HELLO, 0, lambda position: wrong)
    next(messages)
    with pytest.raises((TypeError, ValueError)):
        next(messages)
    assert next(messages, "end") == "end"


def test_whoever_is_asked_may_send_the_iteration_anywhere():
    places = iter([(["x", "y"], 0), ([], len(HELLO)), None])
    messages = core.iterate(Message, HELLO + WORLD[:-1], 0, lambda position: next(places))
    assert [m if type(m) is str else m[0].payload for m in messages] == [
        b"hello",
        "x",
        "y",
        b"hello",
    ]


def test_an_iteration_is_not_entered_twice():
    def enter(position):
        return next(messages)

    messages = core.iterate(Message, b"", 0, enter)
    with pytest.raises(ValueError, match="generator already executing"):
        next(messages)


def test_an_iteration_that_is_given_up_holds_nothing():
    class Unusual:
        def __call__(self, position):
            return None

    unusual = Unusual()
    unusual.messages = core.iterate(Message, HELLO + WORLD, 0, unusual)  # a circle
    next(unusual.messages)
    gone = weakref.ref(unusual)
    del unusual
    gc.collect()
    assert gone() is None


def term(clock=None, clock_id=-1, until=0.0):
    made = core.Term()
    made.clock, made.clock_id, made.until = clock, clock_id, until
    return made


def lease(looks):
    """A term that lasts for so many looks at its clock."""
    return term(chain(repeat(-1, looks), repeat(1)).__next__)


def supplies():
    class Counting(core.Supply):
        """Numbers in batches of a size, and so many batches."""

        def __init__(self, size, batches):
            self.size, self.batches = size, batches

        def _refill(self):
            if not self.batches:
                raise StopIteration
            self.batches -= 1
            self._items = iter(range(1, self.size))
            return 0

    class AsyncCounting(core.AsyncSupply):
        """The same; every batch takes a round of the loop."""

        def __init__(self, size, batches):
            self.size, self.batches = size, batches

        async def _refill(self):
            await Round()
            if not self.batches:
                raise StopAsyncIteration
            self.batches -= 1
            self._items = iter(range(1, self.size))
            return 0

    return Counting, AsyncCounting


class Round:
    def __await__(self):
        yield


async def awaited(awaitable):
    return await awaitable


async def everything(supply):
    return [each async for each in supply]


def run(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as end:
        return end.value


def test_what_is_there_is_handed_out_and_then_more_is_asked_for():
    counting, async_counting = supplies()
    supply = counting(3, 2)
    assert iter(supply) is supply
    assert list(supply) == [0, 1, 2] * 2
    assert list(supply) == []
    assert run(everything(async_counting(3, 2))) == [0, 1, 2] * 2
    assert counting(3, 1)._take() is None


def test_an_item_belongs_to_the_call_that_took_it():
    _, async_counting = supplies()
    supply = async_counting(3, 1)
    supply._items = iter("abcd")
    one, two = supply.__anext__(), supply.__anext__()
    assert [run(awaited(two)), run(awaited(one))] in (["b", "a"], ["a", "b"])
    for spent in (one, two):
        with pytest.raises(RuntimeError):
            run(awaited(spent))
    del one, two, spent
    assert [run(first(supply)), run(first(supply))] == ["c", "d"]


def test_items_are_taken_only_while_the_lease_lasts():
    counting, async_counting = supplies()
    for supply in (counting(5, 1), async_counting(5, 1)):
        supply._items = iter("abcde")
        supply._lease = lease(2)
        assert [supply._take() for _ in range(4)] == ["a", "b", None, None]
        supply._lease = None
        assert supply._take() == "c"
        supply._items = None
        assert supply._take() is None
    supply = counting(5, 1)
    supply._items, supply._lease = iter("abcde"), lease(1)
    assert [next(supply), next(supply)] == ["a", 0]  # asked for more, and so for what to do


def test_a_lease_may_name_its_clock_instead_of_being_asked():
    counting, _ = supplies()
    supply = counting(5, 1)
    supply._items = iter("ab")
    for clock_id in (time.CLOCK_MONOTONIC, time.CLOCK_REALTIME):
        clock = partial(time.clock_gettime, clock_id)
        supply._lease = term(clock, clock_id, until=clock())
        assert supply._take() is None
        supply._lease.until += 3600
        assert supply._take() in ("a", "b")
    supply._lease = term(lambda: 0.0, 1_000_000, until=1.0)  # no such clock: it is asked after all
    assert next(supply) == 0


def test_no_item_is_taken_after_the_end_of_a_lease_however_near():
    counting, _ = supplies()
    supply = counting(5, 1)
    supply._items = itertools.count()
    clock = partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    # The clock need not be looked at exactly within a tick, but near the end, and after changes.
    for end in (0.0, 0.0005, 0.003, 0.01, 0.05):
        until = clock() + end
        supply._lease = term(clock, time.CLOCK_MONOTONIC, until)
        while True:
            asked = clock()
            if supply._take() is None:
                break
            assert asked < until
        assert clock() >= until
    supply._lease = term(clock, time.CLOCK_MONOTONIC, clock() + 3600)
    for _ in range(1000):
        assert supply._take() is not None
        supply._lease.until, until = clock(), supply._lease.until
        assert supply._take() is None
        supply._lease.until = until


def test_the_thread_that_asked_last_is_known():
    counting, _ = supplies()
    supply = counting(2, 1)
    for asked in (next, counting._take):
        thread = threading.Thread(target=asked, args=(supply,))
        thread.start()
        thread.join(60)
        assert supply._thread == thread.ident
    assert next(supply, None) is None
    assert supply._thread == threading.get_ident()


def test_errors_of_a_supply_come_out_and_end_nothing():
    def broken():
        raise LookupError("clock")

    def fail(item):
        raise LookupError(item)

    counting, async_counting = supplies()
    for supply, ask in ((counting(2, 1), next), (async_counting(2, 1), lambda s: run(first(s)))):
        supply._items = map(fail, "ab")
        for item in "ab":
            with pytest.raises(LookupError, match=item):
                ask(supply)
        supply._lease = term(broken)
        with pytest.raises(LookupError, match="clock"):
            ask(supply)
        supply._lease = None
        assert ask(supply) == 0


async def first(supply):
    return await anext(supply)


def test_an_item_may_be_any_value_and_awaited_by_hand():
    _, async_counting = supplies()
    for item in ((1, 2), (), int, ValueError("value"), StopIteration(5)):
        supply = async_counting(2, 1)
        supply._items = iter([item, item])
        assert run(first(supply)) is item
        by_hand = supply.__anext__().__await__()
        with pytest.raises(StopIteration) as end:
            next(by_hand)
        assert end.value.value is item


def test_an_exchange_of_items_while_one_is_taken_is_safe():
    counting, _ = supplies()
    supply = counting(2, 1)

    def items():
        supply._items = None
        gc.collect()
        yield "taken all the same"

    supply._items = items()
    assert next(supply) == "taken all the same"
    assert next(supply) == 0


def test_a_supply_in_a_circle_is_collected():
    for kind in supplies():
        supply = kind(2, 1)
        supply._items = iter([supply])
        supply._lease = supply
        gone = weakref.ref(supply)
        del supply
        gc.collect()
        assert gone() is None


def everything_once(sets, payloads, counting, async_counting):
    for each in sets:
        message_set = MessageSet(each, on_corrupt="skip")
        list(message_set)
        next(message_set.iterate(deep=False), None)
        core.count_plain(each, 0, len(each))
        core.count_uncompressed(memoryview(each), 0, len(each))
        core.pack_plain(each, 0, 0)
        core.whole_bytes(each)
        core.tally(each, 0, 1000, {})
        for rows in message_set.rows(Message, ("t", 0, 1), 2):
            taken = len(list(rows.items))
            assert rows.reached()[0] == taken
        assert len(list(counting(2, 3))) == 6
        assert len(run(everything(async_counting(2, 3)))) == 6
    encode_message_set(payloads)
    for wrong in ([b"a", 5], ["text"], [bytearray(2)]):
        with contextlib.suppress(TypeError):
            encode_message_set(wrong)


def test_nothing_is_leaked():
    payloads = [b"x" * 300, b"", b"y" * 50]
    plain = encode_message_set(payloads)
    sets = [plain, plain[:-1], plain + encode_message_set(payloads, Codec.GZIP) + plain[1:], b""]
    kinds = supplies()
    watched = (None, Message, payloads[0], plain)
    rounds = 1500
    tracemalloc.start()
    try:
        for _ in range(500):  # fills caches and free lists
            everything_once(sets, payloads, *kinds)
        counts = [sys.getrefcount(each) for each in watched]
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(rounds):
            everything_once(sets, payloads, *kinds)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert grown < 24 * rounds  # less than the smallest object, lost once per round
    grown_counts = [sys.getrefcount(each) - was for each, was in zip(watched, counts, strict=True)]
    assert max(grown_counts) < rounds / 2


def test_payloads_are_packed_with_their_places():
    data = HELLO + WORLD + WORLD[:-1]
    count, position, values, ends, places = core.pack_plain(data, 0, 100)
    assert (count, position, values) == (2, 31, b"helloworld!")
    assert struct.unpack("=3i", ends) == (0, 5, 11)
    assert struct.unpack("=3q", places) == (100, 115, 131)
    assert core.pack_plain(data, 15, 100)[:3] == (1, 31, b"world!")
    nothing = (0, 31, b"", struct.pack("=i", 0), struct.pack("=q", 131))
    assert core.pack_plain(data, 31, 100) == nothing


def test_rows_end_where_they_should_and_own_their_payloads():
    class Row(tuple):
        __slots__ = ()

    data = HELLO + WORLD + WORLD[:-1]
    rows = core.Rows(Row, data, 0, 7, ("t", 1, 2), 9)
    assert rows.reached()[0] == 0
    first = next(rows.items)
    assert (first, type(first)) == ((b"hello", "t", 1, 7, 22, 2), Row)
    assert rows.reached() == (1, *rows.reached()[1:2], 7, 22)
    assert next(rows.items) == (b"world!", "t", 1, 22, 38, 2)
    assert rows.reached() == (2, 22, 22, 38)
    assert list(rows.items) == []
    assert (rows.position, rows.is_cut, rows.reached()) == (31, False, (2, 22, 22, 38))
    rows = core.Rows(Row, data, 15, 7, ("t", 1, 2), 9)
    assert list(rows.items) == [(b"world!", "t", 1, 22, 38, 2)]
    assert list(core.Rows(Row, data, 31, 7, ("t", 1, 2), 9).items) == []
    rows = core.Rows(Row, data, 0, 2**80, ("t", 1, 2), 1)
    assert next(rows.items)[3:5] == (2**80, 2**80 + 15)
    assert rows.reached()[2:] == (2**80, 2**80 + 15)


@pytest.mark.parametrize(
    ("data", "whole"),
    [
        (b"", 0),
        (HELLO[:3], 0),
        (HELLO[:-1], 0),
        (HELLO, 15),
        (HELLO + WORLD + HELLO[:9], 31),
        (HELLO + b"\xff" * 8, 15),
        (bytes(10), 8),
    ],
)
def test_whole_messages_are_found_by_their_lengths(data, whole):
    assert core.whole_bytes(data) == whole


def test_a_buffer_is_let_go_of():
    data = bytearray(HELLO + WORLD)
    assert core.count_plain(data, 0, len(data)) == 2
    assert core.count_uncompressed(data, 0, len(data)) == (2, len(data))
    data += b"more"  # a BufferError while somebody holds it


@pytest.mark.parametrize(("start", "end"), [(2, 1), (0, -1), (-1, -1), (15, 14)])
def test_nothing_is_found_in_a_range_that_is_none(start, end):
    assert core.count_plain(HELLO, start, end) == 0


@pytest.mark.parametrize(
    "size", [0, 1, 63, 64, 65, 79, 80, 81, 200, 65_535, 65_536, 65_537, 300_000]
)
def test_every_length_has_its_crc(size):
    payload = bytes(n * 7 % 251 for n in range(size))
    encoded = encode_message_set([payload])
    assert encoded[:10] + payload == Message.of(payload).encode() == encoded
    assert core.count_plain(encoded, 0, len(encoded)) == 1
    assert list(MessageSet(encoded)) == [(Message.of(payload), len(encoded))]


def plain(data, position=0, most=1000):
    return core.plain_produce(BatchHeader, data, position, most)


@pytest.mark.parametrize("batch", [PLAIN, GZIP])
@pytest.mark.parametrize("version", range(3, 14))
def test_a_plain_produce_of_kafka_is_found_at_once(version, batch):
    topic = UUID(int=5) if version == 13 else "a topic"
    request = plain_request(version, batch, topic=topic, partition=3, acks=-1, timeout_ms=9)
    end, *about, partition, place, start, header = plain(b"before" + request + b"after", 6)
    name = topic.bytes if version == 13 else topic
    assert (end, *about, partition) == (6 + len(request), version, 7, -1, 9, name, 3)
    assert request[4 + start :].startswith(batch)
    assert place in request
    assert place.endswith(b"\0\0\0\3")
    assert (type(header), header) == (BatchHeader, decode_header(batch))


ZSTD = resealed(GZIP, attributes=RecordCodec.ZSTD)
NEARLY = {
    "of another type": b"\0\0\0\x10\0\1" + plain_request(9, PLAIN)[6:],
    "longer than it says": b"\0\0\0\x09" + plain_request(9, PLAIN)[4:],
    "of an older version": plain_request(2, PLAIN),
    "of a later version": plain_request(14, PLAIN),
    "of a transaction": plain_request(9, PLAIN, transactional_id=""),
    "of unknown acks": plain_request(9, PLAIN, acks=2),
    "with a broken name": plain_request(9, PLAIN).replace(b"\4new", b"\4n\xffw"),
    "with another spelling": plain_request(9, PLAIN).replace(b"\4new", b"\x84\0new"),
    "with a tag": plain_request(9, PLAIN)[:-1] + b"\1\5\0",
    "of two partitions": plain_request(3, PLAIN).replace(b"new\0\0\0\1", b"new\0\0\0\2"),
    "without a batch": plain_request(9, b""),
    "of two batches": plain_request(9, PLAIN + PLAIN),
    "with a CRC that is wrong": plain_request(9, PLAIN[:-1] + b"\1"),
    "with bytes after its messages": plain_request(9, resealed(PLAIN + b"\0", size_bytes=91)),
    "with another largest time": plain_request(9, resealed(PLAIN, max_timestamp_ms=5)),
    "with the broker's time": plain_request(9, resealed(PLAIN, attributes=8)),
    "transactional": plain_request(9, resealed(PLAIN, attributes=16)),
    "a marker": plain_request(9, resealed(PLAIN, attributes=32)),
    "with a codec of later": plain_request(6, ZSTD),
    "with an unknown codec": plain_request(9, resealed(PLAIN, attributes=5)),
    "at an offset": plain_request(9, resealed(PLAIN, base_offset=1)),
    "with gaps": plain_request(9, resealed(GZIP, last_offset_delta=3)),
    "of no sequence": plain_request(9, resealed(GZIP, base_sequence=-1)),
}


@pytest.mark.parametrize("request_bytes", NEARLY.values(), ids=NEARLY)
def test_what_is_not_plain_is_left_to_the_general_way(request_bytes):
    assert plain(request_bytes) is None
    assert plain(request_bytes + plain_request(9, PLAIN)) is None


def test_what_is_plain_is_whole_and_within_the_limit():
    request = plain_request(7, ZSTD)
    size = len(request) - 4
    assert plain(request, most=size) is not None
    assert plain(request, most=size - 1) is None
    assert plain(request, -1) is plain(request, len(request)) is plain(request, 1) is None
    assert all(plain(request[:end]) is None for end in range(len(request)))


def test_the_type_of_a_header_is_checked():
    for wrong in (list, 5):
        with pytest.raises(TypeError):
            core.plain_produce(wrong, plain_request(9, PLAIN), 0, 1000)
