"""Scenes of `conformance` about transactions: each request in each version, and what is refused."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from conformance_steps import Scene, batch, list_offsets, lying, produce
from kafka_raw import parts

from hermes.protocol.record_batches import TRANSACTIONAL_BIT, decode_header
from hermes.protocol.records import iterate_records

__all__ = ["TRANSACTION_DIFFERENCES", "TRANSACTION_SCENES", "await_coordinator"]

#: As in `conformance`.
TRANSACTION_DIFFERENCES = {
    ("transacted_by_epochs", "described"): "no topic keeps the offsets of groups",
    ("numbered_again", "a number of what was aborted"): "librdkafka gives it to another message",
}

_COMMITTED = 1


class _Producer(NamedTuple):
    name: str
    id: int
    epoch: int

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name,
            "producer_id": self.id,
            "producer_epoch": self.epoch,
        }


def await_coordinator(scene: Scene, name: str) -> None:
    """Wait until a transactional id that nobody has had has its coordinator."""

    def is_there() -> bool:
        (found,) = scene.client.ask(
            "FindCoordinator", 4, key_type=1, coordinator_keys=(name,)
        ).coordinators
        if found.error_code.value:
            return False
        known = scene.client.ask("DescribeTransactions", 0, transactional_ids=(name,))
        return known.transaction_states[0].error_code.name == "transactional_id_not_found"

    scene.wait_until(is_there, "there is no coordinator")


def _first(scene: Scene, label: str, name: str, version: int = 4) -> _Producer:
    await_coordinator(scene, name)
    timeout = parts("InitProducerId", version).timeout(60_000)
    given = {"transactional_id": name, "transaction_timeout": timeout}
    more = {"producer_id": -1, "producer_epoch": -1}
    made = scene.ask(label, "InitProducerId", version, **given, **more)
    return _Producer(name, made.producer_id, made.producer_epoch)


def _settled(scene: Scene, name: str) -> None:
    """Wait until all markers of a transaction are written."""

    def is_complete() -> bool:
        found = scene.client.ask("DescribeTransactions", 0, transactional_ids=(name,))
        return str(found.transaction_states[0].transaction_state).startswith("Complete")

    scene.wait_until(is_complete, f"the transaction of {name} does not end")


def _add(
    scene: Scene, label: str, producer: _Producer, *topics: tuple[str, tuple[int, ...]], v: int = 3
) -> None:
    make = parts("AddPartitionsToTxn", v)
    wanted = tuple(make.AddPartitionsToTxnTopic(name=n, partitions=p) for n, p in topics)
    if v < 4:
        given = {f"v3_and_below_{key}": each for key, each in producer.fields.items()}
        scene.ask(label, "AddPartitionsToTxn", v, v3_and_below_topics=wanted, **given)
        return
    one = make.AddPartitionsToTxnTransaction(**producer.fields, verify_only=True, topics=wanted)
    scene.ask(label, "AddPartitionsToTxn", v, transactions=(one,))


def _send(scene: Scene, label: str, producer: _Producer, first: int, v: int, **more: Any) -> None:
    numbered = {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "base_sequence": first,
    }
    # Of now, as markers are: a Kafka begins a segment for what is a week younger.
    now_ms = int(time.time() * 1000)
    records = batch(b"one", b"two", time_ms=now_ms, **numbered)
    records = lying(records, attributes=TRANSACTIONAL_BIT)
    given: dict[str, Any] = {"transactional_id": producer.name, **more}
    if v >= 13:
        given["topic"] = scene.topic_id()
    produce(scene, label, records, version=v, **given)


def _read(scene: Scene, label: str, level: int) -> None:
    """Fetch, and note what is compared whenever it was written."""
    make = parts("Fetch", 12)
    wanted = make.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = (make.FetchTopic(topic=scene.topic, partitions=(wanted,)),)
    given = {"max_wait": make.timeout(0), "min_bytes": 0, "isolation_level": level}
    answer = scene.client.ask("Fetch", 12, topics=topics, forgotten_topics_data=(), **given)
    (found,) = answer.responses[0].partitions
    noted: list[Any] = [found.high_watermark, found.last_stable_offset]
    noted.append(sorted(each.first_offset for each in found.aborted_transactions or ()))
    data, position = found.records or b"", 0
    while position < len(data):
        header = decode_header(data, position)
        for each in iterate_records(data, header, position):
            shown = each.key if header.is_control else each.value
            noted.append([header.attributes, each.offset, (shown or b"").hex()])
        position += header.size_bytes
    scene.answers[label] = noted


def _commit_offset(scene: Scene, label: str, producer: _Producer, offset: int, v: int) -> None:
    make = parts("TxnOffsetCommit", v)
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
    if v >= 2:
        partition["committed_leader_epoch"] = -1
    topic = make.TxnOffsetCommitRequestTopic(
        name=scene.topic, partitions=(make.TxnOffsetCommitRequestPartition(**partition),)
    )
    member = {"generation_id": -1, "member_id": "", "group_instance_id": None}
    scene.ask(
        label,
        "TxnOffsetCommit",
        v,
        group_id="movers",
        topics=(topic,),
        **producer.fields,
        **(member if v >= 3 else {}),
    )


def _offset(scene: Scene, label: str, *, stable: bool) -> None:
    make = parts("OffsetFetch", 7)
    topic = make.OffsetFetchRequestTopic(name=scene.topic, partition_indexes=(0,))
    asked = {"group_id": "movers", "topics": (topic,), "require_stable": stable}
    scene.ask(label, "OffsetFetch", 7, **asked)


def _end(scene: Scene, label: str, producer: _Producer, v: int, *, commits: bool) -> _Producer:
    made = scene.ask(label, "EndTxn", v, committed=commits, **producer.fields)
    if v < 5 or made.error_code.value:
        return producer
    return _Producer(producer.name, made.producer_id, made.producer_epoch)


def transacted(scene: Scene) -> None:
    """A producer that says which partitions are in its transactions: before KIP-890."""
    producer = _first(scene, "a producer", "mover")
    both = (scene.topic, (0, 1))
    for v in range(4):
        _add(scene, f"added, v{v}", producer, both, v=v)
    _add(scene, "an unknown topic beside it", producer, both, ("nobody-has-this", (0,)))
    for v in (4, 5):
        _add(scene, f"looked for, v{v}", producer, (scene.topic, (0, 1, 7)), v=v)
    _send(scene, "sent", producer, 0, 11)
    _send(scene, "sent again", producer, 0, 11)
    _send(scene, "sent in another version", producer, 2, 9)
    _read(scene, "open, read", 0)
    _read(scene, "open, read committed", _COMMITTED)
    list_offsets(scene, "the end", -1)
    list_offsets_committed(scene, "the end of what is committed")
    for v in range(5):
        scene.ask(f"a group, v{v}", "AddOffsetsToTxn", v, group_id="movers", **producer.fields)
    for v in range(5):
        _commit_offset(scene, f"its offset, v{v}", producer, 10 + v, v)
    _offset(scene, "not committed", stable=False)
    _offset(scene, "not stable", stable=True)
    asked = {"state_filters": (), "producer_id_filters": (producer.id,), "duration_filter": -1}
    pattern = {"transactional_id_pattern": "mov.*"}
    for v in range(3):
        scene.ask(f"listed, v{v}", "ListTransactions", v, **asked, **pattern)
    _end(scene, "committed", producer, 4, commits=True)
    _settled(scene, producer.name)
    _offset(scene, "committed with it", stable=True)
    _read(scene, "committed, read", _COMMITTED)
    scene.ask("described", "DescribeTransactions", 0, transactional_ids=("mover",))
    for v in range(5):
        _end(scene, f"committed again, v{v}", producer, v, commits=True)
    _end(scene, "aborted after it", producer, 4, commits=False)
    _send(scene, "sent outside", producer, 4, 11)
    _send(scene, "sent outside, an old version", producer, 4, 9)
    _add(scene, "a second one", producer, both)
    _send(scene, "sent in it", producer, 4, 11)
    _commit_of_second(scene, producer)
    _end(scene, "aborted", producer, 3, commits=False)
    _settled(scene, producer.name)
    _offset(scene, "as before", stable=True)
    _read(scene, "without what was aborted", _COMMITTED)
    _read(scene, "all of it", 0)
    _strangers(scene, producer)


def _commit_of_second(scene: Scene, producer: _Producer) -> None:
    scene.ask("its group", "AddOffsetsToTxn", 3, group_id="movers", **producer.fields)
    _commit_offset(scene, "an offset of it", producer, 99, 3)


def list_offsets_committed(scene: Scene, label: str) -> None:
    make = parts("ListOffsets", 8)
    wanted = make.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topics = (make.ListOffsetsTopic(name=scene.topic, partitions=(wanted,)),)
    more = {"replica_id": -1, "isolation_level": _COMMITTED}
    scene.ask(label, "ListOffsets", 8, topics=topics, **more)


def _strangers(scene: Scene, producer: _Producer) -> None:
    """Producers that aren't the one that there is."""
    both = (scene.topic, (0, 1))
    for label, other in (
        ("of nobody", _Producer("nobody", producer.id, 0)),
        ("of another id", _Producer("mover", producer.id + 7, producer.epoch)),
        ("of an older epoch", _Producer("mover", producer.id, -1)),
        ("of a newer epoch", _Producer("mover", producer.id, producer.epoch + 1)),
        ("of no name", _Producer("", producer.id, 0)),
    ):
        for v in (1, 3):
            _add(scene, f"partitions {label}, v{v}", other, both, v=v)
            scene.ask(f"groups {label}, v{v}", "AddOffsetsToTxn", v, group_id="g", **other.fields)
            _end(scene, f"an end {label}, v{v}", other, v, commits=True)
        _add(scene, f"looked for {label}", other, both, v=5)
        _end(scene, f"an end {label}, v5", other, 5, commits=True)
    ids = {"producer_id": producer.id, "producer_epoch": producer.epoch}
    for label, given in (
        ("goes on", ids),
        ("goes on, again", ids),
        ("goes on as another", {**ids, "producer_id": producer.id + 7}),
        ("goes on too late", {**ids, "producer_epoch": producer.epoch + 9}),
    ):
        for v in (3, 4) if "late" in label else (5,):
            timeout = parts("InitProducerId", v).timeout(60_000)
            more = {"transactional_id": "mover", "transaction_timeout": timeout, **given}
            scene.ask(f"{label}, v{v}", "InitProducerId", v, **more)
    for label, ms in (("no time", 0), ("too much time", 3_600_000)):
        timeout = parts("InitProducerId", 4).timeout(ms)
        nothing = {"producer_id": -1, "producer_epoch": -1}
        given = {"transactional_id": "mover", "transaction_timeout": timeout, **nothing}
        scene.ask(label, "InitProducerId", 4, **given)


