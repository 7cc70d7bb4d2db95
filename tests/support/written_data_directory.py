"""A data directory that an older Hermes has left: what is in it, and how it was made.

`data-directory-e9be819.tar.gz` was written by commit e9be819, installed elsewhere:

    cd tests/vectors
    python ../support/written_data_directory.py OLD/bin data-directory-e9be819.tar.gz

`OLD/bin` has that version's `twistd` and `hermes`; the clients are those of the environment that
runs this.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from hermes_testkit import BrokerProcess

from hermes.client import FetchRequest, MessageSet, SimpleConsumer, SyncProducer
from hermes.protocol import Codec, ProduceRequest

__all__ = [
    "COMMITTED",
    "DELETED_TOPIC",
    "KAFKA_GROUP",
    "NEW_TOPIC",
    "OLD_OFFSETS",
    "OLD_TOPIC",
    "SEGMENT_BYTES",
    "WRITTEN",
    "append_by_hermes",
    "append_by_kafka",
    "committed",
    "ready",
    "settings",
    "values_by_hermes",
    "values_by_kafka",
]

#: The topics: in 0.7's format, in Kafka's, and one that was deleted again.
OLD_TOPIC: Final = "old"
NEW_TOPIC: Final = "new"
DELETED_TOPIC: Final = "deleted"

#: What `hermes topics alter` has set for the topic in 0.7's format: as it was created, 16MiB.
SEGMENT_BYTES: Final = "400"

#: What both topics have in each partition, the last quarter by an idempotent producer in Kafka's.
WRITTEN: Final = {
    partition: [b"partition %d, message %d" % (partition, number) for number in range(48)]
    for partition in range(2)
}
_SET: Final = 6
_IDEMPOTENT_FROM: Final = 36

#: What Kafka's group has committed in the topic of Kafka's format, and what 0.7's has in the other.
KAFKA_GROUP: Final = "of-kafkas-clients"
COMMITTED: Final = {0: 17, 1: 31}
OLD_OFFSETS: Final = (
    f"/consumers/of-0.7/offsets/{OLD_TOPIC}/0-0:64\n/consumers/of-0.7/offsets/{OLD_TOPIC}/0-1:192\n"
)


def settings(directory: Path) -> dict[str, Any]:
    """The broker's: nothing in `directory`/data goes away by age, however old it is."""
    return {
        "log_dir": str(directory / "data"),
        "ready_file": str(directory / "ready.json"),
        "kafka_listen": "tcp:0:interface=127.0.0.1",
        "coordination": "embedded",
        "coordination_listen": "tcp:0:interface=127.0.0.1",
        "group_initial_rebalance_delay": "0s",
        "retention_time": "unlimited",
        "segment_age": "3650d",
        "offsets_retention": "3650d",
    }


def ready(directory: Path) -> tuple[str, str]:
    """Where a broker with these settings is: its `kafka_listen`, and its coordination."""
    told = json.loads((directory / "ready.json").read_text())
    return f"127.0.0.1:{told['kafka_listen'][0]['port']}", told["zookeeper_connect"]


def append_by_hermes(port: int, partition: int, payloads: list[bytes], codec: Codec) -> None:
    with SyncProducer("127.0.0.1", port) as producer:
        data = MessageSet.of(payloads, codec).data
        (outcome,) = producer.send_acknowledged([ProduceRequest(OLD_TOPIC, partition, data)])
        assert not isinstance(outcome, Exception), outcome


def append_by_kafka(
    bootstrap: str, topic: str, partition: int, payloads: list[bytes], **options: Any
) -> None:
    """Append one batch; `options` are librdkafka's, with `_` for its dots."""
    errors: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    named = {name.replace("_", "."): value for name, value in options.items()}
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1000, **named})
    for payload in payloads:
        producer.produce(topic, payload, partition=partition, on_delivery=note)
    assert producer.flush(60) == 0
    assert not errors, errors


