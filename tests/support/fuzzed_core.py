"""Fuzzes a build of the compiled core in a process of its own, which a sanitizer may end.

    python fuzzed_core.py BUILD SEED COUNT

It prints how many sets were as good as they had been before they were damaged; the process fails
where the build and the loops in Python disagree.
"""

import random
import sys
from collections.abc import Iterator
from ctypes import c_ubyte
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import Any
from uuid import UUID

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
)

from hermes.protocol import Codec, Message, core, encode_message, encode_message_set, frame, loops
from hermes.protocol.record_batches import BatchHeader
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, encode_records

LENGTHS = [0, 1, 4, 5, 6, 7, 0x7F, 0x100, 0x7FFFFFFF, 0x80000000, 0xFFFFFFF6, 0xFFFFFFFF]
CODECS = [RecordCodec.NONE, RecordCodec.NONE, RecordCodec.GZIP]
VERSIONS = [3, 6, 8, 9, 12, 13, 13, 14]
FETCH_VERSIONS = [3, 4, 6, 8, 11, 12, 13, 15, 18, 19]
LIMITS = [-1, 0, 1, 100, 1000, (1 << 63) - 1]
STEPS = [
    (loops.StepKind.SIZED, 2),
    (
        loops.StepKind.ARRAY,
        (0, [(loops.StepKind.COMPACT, None), (loops.StepKind.TAGS, {})], 2, True),
    ),
    (loops.StepKind.ARRAY, (4, [(loops.StepKind.FIXED, 3)], 3, False)),
    (loops.StepKind.OPTIONAL, [(loops.StepKind.FIXED, 1)]),
]
POSITIONS = [-(1 << 63), -1, (1 << 63) - 1, (1 << 63) - 10]


def load(path: str) -> ModuleType:
    """Load a build from a file."""
    loader = ExtensionFileLoader("hermes.protocol._core", path)
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def whole_set(rng: random.Random) -> bytes:
    """Messages of all kinds."""
    parts = []
    for _ in range(rng.randrange(6)):
        payloads = [rng.randbytes(rng.choice([0, 1, 9, 40, 64, 200])) for _ in range(3)]
        match rng.randrange(6):
            case 0:
                parts.append(encode_message(payloads[0], magic=0))
            case 1:
                parts.append(encode_message(payloads[0], attributes=rng.randrange(256)))
            case 2:
                parts.append(encode_message_set(payloads, rng.choice([Codec.GZIP, Codec.SNAPPY])))
            case _:
                parts.append(encode_message_set(payloads))
    return b"".join(parts)


def records(rng: random.Random) -> bytes:
    """Records of all kinds."""
    return encode_records(made_records(rng), 0, 0)


def made_records(rng: random.Random) -> list[Record]:
    """The same before they are encoded."""
    made = []
    for number in range(rng.randrange(120)):
        key, value = (rng.choice([None, b"", rng.randbytes(70)]) for _ in range(2))
        headers = tuple(("h", rng.choice([None, b"x"])) for _ in range(rng.choice([0, 0, 3])))
        made.append(Record(number, rng.choice([0, 300, 1 << 61]), key, value, headers))
    return made


def kafka_produce(rng: random.Random) -> bytes:
    """A Produce request of Kafka's, whose batch has a CRC that fits, whatever it holds."""
    batch = encode_batch(made_records(rng) or [Record(0, 0, b"", None)], rng.choice(CODECS))
    if rng.random() < 0.3:
        batch = resealed(batch[:61] + damaged(rng, batch[61:]))
    version = rng.choice(VERSIONS)
    topic = UUID(int=rng.getrandbits(128)) if version >= 13 else "t" * rng.randrange(200)
    return plain_request(version, batch, topic=topic, acks=rng.choice([-1, 0, 1]))


def kafka_fetch(rng: random.Random, version: int) -> bytes:
    """The body of a Fetch request of Kafka's."""
    places = [(1, rng.getrandbits(63), rng.getrandbits(31)) for _ in range(rng.randrange(4))]
    topic = UUID(int=rng.getrandbits(128)) if version >= 13 else "t" * rng.randrange(200)
    return fetch_body(version, *places, topic=topic)


def damaged(rng: random.Random, data: bytes) -> bytes:
    """The same with some bits, lengths or ends that are wrong."""
    changed = bytearray(data)
    for _ in range(rng.randrange(3)):
        place = rng.randrange(len(changed) + 1)
        match rng.randrange(4):
            case 0 if place < len(changed):
                changed[place] ^= 1 << rng.randrange(8)
            case 1:
                changed[place : place + 4] = rng.choice(LENGTHS).to_bytes(4, "big")
            case 2:
                del changed[place : place + rng.randrange(20)]
            case _:
                del changed[place:]
    return bytes(changed)


def produced(rng: random.Random, sets: list[bytes]) -> bytes:
    """Requests as produces are, of a type and a partition without bytes."""
    chosen = [rng.choice(sets) for _ in range(3)]
    return b"".join(frame(frame(each), rng.choice([b"", b"", b"more"])) for each in chosen)


def agree(compiled: ModuleType, what: Any, *arguments: Any) -> Any:
    """Do something with either; both must say the same."""
    results = []
    for module in (loops, compiled):
        with using(module):
            results.append(what(*arguments))
    assert results[0] == results[1], (what, arguments)
    return results[0]


def keys_of(rng: random.Random, data: bytes) -> list[object]:
    """Keys of all types, and text of all kinds."""
    texts = [data.decode(codec, "surrogateescape") for codec in ("ascii", "latin-1", "utf-8")]
    numbers = [rng.getrandbits(bits) - (1 << bits - 1) for bits in (31, 32, 33, 63, 64, 65)]
    return [data, *texts, texts[0].encode("ascii", "ignore").decode(), *numbers, None, 1.5, True]


