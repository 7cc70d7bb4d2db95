"""One broker's topic as a store: starts, snapshots, two that both write, and what may be wrong."""

import json
import logging
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from registry_cluster import schema, until

from hermes import SimpleConsumer
from hermes.client.sync_producer import SyncProducer
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.registry.drafts import Draft
from hermes.registry.election import NoElection
from hermes.registry.errors import RegistryError
from hermes.registry.home import FixedHome, HomeBroker
from hermes.registry.registration import RegisterSchema
from hermes.registry.rest_messages import RestRequest
from hermes.registry.topic_store import TopicStore
from hermes.registry.wiring import SNAPSHOT_NAME, make_store
from hermes.testing import RunningBroker, running_broker

TOPIC = "hermes-schemas"
ASK = RestRequest("POST", ("subjects", "s", "versions"))


@contextmanager
def serving(broker: RunningBroker, directory: Path | None = None) -> Iterator[TopicStore]:
    home = FixedHome(HomeBroker(-1, broker.host, broker.port))
    store = make_store(home, NoElection(), directory)
    store.start()
    try:
        yield store
    finally:
        store.close()


def register(store: TopicStore, name: str, subject: str = "") -> int:
    change = RegisterSchema(subject or name, Draft("AVRO", schema(name)))
    schema_id = json.loads(store.write(change, ASK).result(60).body)["id"]
    assert isinstance(schema_id, int)
    return schema_id


def ids(store: TopicStore) -> dict[int, str]:
    with store.reading() as state:
        return {number: json.loads(each.text)["name"] for number, each in state.schemas.items()}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    settings = {"auto_create_topics": False, "num_partitions": 8}
    with running_broker(tmp_path / "log", settings) as running:
        yield running


@pytest.mark.parametrize("has_snapshot", [True, False])
def test_a_start_finds_what_was_given_out(
    broker: RunningBroker, tmp_path: Path, has_snapshot: bool
) -> None:
    with serving(broker, tmp_path) as store:
        given = {register(store, f"R{number}"): f"R{number}" for number in range(20)}
        assert sorted(given) == list(range(1, 21))
    snapshot = tmp_path / SNAPSHOT_NAME
    assert snapshot.is_file()
    if not has_snapshot:
        snapshot.unlink()
    with serving(broker, tmp_path) as store:
        assert ids(store) == given
        assert register(store, "R7") == 8
        assert register(store, "Another") == 21


def test_a_damaged_snapshot_is_ignored_with_one_line(
    broker: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(broker, tmp_path) as store:
        assert register(store, "R") == 1
    snapshot = tmp_path / SNAPSHOT_NAME
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"]")
    with caplog.at_level(logging.WARNING), serving(broker, tmp_path) as store:
        assert ids(store) == {1: "R"}
    assert len(caplog.messages) == 1
    assert "is damaged" in caplog.messages[0]


def test_two_that_both_take_themselves_for_the_leader_agree(broker: RunningBroker) -> None:
    """No election here at all: the topic alone says who has decided."""
    with serving(broker) as one, serving(broker) as other, ThreadPoolExecutor(8) as threads:
        places = [(one, other)[number % 2] for number in range(200)]
        names = [f"R{number // 4}" for number in range(200)]
        given = list(threads.map(register, places, names, [f"s{n}" for n in range(200)]))
        by_name = {
            name: {g for g, n in zip(given, names, strict=True) if n == name} for name in names
        }
        assert all(len(each) == 1 for each in by_name.values())
        assert len(set(given)) == 50
        assert one.refresh().result(60) in (True, False)
        assert other.refresh().result(60) in (True, False)
        until(lambda: one.log.replica.mark == other.log.replica.mark)
        assert ids(one) == ids(other)
        assert one.log.replica.void > 0, "they never met: this shows nothing"


def test_a_leader_that_reads_what_another_has_decided_decides_no_more_without_it(
    broker: RunningBroker,
) -> None:
    with serving(broker) as one, serving(broker) as other:
        for number in range(1, 7):
            here, there = (one, other)[:: 1 if number % 2 else -1]
            assert register(here, f"R{number}") == number
            until(lambda: one.log.replica.mark == other.log.replica.mark)
            assert ids(there) == {n: f"R{n}" for n in range(1, number + 1)}
        assert one.log.replica.void == other.log.replica.void == 0, "they met: this shows less"


def test_what_others_produce_into_the_topic_is_no_obstacle(broker: RunningBroker) -> None:
    with serving(broker) as store, SyncProducer(broker.host, broker.port) as producer:
        assert register(store, "A") == 1
        junk = encode_message_set([b"", b"{}", b"\xff" * 100, b'{"n":2,"after":"","id":"x"}'])
        producer.send_acknowledged([ProduceRequest(TOPIC, 0, junk)], Acks.FLUSHED)
        assert register(store, "B") == 2
    with serving(broker) as store:
        assert ids(store) == {1: "A", 2: "B"}
        assert store.log.replica.void == 4


