"""A member of a group as a process of its own, to be killed: prints what it has seen and committed.

Arguments: the bootstrap server, the group, the topic, the assignor, an instance id or `-`.

    seen PARTITION OFFSET VALUE     a message that was delivered
    done PARTITION OFFSET           committed up to this offset, and answered
"""

import signal
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition


def main() -> None:
    """Read until SIGTERM."""
    servers, group, topic, assignor, instance_id = sys.argv[1:]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
            **({} if instance_id == "-" else {"group.instance.id": instance_id}),
        }
    )
    ends: dict[int, int] = {}

    def forget(_: Consumer, partitions: list[TopicPartition]) -> None:
        # Whoever gets them now reads again from what is committed.
        for each in partitions:
            ends.pop(each.partition, None)

    consumer.subscribe([topic], on_revoke=forget, on_lost=forget)
    while not stopping:
        messages = [each for each in consumer.consume(20, 0.1) if not each.error()]
        for each in messages:
            value = each.value().decode()
            sys.stdout.write(f"seen {each.partition()} {each.offset()} {value}\n")
            ends[each.partition()] = each.offset() + 1
        sys.stdout.flush()
        if not ends:
            continue
        places = [TopicPartition(topic, number, end) for number, end in ends.items()]
        try:
            committed = consumer.commit(offsets=places, asynchronous=False)
        except KafkaException:
            # The group rebalances, or the broker is away. A partition that stays here is not
            # delivered again, so its offset stays in `ends` to be committed by the next turn.
            continue
        for place in committed:
            if place.error is None:
                sys.stdout.write(f"done {place.partition} {place.offset}\n")
                del ends[place.partition]
        sys.stdout.flush()
    consumer.close()


if __name__ == "__main__":
    main()
