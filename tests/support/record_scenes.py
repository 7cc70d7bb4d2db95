"""Scenes of `conformance` about what batches hold: messages, keys, timestamps, sizes."""

import time
from collections.abc import Callable
from typing import Any

from batches import holding
from conformance import NOW_MS, Scene, batch, lying, parts, produce

from hermes.protocol.record_batches import LOG_APPEND_TIME_BIT, decode_header
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records

__all__ = ["DIFFERENCES", "SCENES"]

#: As in `conformance`.
DIFFERENCES = {
    ("held", "offsets with a gap"): "readers would skip or repeat messages",
    ("held", "the same offset twice"): "readers would skip or repeat messages",
}

# Messages as bytes: size | attributes | time | offset | key | value | headers
_HELD = {
    "one": "10 00 00 00 026b 0276 00",
    "bytes that are left": "10 00 00 00 026b 0276 00 7878",
    "a size that is too large": "12 00 00 00 026b 0276 00",
    "a size that is too small": "0e 00 00 00 026b 0276 00",
    "a negative size": "03 00 00 00 026b 0276 00",
    "a key beyond the end": "10 00 00 00 646b 0276 00",
    "a negative count of headers": "10 00 00 00 026b 0276 01",
    "too many headers": "10 00 00 00 026b 0276 0a",
    "a header": "18 00 00 00 026b 0276 02 0268 0278",
    "a header without a name": "16 00 00 00 026b 0276 02 01 0278",
    "a header whose name is no text": "18 00 00 00 026b 0276 02 02ff 0278",
    "a header without a value": "16 00 00 00 026b 0276 02 0268 01",
    "a header of a size below -1": "16 00 00 00 026b 0276 02 0268 03",
    "no key": "0e 00 00 00 01 0276 00",
    "no key, of a size below -1": "0e 00 00 00 03 0276 00",
    "no value": "0e 00 00 00 026b 01 00",
    "a long number": "12 00 00 00 82006b 0276 00",
    "a number with bits too many": "18 00 00 00 82808080706b 0276 00",
    "a number that is too long": "1a 00 00 00 8280808080006b 0276 00",
    "attributes": "10 07 00 00 026b 0276 00",
    "a later time": "10 00 12 00 026b 0276 00",
}

# All batches belong into one segment, or a fetch would have only some of them.
_TIMES = {"base_timestamp_ms": NOW_MS, "max_timestamp_ms": NOW_MS}


def held(scene: Scene) -> None:
    """What the messages of a batch may be that isn't compressed."""
    for label, body in _HELD.items():
        produce(scene, label, holding(bytes.fromhex(body), **_TIMES))
    one = bytes.fromhex(_HELD["one"])
    produce(scene, "fewer than are said", holding(one, 2, **_TIMES))
    good = batch(b"a", b"b")
    for said in (NOW_MS, NOW_MS + 5, -1):
        produce(scene, f"the largest time, {said}", lying(good, max_timestamp_ms=said))
    later = lying(good, attributes=LOG_APPEND_TIME_BIT, max_timestamp_ms=NOW_MS + 7)
    produce(scene, "a time said to be the broker's", later)
    produce(scene, "none said to be the broker's", lying(later, max_timestamp_ms=-1))
    produce(scene, "attributes without a meaning", lying(good, attributes=0x7F00))
    produce(scene, "the same, and a wrong time", lying(later, attributes=0x7F00))
    _note_stored(scene, "what was stored")
    gap = one + bytes.fromhex("10 00 00 04 026b 0276 00")
    produce(scene, "offsets with a gap", holding(gap, 2, **_TIMES), partition=1)
    produce(scene, "the same offset twice", holding(one + one, 2, **_TIMES), partition=1)


def keyed(scene: Scene) -> None:
    """What a compacted topic takes."""
    _create(scene, "compacted", **{"cleanup.policy": "compact"})
    for codec in (RecordCodec.NONE, RecordCodec.GZIP):

        def keys(label: str, *keys: bytes | None, codec: RecordCodec = codec, **more: int) -> None:
            records = [Record(n, NOW_MS, each, b"v") for n, each in enumerate(keys)]
            produce(scene, f"{label}, {codec.name}", encode_batch(records, codec), **more)

        keys("keys", b"k", b"")
        keys("no key", None)
        keys("no key, v8", None, version=8)
        keys("no key, v7", None, version=7)
        keys("some without", b"k", None, b"k", None, None, None, b"k")
        damaged = bytes.fromhex("0e 00 00 00 01 0276 00") + b"xx"
        produce(
            scene, f"no key, and damaged, {codec.name}", holding(damaged, codec=codec, **_TIMES)
        )
    _note_stored(scene, "what was stored")


