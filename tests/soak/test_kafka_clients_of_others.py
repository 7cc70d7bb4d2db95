"""franz-go, sarama, kafkajs and Kafka 2.1's own client, each a process, on Hermes.

`HERMES_TESTS_ON=kafka` runs the same on a real Kafka 4.
"""

import json
import os
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack

import pytest
from kafka_4 import KafkaProcess
from kafka_clients import CODECS, Aiokafka, Confluent, Driven, Java, KafkaClient, KafkaPython, Sent
from kafka_clients_of_others import OTHERS, FranzGo, KafkaJs, OldJava, Sarama
from kafka_exchange import RECORDS, check_read, produce_all, records_of, topic_of
from server_process import DEADLINE_SECONDS
from soak import report

from hermes.testing import running_kafka

pytestmark = pytest.mark.soak

PARTITIONS = 8

#: What is set beside the defaults, by whose; what a client doesn't know it leaves alone.
IDEMPOTENT: dict[type[KafkaClient], dict[str, object]] = {
    Sarama: {"version": "newest", "enable_idempotence": "true"},
    KafkaJs: {"enable_idempotence": "true"},
    OldJava: {"enable_idempotence": "true", "acks": "all"},
}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where the broker is."""
    if os.environ.get("HERMES_TESTS_ON") == "kafka":
        kafka = KafkaProcess(tmp_path_factory.mktemp("kafka"))
        kafka.start()
        yield kafka.address
        kafka.kill()
    else:
        with running_kafka(settings={"group_initial_rebalance_delay": "0s"}) as running:
            yield running.bootstrap_servers


def by_name(client: type[KafkaClient]) -> str:
    return client.name


def test_each_reads_what_each_produced(bootstrap: str) -> None:
    topics = {topic_of(each, codec): each for each in OTHERS for codec in CODECS}
    with ExitStack() as stack:
        clients: list[KafkaClient] = [each() for each in (*OTHERS, Java)]
        for client in clients:
            stack.callback(client.close)
        for client in clients[: len(OTHERS)]:
            placed = produce_all(client, bootstrap)
            expected = [(0, number) for number in range(len(records_of(type(client))))]
            assert all(each == expected for each in placed.values()), client
        for client in (*clients, Confluent(), Aiokafka(), KafkaPython()):
            check_read(client, bootstrap, topics)
    report("clients of others", topics=len(topics), messages=len(RECORDS) * len(topics))


@pytest.mark.parametrize("client", IDEMPOTENT, ids=by_name)
def test_idempotent_producers(client: type[KafkaClient], bootstrap: str) -> None:
    topic = f"idempotent-{client.name}"
    producer = client()
    try:
        sent = [Sent(b"%d" % number, b"key") for number in range(300)]
        placed = producer.produce(bootstrap, topic, sent, **IDEMPOTENT[client])
        assert placed == [(0, number) for number in range(300)]
    finally:
        producer.close()
    got = Confluent().read(bootstrap, [topic], 300)
    assert [each.value for each in got] == [each.value for each in sent]


@pytest.mark.parametrize("settings", [{}, {"version": "newest"}], ids=["2.1", "newest"])
@pytest.mark.parametrize("client", [FranzGo, Sarama, KafkaJs], ids=by_name)
def test_administration(client: type[Driven], settings: dict[str, str], bootstrap: str) -> None:
    name = f"made-{client.name}-{settings.get('version', 'default')}"
    driven = client()
    try:
        known = {"bootstrap.servers": bootstrap, "group.id": name, "enable.idempotence": "true"}
        check_found(driven.ask(do="admin", settings=known | settings, topic=name))
    finally:
        driven.close()


def test_administration_by_kafka_2_1(bootstrap: str) -> None:
    command = OldJava.java("KafkaAdmin.java", bootstrap, "made-by-java", "made-by-java")
    ran = subprocess.run(command, capture_output=True, encoding="utf-8", timeout=DEADLINE_SECONDS)
    assert ran.returncode == 0, ran.stderr
    check_found(json.loads(ran.stdout))


def check_found(found: dict[str, object]) -> None:
    """What an administrator's client found is what it should have."""
    again, committed = str(found["again"]), found["committed"]
    assert "ALREADY_EXISTS" in again.upper() or "already exists" in again or "Exists" in again
    assert committed in ([2, "note"], 2)  # kafkajs can't give a note
    assert found["retention.ms"] == "3600000"
    assert (found["partitions"], found["offsets"], found["brokers"]) == (3, [2, 3], 1)
    assert (found["listed"], str(found["state"]).lower()) == (True, "empty")