def values_by_hermes(port: int, topic: str, partition: int) -> list[bytes | None]:
    """All messages of a topic, by a client of Hermes' own."""
    found: list[bytes | None] = []
    offset = 0
    with SimpleConsumer("127.0.0.1", port) as consumer:
        while fetched := list(consumer.fetch(FetchRequest(topic, partition, offset, 1 << 20))):
            found += [message.payload for message, _ in fetched]
            offset = fetched[-1][1]
    return found


def values_by_kafka(bootstrap: str, topic: str, partition: int) -> list[bytes | None]:
    """All messages of a topic, by a client of Kafka's."""
    consumer = _consumer(bootstrap, "reader", enable_partition_eof=True)
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes | None] = []
    while True:
        message = consumer.poll(60)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF, error
            break
        found.append(message.value())
    consumer.close()
    return found


def committed(bootstrap: str) -> dict[int, int]:
    """The offsets of Kafka's group, by partition."""
    consumer = _consumer(bootstrap, KAFKA_GROUP)
    asked = [TopicPartition(NEW_TOPIC, partition) for partition in COMMITTED]
    found = {each.partition: each.offset for each in consumer.committed(asked, 60)}
    consumer.close()
    return found


def _consumer(bootstrap: str, group: str, **options: Any) -> Consumer:
    named = {name.replace("_", "."): value for name, value in options.items()}
    own = {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False}
    return Consumer({**own, **named})


def _write(programs: Path, target: Path) -> None:
    """Let the version whose `programs` these are write the directory; pack it into `target`."""
    with tempfile.TemporaryDirectory() as made:
        directory = Path(made)
        broker = BrokerProcess(
            directory / "broker", settings(directory), program=[str(programs / "twistd")]
        )
        try:
            _fill(broker, directory, str(programs / "hermes"))
        finally:
            status = broker.stop()
        assert status == 0, broker.lines
        with tarfile.open(target, "w:gz") as packed:
            packed.add(directory / "data", "data")


def _fill(broker: BrokerProcess, directory: Path, hermes: str) -> None:
    bootstrap, zookeeper = ready(directory)
    at = ("-b", f"127.0.0.1:{broker.port}")

    def run(*arguments: str, given: str = "") -> None:
        subprocess.run([hermes, *arguments], input=given, text=True, check=True)

    run("topics", "create", *at, "--partitions", "2", "--set", "segment_bytes=16MiB", OLD_TOPIC)
    run("topics", "alter", *at, "--set", f"segment_bytes={SEGMENT_BYTES}", OLD_TOPIC)
    kafkas = ("--set", "format=kafka", "--set", "segment_bytes=600")
    run("topics", "create", *at, "--partitions", "2", *kafkas, NEW_TOPIC)
    run("topics", "create", *at, *kafkas, DELETED_TOPIC)
    append_by_kafka(bootstrap, DELETED_TOPIC, 0, [b"gone"])
    run("topics", "delete", *at, "--yes", DELETED_TOPIC)
    for partition, payloads in WRITTEN.items():
        for first in range(0, len(payloads), _SET):
            some = payloads[first : first + _SET]
            zipped = first % (2 * _SET) > 0
            append_by_hermes(broker.port, partition, some, Codec.GZIP if zipped else Codec.NONE)
            append_by_kafka(
                bootstrap,
                NEW_TOPIC,
                partition,
                some,
                compression_type="gzip" if zipped else "none",
                enable_idempotence=first >= _IDEMPOTENT_FROM,
            )
    member = _consumer(bootstrap, KAFKA_GROUP)
    member.subscribe([NEW_TOPIC])
    while len(member.assignment()) < len(COMMITTED):
        member.poll(0.1)
    reached = [TopicPartition(NEW_TOPIC, *each) for each in COMMITTED.items()]
    member.commit(offsets=reached, asynchronous=False)
    member.close()
    run("import-offsets", "-Z", zookeeper, "-", given=OLD_OFFSETS)


if __name__ == "__main__":
    _write(Path(sys.argv[1]).absolute(), Path(sys.argv[2]))
