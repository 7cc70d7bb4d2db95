"""A member of a group as a process of its own, to be killed: prints what it has seen and committed.

Arguments: the client, the bootstrap servers, the group, the topic, the assignor, an instance id or
`-`, the session timeout in ms.

    seen PARTITION OFFSET VALUE     a message that was delivered
    done PARTITION OFFSET           committed up to this offset, and answered

Whoever gets a partition reads again from what is committed, so a member forgets what it has not
committed of a partition that it loses. What is refused while the group rebalances, or the broker is
away, is committed by the next turn: a partition that stays here is not delivered again.
"""

import asyncio
import signal
import sys
from collections.abc import Iterable
from typing import Any

_stopping: list[int] = []


def _print_seen(messages: Iterable[tuple[int, int, bytes]], ends: dict[int, int]) -> None:
    for partition, offset, value in messages:
        sys.stdout.write(f"seen {partition} {offset} {value.decode()}\n")
        ends[partition] = offset + 1
    sys.stdout.flush()


def _print_done(done: dict[int, int], ends: dict[int, int]) -> None:
    for partition, offset in done.items():
        sys.stdout.write(f"done {partition} {offset}\n")
        if ends.get(partition) == offset:
            del ends[partition]
    sys.stdout.flush()


def _read_by_confluent(
    servers: str, group: str, topic: str, assignor: str, instance_id: str, session_ms: int
) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    # The name of the protocol stands for one of its assignors: there the coordinator has them, and
    # says how long a session is.
    sharing = {"group.protocol": "consumer"}
    if assignor != "consumer":
        sharing = {
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": str(session_ms),
            "heartbeat.interval.ms": "300",
        }
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **sharing,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **({} if instance_id == "-" else {"group.instance.id": instance_id}),
        }
    )
    ends: dict[int, int] = {}
    came: dict[int, int] = {}

    def forget(_: Consumer, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            ends.pop(each.partition, None)
            came.pop(each.partition, None)

    consumer.subscribe([topic], on_revoke=forget, on_lost=forget)
    while not _stopping:
        messages = [each for each in consumer.consume(20, 0.1) if not each.error()]
        _print_seen(((e.partition(), e.offset(), e.value()) for e in messages), ends)
        # librdkafka 2.16 begins a partition that it has again at auto.offset.reset, whatever others
        # committed meanwhile, if a rebalance came when it first asked where that is: one answer is
        # outdated and starts a timer, which the next answer doesn't stop. Whoever commits what then
        # comes takes the group back.
        new = [TopicPartition(topic, number) for number in ends if number not in came]
        try:
            found = consumer.committed(new, 10) if new else []
        except KafkaException:
            continue
        if any(each.error for each in found):
            continue
        came.update({each.partition: each.offset for each in found})
        for number, end in list(ends.items()):
            if end < came.get(number, 0):
                del ends[number]
            else:
                came[number] = end
        if not ends:
            continue
        places = [TopicPartition(topic, number, end) for number, end in ends.items()]
        try:
            committed = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            continue
        _print_done({e.partition: e.offset for e in committed if e.error is None}, ends)
    consumer.close()


def _settings(
    servers: str, group: str, assignor: Any, instance_id: str, session_ms: int
) -> dict[str, Any]:
    """What both clients in Python call alike."""
    return {
        "bootstrap_servers": servers,
        "group_id": group,
        "group_instance_id": None if instance_id == "-" else instance_id,
        "auto_offset_reset": "earliest",
        "partition_assignment_strategy": [assignor],
        "enable_auto_commit": False,
        "session_timeout_ms": session_ms,
        "heartbeat_interval_ms": 300,
    }


def _read_by_kafka_python(
    servers: str, group: str, topic: str, assignor: str, instance_id: str, session_ms: int
) -> None:
    import kafka
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.errors import KafkaError

    ends: dict[int, int] = {}

    class Forget(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            for each in revoked:
                ends.pop(each.partition, None)

        def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    kind = RangePartitionAssignor if assignor == "range" else CooperativeStickyAssignor
    consumer = kafka.KafkaConsumer(
        **_settings(servers, group, kind, instance_id, session_ms),
        reconnect_backoff_max_ms=200,
    )
    consumer.subscribe([topic], listener=Forget())
    while not _stopping:
        try:
            polled = consumer.poll(300, max_records=20)
        except KafkaError:  # of a coordinator that is away
            continue
        for records in polled.values():
            _print_seen(((e.partition, e.offset, e.value) for e in records), ends)
        if not ends:
            continue
        wanted = dict(ends)
        places = {
            kafka.TopicPartition(topic, number): kafka.OffsetAndMetadata(end, "", -1)
            for number, end in wanted.items()
        }
        try:
            consumer.commit(places)
        except KafkaError:
            continue
        _print_done(wanted, ends)
    consumer.close()


async def _read_by_aiokafka(
    servers: str, group: str, topic: str, assignor: str, instance_id: str, session_ms: int
) -> None:
    import aiokafka
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.errors import KafkaError

    ends: dict[int, int] = {}

    class Forget(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        async def on_partitions_revoked(self, revoked: Any) -> None:
            for each in revoked:
                ends.pop(each.partition, None)

        async def on_partitions_assigned(self, assigned: Any) -> None:
            pass

    kind: Any = RangePartitionAssignor if assignor == "range" else StickyPartitionAssignor
    while True:
        consumer = aiokafka.AIOKafkaConsumer(
            **_settings(servers, group, kind, instance_id, session_ms),
            metadata_max_age_ms=1000,
            max_poll_records=20,
        )
        consumer.subscribe([topic], listener=Forget())
        try:
            await consumer.start()
            break
        except KafkaError:  # the broker is away, and aiokafka doesn't wait for it
            await consumer.stop()
            await asyncio.sleep(0.1)
    while not _stopping:
        for records in (await consumer.getmany(timeout_ms=100)).values():
            _print_seen(((e.partition, e.offset, e.value) for e in records), ends)
        if not ends:
            continue
        wanted = dict(ends)
        try:
            await consumer.commit(
                {aiokafka.TopicPartition(topic, number): end for number, end in wanted.items()}
            )
        except KafkaError:
            continue
        _print_done(wanted, ends)
    await consumer.stop()


def main() -> None:
    """Read until SIGTERM."""
    client, servers, group, topic, assignor, instance_id, session_ms = sys.argv[1:]
    signal.signal(signal.SIGTERM, lambda number, frame: _stopping.append(number))
    given = (servers, group, topic, assignor, instance_id, int(session_ms))
    if client == "aiokafka":
        asyncio.run(_read_by_aiokafka(*given))
    elif client == "kafka-python":
        _read_by_kafka_python(*given)
    else:
        _read_by_confluent(*given)


if __name__ == "__main__":
    main()