def test_no_retention_trims_it(tmp_path: Path) -> None:
    settings = {
        "segment_bytes": "1KiB",
        "retention_time": "1ms",
        "retention_bytes": "1B",
        "retention_check_interval": "50ms",
    }
    with running_broker(tmp_path / "log", settings) as broker:
        with serving(broker) as store:
            for number in range(40):
                register(store, f"R{number}")
        with SyncProducer(broker.host, broker.port) as producer:
            for _ in range(8):
                produce = ProduceRequest("other", 0, encode_message_set([b"x" * 900]))
                producer.send_acknowledged([produce], Acks.FLUSHED)
        with SimpleConsumer(broker.host, broker.port) as consumer:
            until(lambda: consumer.get_offsets_before("other", 0, -2)[0] > 0, "a retention pass")
            assert len(consumer.get_offsets_before(TOPIC, 0, -1, 100)) > 3
            assert consumer.get_offsets_before(TOPIC, 0, -2) == [0]
        with serving(broker) as store:
            assert len(ids(store)) == 40


def test_a_topic_that_is_not_the_one_that_was_read_is_not_written(tmp_path: Path) -> None:
    data, state = tmp_path / "log", tmp_path / "state"
    state.mkdir()
    with running_broker(data) as broker, serving(broker, state) as store:
        assert register(store, "A") == 1
    shutil.copytree(data, tmp_path / "backup")
    with running_broker(data) as broker, serving(broker, state) as store:
        assert register(store, "B") == 2
    with running_broker(tmp_path / "backup") as broker:  # an old backup in the topic's place
        with serving(broker, state) as store:
            with pytest.raises(
                RegistryError, match="is not what it was: it ends at offset"
            ) as caught:
                register(store, "C")
            assert caught.value.code == 50003
            assert SNAPSHOT_NAME in str(caught.value)
            assert ids(store) == {1: "A", 2: "B"}
        with serving(broker) as store:  # one that knows nothing of what was lost
            assert register(store, "Other") == 2
            assert register(store, "More") == 3
        with serving(broker, state) as store:
            with pytest.raises(RegistryError, match="another event at offset"):
                register(store, "C")
            assert ids(store) == {1: "A", 2: "B"}


def test_a_topic_without_its_beginning_gives_out_nothing(tmp_path: Path) -> None:
    data = tmp_path / "log"
    with running_broker(data, {"segment_bytes": "1KiB"}) as broker, serving(broker) as store:
        for number in range(20):
            register(store, f"R{number}")
    min((data / f"{TOPIC}-0").glob("*.kafka")).unlink()
    with running_broker(data) as broker, serving(broker) as store:
        with pytest.raises(RegistryError, match="the beginning of hermes-schemas"):
            register(store, "R")
        with pytest.raises(RegistryError, match="nothing can be answered yet"):
            ids(store)


def test_a_home_that_comes_back_ends_the_wait_of_those_who_write(tmp_path: Path) -> None:
    """What was in flight when it went is found in the topic, or decided anew."""
    data = tmp_path / "log"
    with running_broker(data) as broker:
        port = broker.port
        store = make_store(FixedHome(HomeBroker(-1, broker.host, port)), NoElection(), None)
        store.start()
        assert register(store, "A") == 1
    try:
        with ThreadPoolExecutor(4) as threads:
            waiting = [threads.submit(register, store, f"W{number}") for number in range(4)]
            until(lambda: bool(store.log.problem), "a problem")
            with running_broker(data, {"listen": f"tcp:{port}:interface=127.0.0.1"}):
                assert sorted(each.result(60) for each in waiting) == [2, 3, 4, 5]
    finally:
        store.close()


def test_what_the_home_refuses_is_told_with_its_reason(tmp_path: Path) -> None:
    with running_broker(tmp_path / "log", {"max_topics": 1}) as broker, serving(broker) as store:
        with SyncProducer(broker.host, broker.port) as producer:
            produce = ProduceRequest("other", 0, encode_message_set([b"x"]))
            producer.send_acknowledged([produce], Acks.FLUSHED)
            with pytest.raises(RegistryError, match=r"refuses to store it.*max_topics") as caught:
                register(store, "A")
            assert caught.value.code == 50001
        with SimpleConsumer(broker.host, broker.port) as consumer:
            consumer.delete_topic("other")
        assert register(store, "A") == 1


def test_after_a_stop_nothing_is_written(broker: RunningBroker) -> None:
    with serving(broker) as store:
        assert register(store, "A") == 1
    with pytest.raises(RegistryError, match="being stopped"):
        register(store, "B")
