"""Members and their broker are killed: every message is delivered, and no commit is lost."""

import signal
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from coordination_servers import ServerProcess
from hermes_testkit import BrokerProcess
from kafka_bench import encode_request
from kafka_group_kills import TOPIC, KilledGroup
from kafka_raw import KafkaConversation
from mirrored_pair import eventually
from server_process import free_ports

from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import ClientError
from hermes.protocol.kafka_errors import Code


@pytest.mark.parametrize("assignor", ["cooperative-sticky", "consumer"])
def test_kills_of_a_broker_and_of_members(
    assignor: str, start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    random = Random(1)
    with closing(KilledGroup(start_broker, assignor, 2, tmp_path)) as group:
        group.produce(300)
        group.wait_for_progress(random)
        group.kill_member(0)
        group.wait_for_progress(random)
        group.kill_broker()
        group.produce(200)
        group.wait_for_progress(random)
        group.kill_member(3, kill=False)
        group.kill_member(1, replace=False)
        group.kill_broker()
        group.finish()


@pytest.mark.parametrize(
    ("client", "assignor"),
    [
        ("confluent-kafka", "range"),
        ("confluent-kafka", "consumer"),
        pytest.param("java", "consumer", marks=pytest.mark.nightly),
    ],
)
def test_another_broker_goes_on_where_the_killed_one_was(
    client: str,
    assignor: str,
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
) -> None:
    server = coordination_server("embedded")
    settings = {
        "client": client,
        "coordination": "zookeeper",
        "zookeeper_connect": f"{server.address}/killed-{client}-{assignor}",
        "zookeeper_session_timeout": "2s",
    }
    random = Random(2)
    with closing(KilledGroup(start_broker, assignor, 0, tmp_path, 2, **settings)) as group:
        group.produce(200)
        group.wait_for_progress(random)
        # Its partitions wait for it; the group must not.
        leads = lambda: group.wait_until(group.is_led, "nobody coordinates it")  # noqa: E731
        group.kill_broker(group.home(), pause=leads)
        group.produce(50)
        group.finish()


def takes(port: int, offset: int) -> bool:
    """Commit an offset for a group that has no members; whether this broker took it."""
    part = {"partition_index": 0, "committed_offset": offset}
    topics = [{"name": TOPIC, "partitions": [part]}]
    with suppress(ClientError), KafkaAsker("127.0.0.1", port) as asker:
        answer = asker.ask("OffsetCommit", 8, group_id="g", member_id="", topics=topics)
        return not answer.topics[0].partitions[0].error_code
    return False


def test_a_broker_that_slept_while_a_group_moved_tells_nothing_old(
    start_broker: Callable[..., BrokerProcess],
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
) -> None:
    ports = free_ports(2)
    brokers = [
        start_broker(
            broker_id=place,
            log_dir=str(tmp_path / f"data-{place}"),
            kafka_listen=f"tcp:{port}:interface=127.0.0.1",
            coordination="zookeeper",
            zookeeper_connect=f"{coordination_server('embedded').address}/slept",
        )
        for place, port in enumerate(ports)
    ]
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports[0]}", "log_level": 0})
    eventually(lambda: len(admin.list_topics(timeout=30).brokers) == 2)
    admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(60)
    home = eventually(lambda: [each for each in (0, 1) if takes(ports[each], 1)])[0]
    other = 1 - home
    brokers[home].stop()
    eventually(lambda: takes(ports[other], 2))
    question = encode_request("OffsetFetch", 7, group_id="g", topics=None)
    with KafkaConversation(f"127.0.0.1:{ports[other]}") as asking:
        before = asking.ask_encoded("OffsetFetch", 7, question)
        assert before.topics[0].partitions[0].committed_offset == 2
        brokers[other].process.send_signal(signal.SIGSTOP)
        brokers[home].start()
        eventually(lambda: takes(ports[home], 3))
        asking.send(question)
        # It finds the question waiting, and hears only then what has happened meanwhile.
        brokers[other].process.send_signal(signal.SIGCONT)
        after = asking.receive("OffsetFetch", 7)
    # Or its session has ended while it slept.
    assert after.error_code.value in (Code.NOT_COORDINATOR, Code.COORDINATOR_LOAD_IN_PROGRESS)
    assert not after.topics