class Reader:
    """A member of a group, in a process of its own; it commits what a thread has read of it."""

    def __init__(
        self, client: Driven, address: str, group: str, topic: str, assignor: str | None = None
    ) -> None:
        self.values: list[str] = []
        self.partitions: list[int] = []
        self.is_committed = True
        self.failures: list[RuntimeError] = []
        self._client, self._stop, self._group = client, threading.Event(), group
        settings = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            "session.timeout.ms": "6000",
            "heartbeat.interval.ms": "1000",
            **({} if assignor is None else {"assignor": assignor}),
        }
        self._joining = {"settings": settings, "topics": [topic], "consumer": "it"}
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._client.ask(do="join", **self._joining)
            while not self._stop.is_set():
                answer = self._client.ask(do="poll", consumer="it", seconds=0.1)
                values = [Driven.got(each).value for each in answer["records"]]
                if values:
                    self.is_committed = False
                    self.values += [value.decode() for value in values if value is not None]
                self.partitions = [int(each.rpartition("-")[2]) for each in answer["assigned"]]
                if not self.is_committed:
                    self._commit()
        except RuntimeError as error:
            if not self._stop.is_set():
                self.failures.append(error)

    def _commit(self) -> None:
        try:
            self._client.ask(do="commit", consumer="it")
        except RuntimeError:  # while the group rebalances; the next turn tries again
            return
        self.is_committed = True

    def stop(self, *, kill: bool = False) -> None:
        """Let it leave, or die."""
        self._stop.set()
        if kill:
            self._client.kill()
            self._thread.join()
        else:
            self._thread.join()
            if not self.failures:
                self._client.ask(do="close", consumer="it")
            self._client.close()
        self.partitions = []


def wait_for(condition: Callable[[], object], what: str, readers: Sequence[Reader]) -> None:
    end = time.monotonic() + 3 * DEADLINE_SECONDS
    while not condition():
        failed = [str(failure) for each in readers for failure in each.failures]
        assert not failed, failed
        assert time.monotonic() < end, (what, [each.partitions for each in readers])
        time.sleep(0.05)


def is_shared(readers: Sequence[Reader]) -> bool:
    owned = sorted(number for each in readers for number in each.partitions)
    counts = [len(each.partitions) for each in readers]
    return owned == list(range(PARTITIONS)) and max(counts) - min(counts) <= 1


def seen(readers: Sequence[Reader]) -> set[str]:
    return {value for each in readers for value in list(each.values)}


def fill(address: str, topic: str, values: list[str]) -> None:
    sent = [Sent(each.encode(), partition=n % PARTITIONS) for n, each in enumerate(values)]
    Confluent().produce(address, topic, sent)


def make_topic(address: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(DEADLINE_SECONDS)


@pytest.mark.parametrize("client", OTHERS, ids=by_name)
def test_four_that_come_go_and_die(client: type[Driven], bootstrap: str) -> None:
    topic = group = f"shared-{client.name}"
    make_topic(bootstrap, topic)
    first = [f"first {each}" for each in range(400)]
    fill(bootstrap, topic, first)
    everybody: list[Reader] = []

    def start() -> Reader:
        everybody.append(Reader(client(), bootstrap, group, topic))
        return everybody[-1]

    readers = [start() for _ in range(4)]
    try:
        wait_for(lambda: is_shared(readers), "the four don't share", readers)
        wait_for(lambda: seen(everybody) >= set(first), "not all came", readers)
        readers.pop(0).stop()
        wait_for(lambda: is_shared(readers), "three don't share what one has left", readers)
        readers.pop(0).stop(kill=True)
        wait_for(lambda: is_shared(readers), "two don't share what a dead one had", readers)
        readers += [start(), start()]
        wait_for(lambda: is_shared(readers), "newcomers get nothing", readers)
        second = [f"second {each}" for each in range(400)]
        fill(bootstrap, topic, second)
        wait_for(lambda: seen(everybody) >= {*first, *second}, "not all came", readers)
        wait_for(lambda: all(each.is_committed for each in readers), "no commits", readers)
        while readers:
            readers.pop().stop()
        fill(bootstrap, topic, ["third"])
        last = start()
        readers.append(last)
        wait_for(lambda: last.values, "nothing came", readers)
        assert last.values == ["third"]
    finally:
        while readers:
            readers.pop().stop(kill=True)


def test_one_group_of_them_all(bootstrap: str) -> None:
    """kafkajs has an assignor of its own only."""
    topic = "mixed"
    make_topic(bootstrap, topic)
    values = [str(each) for each in range(400)]
    fill(bootstrap, topic, values)
    clients = (FranzGo(), Sarama(), OldJava(), Java())
    readers = [Reader(each, bootstrap, topic, topic, "range") for each in clients]
    try:
        wait_for(lambda: is_shared(readers), "they don't share", readers)
        wait_for(lambda: seen(readers) == set(values), "not all came", readers)
        readers.pop(0).stop()
        wait_for(lambda: is_shared(readers), "three don't share", readers)
    finally:
        while readers:
            readers.pop().stop()