def transacted_by_epochs(scene: Scene) -> None:
    """A producer whose epoch grows with each end, and whose partitions come by themselves."""
    producer = _first(scene, "a producer", "grower", 5)
    _send(scene, "sent", producer, 0, 12)
    _send(scene, "sent by id", producer, 2, 13)
    _commit_offset(scene, "an offset", producer, 7, 5)
    scene.ask("described", "DescribeTransactions", 0, transactional_ids=("grower",))
    second = _end(scene, "committed", producer, 5, commits=True)
    _settled(scene, producer.name)
    _end(scene, "committed again", producer, 5, commits=True)
    _end(scene, "aborted instead", producer, 5, commits=False)
    _end(scene, "nothing to commit", second, 5, commits=True)
    _send(scene, "sent with the old epoch", producer, 4, 12)
    _send(scene, "sent with the new one", second, 0, 12)
    third = _end(scene, "aborted", second, 5, commits=False)
    _settled(scene, producer.name)
    _end(scene, "aborted again", second, 5, commits=False)
    fourth = _end(scene, "nothing to abort", third, 5, commits=False)
    _settled(scene, producer.name)
    _send(scene, "not the first number", fourth, 5, 12)
    _read(scene, "read", _COMMITTED)
    _read(scene, "all of it", 0)
    for v in (1, 2):
        make = parts("WriteTxnMarkers", v)
        topics = (
            make.WritableTxnMarkerTopic(name="nobody-has-this", partition_indexes=(0,)),
            make.WritableTxnMarkerTopic(name=scene.topic, partition_indexes=(0,)),
        )
        more = {"transaction_version": 2} if v >= 2 else {}
        marker = make.WritableTxnMarker(
            producer_id=fourth.id,
            producer_epoch=0,
            transaction_result=True,
            topics=topics,
            coordinator_epoch=0,
            **more,
        )
        scene.ask(f"a marker of an older epoch, v{v}", "WriteTxnMarkers", v, markers=(marker,))


def numbered_again(scene: Scene) -> None:
    """A producer that has aborted what it had sent gives its numbers to other messages."""
    producer = _first(scene, "a producer", "renumbering")
    _add(scene, "added", producer, (scene.topic, (0,)))
    _send(scene, "sent", producer, 0, 11)
    _end(scene, "aborted", producer, 3, commits=False)
    _settled(scene, producer.name)
    _add(scene, "added again", producer, (scene.topic, (0,)))
    _send(scene, "a number of what was aborted", producer, 0, 11)


TRANSACTION_SCENES: dict[str, Callable[[Scene], None]] = {
    each.__name__: each for each in (transacted, transacted_by_epochs, numbered_again)
}
