"""Requests of Kafka's clients that are almost right, for a `KafkaBench`."""

import random
from collections.abc import Iterator
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from typing import Any, get_args, get_type_hints
from uuid import UUID

from broker_bench import answers, log_lines
from kafka_bench import KafkaBench, encode_request, messages

from hermes.kafka.apis import APIS, Api
from hermes.protocol.records import Record, encode_batch

_NAMES = ("t", "old", "new", "", "a" * 300, "../x", "é")
_NUMBERS = (0, 0, 0, 1, -1, 2, 3, -2, -3, 127, -128, 32767, 2**31 - 1, -(2**31))


def fuzz(bench: KafkaBench, seed: int, count: int) -> list[str]:
    """Send requests that are cut, flipped, or have any values, on connections of their own.

    Returns:
        The lines that were logged.
    """
    chance = random.Random(seed)
    with log_lines() as lines:
        for number, frame in zip(range(count), requests(chance), strict=False):
            connection, transport = bench.connect_kafka()
            connection.dataReceived(frame)
            bench.turns(transport)
            bench.clock.advance(0.5)
            bench.turns(transport)
            answers(transport)
            connection.connectionLost()
            if number % 100 == 0:
                bench.clock.advance(600)
    return list(lines)


def requests(chance: random.Random) -> Iterator[bytes]:
    """Make requests without end."""
    while True:
        api = chance.choice(list(APIS.values()))
        version = chance.randint(api.lowest, api.highest)
        try:
            frame = bytearray(valid_request(chance, api, version))
        except (ValueError, TypeError, OverflowError):
            continue  # no value that can be encoded
        kind = chance.randrange(4)
        if kind == 1:  # cut, and framed again
            frame = frame[: chance.randrange(5, len(frame) + 1)]
        elif kind == 2:
            for _ in range(chance.randint(1, 8)):
                frame[chance.randrange(8, len(frame))] = chance.randrange(256)
        elif kind == 3:  # a length or a count that is much too large
            at = chance.randrange(8, len(frame))
            frame[at : at + 4] = chance.choice(
                (b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x80" * 4)
            )
        frame[:4] = (len(frame) - 4).to_bytes(4)
        yield bytes(frame)


def valid_request(chance: random.Random, api: Api, version: int) -> bytes:
    """A request with any values that its schema has room for."""
    kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
    return encode_request(api.name, version, **_values(chance, kind, version))


def _values(chance: random.Random, kind: Any, version: int) -> dict[str, Any]:
    hints = get_type_hints(kind)
    values = {}
    for each in fields(kind):
        if each.default is not MISSING and chance.random() < 0.4:
            continue
        values[each.name] = _value(chance, each, hints[each.name], version)
    return values


def _value(chance: random.Random, field: Any, hint: Any, version: int) -> Any:
    wire = field.metadata.get("kafka_type")
    options = get_args(hint)
    if type(None) in options:
        if chance.random() < 0.3:
            return None
        hint = next(each for each in options if each is not type(None))
    if getattr(hint, "__origin__", None) is tuple:
        inner = get_args(hint)[0]
        count = chance.choice((0, 1, 1, 2, 5))
        return tuple(_one(chance, wire, inner, version) for _ in range(count))
    return _one(chance, wire, hint, version)


def _one(chance: random.Random, wire: str | None, hint: Any, version: int) -> Any:
    if wire is None:
        return hint(**_values(chance, hint, version))
    if wire == "string":
        return chance.choice(_NAMES)
    if wire == "records":
        return chance.choice((b"", _batch(chance), _batch(chance), chance.randbytes(80)))
    if wire == "bytes":
        return chance.randbytes(chance.randrange(20))
    if wire == "bool":
        return chance.random() < 0.5
    if wire == "uuid":
        return UUID(bytes=chance.randbytes(16))
    if wire.startswith("timedelta"):
        return timedelta(milliseconds=chance.choice((0, 1, 100, -1, 2**31 - 1)))
    if wire.startswith("datetime"):
        return datetime.fromtimestamp(chance.choice((0, 1, 10**9)), UTC)
    if wire == "float64":
        return chance.random()
    if wire == "error_code":
        return _NoError()
    bits = int(wire.lstrip("uint"))
    number = chance.choice(_NUMBERS)
    low, high = (
        (0, 2**bits - 1) if wire.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )
    return min(max(number, low), high)


class _NoError:
    value = 0


def _batch(chance: random.Random) -> bytes:
    records = [
        Record(n, 5, chance.choice((None, b"k")), chance.choice((None, b"v", b"v" * 100)))
        for n in range(chance.randint(1, 3))
    ]
    producer_id = chance.choice((-1, -1, 0, 5))
    batch = bytearray(
        encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=chance.choice((0, 1, -1)),
        )
    )
    if chance.random() < 0.3:
        batch[chance.randrange(len(batch))] ^= 1 << chance.randrange(8)
    return bytes(batch)