def timed(scene: Scene) -> None:
    """Timestamps of the broker's."""
    _create(scene, "timed", **{"message.timestamp.type": "LogAppendTime"})
    for codec in (RecordCodec.NONE, RecordCodec.GZIP):

        def send(label: str, data: bytes, codec: RecordCodec = codec, **more: int) -> None:
            answer = produce(scene, f"{label}, {codec.name}", data, **more)
            told = answer.responses[0].partition_responses[0].log_append_time
            scene.answers[f"{label}, {codec.name}: has a time"] = told is not None

        good = batch(b"a", b"b", codec=codec)
        send("two", good)
        send("two, v3", good, version=3)
        send("two, without waiting for the disk", good, acks=1)
        send("times in the future", batch(b"a", codec=codec, time_ms=4_000_000_000_000))
        send("times said to be the broker's", lying(good, attributes=codec | LOG_APPEND_TIME_BIT))
        send("no times", batch(b"a", codec=codec, time_ms=-1))
        send("attributes", lying(good, attributes=codec | 0x7F00))
        numbers = {"producer_id": 5000 + codec, "producer_epoch": 0, "base_sequence": 0}
        send("numbered", batch(b"a", codec=codec, **numbers))
        send("numbered again", batch(b"a", codec=codec, **numbers))
        _pass_a_millisecond()  # else the one before is as late, and the first of the largest
        send("the last", good)
        _note_stored(scene, f"stored, {codec.name}", has_append_times=True)
        make = parts("ListOffsets", 8)
        for label, time_ms in (("latest", -1), ("largest", -3), ("of old", 1), ("of now", NOW_MS)):
            wanted = make.ListOffsetsPartition(
                partition_index=0, timestamp=time_ms, current_leader_epoch=-1
            )
            topics = (make.ListOffsetsTopic(name=scene.topic, partitions=(wanted,)),)
            found = scene.client.ask(
                "ListOffsets", 8, replica_id=-1, isolation_level=0, topics=topics
            )
            (place,) = found.topics[0].partitions
            scene.answers[f"{label}, {codec.name}"] = place.offset
    _create(scene, "untimed", **{"message.timestamp.type": "CreateTime"})
    _create(scene, "nonsense", **{"message.timestamp.type": "logappendtime"})


def _pass_a_millisecond() -> None:
    """Return once what is appended gets a later time than what has been answered."""
    before = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == before:
        pass


def limited(scene: Scene) -> None:
    """A topic's own limit."""
    values = [bytes(size) for size in (100, 129, 130, 200)]
    assert [len(batch(each)) for each in values] == [171, 200, 201, 271]
    _create(scene, "limited", **{"max.message.bytes": "200"})
    for number, value in enumerate(values):
        produce(scene, f"{number}", batch(value))
        produce(scene, f"{number}, compressed", batch(value, codec=RecordCodec.GZIP))
    for text in ("-1", "1.5", "0", "2147483647", "2147483648"):
        _create(scene, f"limit-{text}", **{"max.message.bytes": text})


SCENES: dict[str, Callable[[Scene], None]] = {
    each.__name__: each for each in (held, keyed, timed, limited)
}


def _create(scene: Scene, name: str, **settings: str) -> None:
    """Create a topic with these settings, which what follows is about; note the error."""
    make = parts("CreateTopics", 7)
    wanted = make.CreatableTopic(
        name=f"{scene.topic.partition('.')[0]}.{name}",
        num_partitions=1,
        replication_factor=1,
        assignments=(),
        configs=tuple(
            make.CreatableTopicConfig(name=each, value=value) for each, value in settings.items()
        ),
    )
    (made,) = scene.client.ask(
        "CreateTopics", 7, topics=(wanted,), timeout=make.timeout(30_000), validate_only=False
    ).topics
    scene.answers[f"created: {name}"] = made.error_code.name
    if not made.error_code.value:
        scene.topic = made.name
        scene.settle(partitions=1)


def _note_stored(scene: Scene, label: str, *, has_append_times: bool = False) -> None:
    """Note the batches of partition 0: their headers, and their messages."""
    make = parts("Fetch", 12)
    wanted = make.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    answer = scene.client.ask(
        "Fetch",
        12,
        max_wait=make.timeout(0),
        min_bytes=0,
        topics=(make.FetchTopic(topic=scene.topic, partitions=(wanted,)),),
        forgotten_topics_data=(),
    )
    data, position = answer.responses[0].partitions[0].records or b"", 0
    noted: list[Any] = []
    times: list[int] = []
    while position < len(data):
        header = decode_header(data, position)
        records = list(iterate_records(data, header, position))
        if has_append_times:
            times += {header.max_timestamp_ms, *(each.timestamp_ms for each in records)}
        else:
            noted.append([header.max_timestamp_ms, *(each.timestamp_ms for each in records)])
        noted.append([header.attributes, header.base_offset, header.last_offset])
        noted += [
            [each.offset, *(None if part is None else part.hex() for part in each[2:4])]
            for each in records
        ]
        position += header.size_bytes
    if has_append_times:  # one for each batch, later than what producers say, and ascending
        noted.append([times == sorted(times), min(times) > NOW_MS, len(times)])
    scene.answers[label] = noted