def where_keys_go(keys: list[object], count: int) -> list[int | None]:
    """The partitions of keys."""
    return core.java_partitions(keys, count)


def attack(compiled: ModuleType, rng: random.Random, data: bytes) -> None:
    """Give arguments that no caller has reason to give."""
    exact = (c_ubyte * len(data)).from_buffer_copy(data)  # bytes have one more behind their end
    compiled.whole_bytes(exact)
    places = [*POSITIONS, len(data), len(data) + 1, rng.randrange(-5, len(data) + 5)]
    base = rng.choice([0, (1 << 63) - 1, 1 << 70])
    for start in places:
        compiled.plain_produce(BatchHeader, exact, start, rng.choice(places))
        compiled.plain_fetch(BatchHeader, exact, start, rng.choice([*VERSIONS, 18, -1]))
        compiled.single_fetch(BatchHeader, exact, start, rng.choice(places))
        compiled.whole_request(exact, start, rng.choice(places))
        assert compiled.whole_message(STEPS, exact, start) == loops.whole_message(
            STEPS, memoryview(data), start
        )
        compiled.whole_batches(exact, start, *(rng.choice(places) for _ in range(4)))
        compiled.pack_plain(exact, start, -1)
        compiled.collect_produces(exact, start, rng.choice(places), b"\0", 1 << 62, [])
        list(compiled.Rows(Message, exact, start, base, ("t", 1, 2), 9))
        for end in places:
            compiled.check_records(
                exact, start, end, rng.choice([0, 5, 1 << 40]), rng.choice(places)
            )
            compiled.tally_records(
                exact, start, end, rng.choice([0, 5, 1 << 40]), 0, rng.choice(places), 0, 9, {}
            )
            compiled.count_plain(exact, start, end)
            compiled.count_uncompressed(exact, start, end)
    compiled.whole_bytes(exact)
    steps = iter([([], rng.choice(places)) for _ in range(5)])
    for _ in compiled.iterate(Message, exact, base, lambda _: next(steps, None)):
        pass


def hand_out(compiled: ModuleType, rng: random.Random) -> None:
    """Exchange and drop what is there while it is taken."""

    class Supply(compiled.Supply):  # type: ignore[name-defined,misc]
        def _refill(self) -> None:
            raise StopIteration

    def items() -> Iterator[bytes]:
        for number in range(3):
            supply._items = rng.choice([None, 5, iter([b"x" * number]), supply._items])
            yield b"y" * number

    supply = Supply()
    supply._items = items()
    for _ in supply:
        supply._lease = rng.choice([None, supply._lease])


def main(path: str, seed: str, count: str) -> None:
    """Fuzz it."""
    rng = random.Random(int(seed))
    compiled = load(path)
    undamaged = 0
    for _ in range(int(count)):
        whole = whole_set(rng)
        data = damaged(rng, whole)
        undamaged += data == whole
        base, deep = rng.choice([0, 5, (1 << 63) - 50]), rng.random() < 0.5
        agree(compiled, what_a_consumer_sees, data, base, rng.choice(["raise", "skip"]), deep)
        agree(compiled, what_a_consumer_sees_in_rows, data, base, "skip", rng.choice([1, 3, 100]))
        agree(compiled, what_a_broker_sees, data, rng.randrange(300))
        start = rng.randrange(len(data) + 1)
        agree(compiled, what_is_counted, data, start, rng.randrange(start, len(data) + 1))
        agree(compiled, what_is_encoded, [whole, data, rng.choice([b"", None, bytearray(3)])])
        requests = damaged(rng, produced(rng, [whole, data, encode_message(b"x" * 70)]))
        agree(compiled, what_is_produced, requests, 0, len(requests), b"", rng.choice([99, 9999]))
        requests = rng.choice([damaged, lambda _, each: each])(rng, kafka_produce(rng))
        agree(compiled, what_is_plain, requests, 0, rng.choice([99, 99_999]))
        attack(compiled, rng, requests)
        agree(compiled, what_batches_are, requests, rng.randrange(99), *rng.choices(LIMITS, k=4))
        version = rng.choice(FETCH_VERSIONS)
        requests = rng.choice([damaged, lambda _, each: each])(rng, kafka_fetch(rng, version))
        agree(compiled, what_is_fetched, requests, 0, version)
        one = damaged(rng, fetch_request(version, requests))
        agree(compiled, what_is_fetched_of_one, one, 0, len(one))
        numbers = [rng.getrandbits(bits) for bits in (31, 1, 63, 63)]
        answer = version, numbers[0], numbers[1], requests[:300], *numbers[2:]
        agree(compiled, what_answers_it, *answer, rng.getrandbits(26), None)
        agree(compiled, what_answers_it, *answer, len(data), data)
        attack(compiled, rng, requests)
        held = records(rng)
        held = rng.choice([held, damaged(rng, held)])
        attack(compiled, rng, rng.choice([data, held[:500]]))
        count, base_ms = rng.randrange(121), rng.choice(POSITIONS)
        agree(compiled, what_records_are, held, 0, len(held), count, base_ms)
        agree(compiled, where_keys_go, keys_of(rng, data), rng.choice([1, 7, 2**31 - 1]))
        hand_out(compiled, rng)
    print(undamaged)  # noqa: T201


if __name__ == "__main__":
    assert core.KIND == "pure", "set HERMES_PURE=1: no other build may be used"
    main(*sys.argv[1:])
