"""Requests of Kafka's protocol that are almost right: structure first, then damage.

A request is made as its schema has it, but each number, name and count may be one that hurts;
batches lie about themselves or expand to more than they should, and in the end bits may flip.
"""

import random
import struct
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from functools import cache
from io import BytesIO
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from kafka_bench import messages
from kio.serial import entity_writer
from kio.static.primitive import Records

from hermes.kafka.apis import APIS, Api
from hermes.protocol.record_batches import HEADER_BYTES, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch

__all__ = ["KafkaFrames"]

_NUMBERS = [-1, 0, 1, 2, 3, -2, 127, 255, 32767, -32768, 65536, 2**31 - 1, -(2**31), 100_001]
_LONG_NUMBERS = [*_NUMBERS, 2**63 - 1, -(2**63), 2**53, 2**32, 2**31]
_NAMES = ["", ".", "..", "../x", "a b", "%s{topic}\n", "x" * 249, "x" * 250, "x" * 30_000, "ü"]
_NAMES += ["\x1b]0;x\x07", "__consumer_offsets", ".hermes_lock", "range", "consumer", "\0"]
_OFTEN = ("Produce", "Fetch", "Produce")
_BOMB_BYTES = 30_000_000
_INT32 = struct.Struct(">i")


class KafkaFrames:
    """Makes frames without end.

    Args:
        chance: decides everything.
        topics: how many topics and groups the well-formed names are of.
    """

    def __init__(self, chance: random.Random, topics: int = 20) -> None:
        self._chance = chance
        self._topics = topics
        self._apis = list(APIS.values())
        self._often = [each for each in self._apis if each.name in _OFTEN]

    def opening(self) -> bytes:
        """What a connection starts with: nothing."""
        return b""

    def frame(self) -> bytes:
        """One frame with its size, right or not."""
        api = self._chance.choice(self._often if self._likely(0.4) else self._apis)
        data = bytearray(self._request(api))
        if self._likely(0.04):  # another request, another version
            at = self._chance.choice((0, 2))
            data[at : at + 2] = struct.pack(">h", self._chance.choice([*range(100), -1, 32767]))
        if self._likely(0.06):
            data[self._chance.randrange(len(data))] ^= 1 << self._chance.randrange(8)
        if self._likely(0.03):
            del data[self._chance.randrange(len(data)) :]
        if self._likely(0.02):
            data += self._chance.randbytes(self._chance.randrange(50))
        size = self._chance.choice(_NUMBERS) if self._likely(0.02) else len(data)
        return _INT32.pack(size) + bytes(data)

    def _request(self, api: Api) -> bytes:
        version = self._chance.randint(max(api.lowest, _lowest(api.name)), api.highest)
        kind = getattr(messages(api.name, version, "request"), f"{api.name}Request")
        header = kind.__header_schema__
        values = {
            "request_api_key": api.key,
            "request_api_version": version,
            "correlation_id": self._number(_NUMBERS, -(2**31), 2**31 - 1),
            "client_id": self._name() if self._likely(0.9) else None,
        }
        buffer = BytesIO()
        known = {each.name for each in fields(header)}
        entity_writer(header)(buffer, header(**{k: v for k, v in values.items() if k in known}))
        entity_writer(kind)(buffer, self._part(kind))
        return buffer.getvalue()

    def _part(self, kind: Any) -> Any:
        hints = _hints(kind)
        return kind(**{each.name: self._value(hints[each.name]) for each in fields(kind)})

    def _value(self, hint: Any) -> Any:
        kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if NoneType in kinds and self._likely(0.15):
            return None
        kind = next(each for each in kinds if each is not NoneType)
        if get_origin(kind) is tuple:
            count = self._chance.choice((0, 1, 1, 1, 2, 3, 3, 50 if self._likely(0.1) else 1))
            return tuple(self._value(get_args(kind)[0]) for _ in range(count))
        if is_dataclass(kind):
            return self._part(kind)
        if kind is UUID:
            return UUID(int=self._chance.choice((1, 7, self._chance.getrandbits(128))))
        if issubclass(kind, Enum):
            return self._chance.choice(list(kind))
        if issubclass(kind, bool):
            return self._likely(0.5)
        if kind is Records:
            return self._records()
        if issubclass(kind, bytes):
            return self._chance.randbytes(self._chance.choice((0, 1, 10, 1000)))
        if issubclass(kind, str):
            return self._name()
        if issubclass(kind, timedelta):
            # A broker notices that a peer has gone when its request has waited long enough.
            waits = (0, 1, 10, -1, -(2**31)) if self._likely(0.98) else (100, 6000)
            return timedelta(milliseconds=self._chance.choice(waits))
        if issubclass(kind, datetime):
            return datetime.fromtimestamp(self._chance.randrange(2**31), UTC)
        if issubclass(kind, float):
            return self._chance.random()
        low, high = getattr(kind, "__low__", -(2**31)), getattr(kind, "__high__", 2**31 - 1)
        return self._number(_LONG_NUMBERS, low, high)

    def _records(self) -> bytes:
        """A batch that may lie, or several, or none at all."""
        if self._likely(0.03):
            return self._chance.randbytes(self._chance.choice((0, 1, 60, 61, 62, 500)))
        return b"".join(self._batch() for _ in range(2 if self._likely(0.05) else 1))

    def _batch(self) -> bytes:
        codec = self._chance.choice(list(RecordCodec))
        value = bytes(_BOMB_BYTES) if codec and self._likely(0.002) else self._chance.randbytes(20)
        records = [
            Record(number, self._chance.choice((0, -1, 1_700_000_000_000)), None, value)
            for number in range(self._chance.choice((1, 1, 1, 2, 10)))
        ]
        producer = {}
        if self._likely(0.2):
            numbers = ("producer_id", "producer_epoch", "base_sequence")
            producer = {each: self._chance.choice((0, 1, 2, 5, -1)) for each in numbers}
        batch = encode_batch(records, codec, **producer)
        if self._likely(0.6):
            return batch
        header, body = decode_header(batch), batch[HEADER_BYTES:]
        lie = self._chance.choice(header._fields)
        low, high = {
            "attributes": (-(2**15), 2**15 - 1),
            "producer_epoch": (-(2**15), 2**15 - 1),
        }.get(lie, (-(2**31), 2**31 - 1))
        number = self._number(_NUMBERS, low, high)
        changed = header._replace(**{lie: abs(number) if lie == "crc" else number})
        if lie == "size_bytes":
            changed = changed._replace(size_bytes=max(number, 12 - 2**31))
        lying = bytearray(with_crc(changed, body) + body)
        if self._likely(0.1):
            lying[16] = self._chance.choice((0, 1, 3, 255))  # magic
        return bytes(lying)

    def _number(self, numbers: list[int], low: int, high: int) -> int:
        if self._likely(0.7):
            return self._chance.choice((0, 1, -1 if low < 0 else 0))
        return max(low, min(high, self._chance.choice(numbers)))

    def _name(self) -> str:
        if self._likely(0.9):
            return f"t{self._chance.randrange(self._topics)}"
        return self._chance.choice(_NAMES)

    def _likely(self, share: float) -> bool:
        return self._chance.random() < share


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


@cache
def _lowest(name: str) -> int:
    """The first version that kio knows."""
    for version in range(20):
        try:
            messages(name, version, "request")
        except ImportError:
            continue
        return version
    raise ValueError(name)
