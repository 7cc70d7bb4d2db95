"""Pages of the consoles that people have for Kafka, replayed by what their sources ask for.

The consoles are in no registry. Consoles.java and console.go do what their code does, page by
page, by the libraries that they are made with. A real Kafka 4.3.1 was asked the same.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_4 import run_java
from kafka_clients_of_others import FranzGo
from planted_secrets import planted

from hermes.security.users import Users
from hermes.testing import RunningKafka, running_kafka

PATIENCE_SECONDS = 120.0
ADMIN = planted("who uses a console")
VIEWER = planted("who only looks")
EVERYTHING = {"principal": "admin", "operations": ["all"]}
#: As docs/kafka.md has it.
LOOKING: list[dict[str, Any]] = [
    {"principal": "viewer", "operations": ["describe", "consume"]},
    {"principal": "viewer", "operations": ["describe"], "group": "*"},
    {"principal": "viewer", "operations": ["describe"], "cluster": True},
]
#: How many ACLs these come to.
AS_ACLS = 13
ABSENT = {"error": "UnsupportedVersionException"}
NO_RULES = {"error": "SecurityDisabledException"}


class Cluster(NamedTuple):
    """Attributes: its brokers, how many a topic has copies on, and how Kafka's clients connect."""

    copies: int
    is_secured: bool
    settings: dict[str, Any]


def secured(folder: Path) -> dict[str, Any]:
    """What a broker's settings say where passwords and rules are."""
    users, password = folder / "users", folder / "password"
    known = Users.none().with_user("admin", ADMIN, iterations=4096)
    users.write_bytes(known.with_user("viewer", VIEWER, iterations=4096).encode())
    password.write_bytes(ADMIN.encode())
    for each in (users, password):
        each.chmod(0o600)
    port = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    own = {"user": "admin", "password_file": str(password)}
    return {
        "users_file": str(users),
        "access": [EVERYTHING, {**EVERYTHING, "cluster": True}, *LOOKING],
        "kafka_listen": port,
        "coordination_listen": port,
        "connect_as": own,
        "replicate_as": own,
    }


def in_sync(admin: AdminClient, topic: str) -> list[list[int]]:
    """Which brokers have each partition."""
    listed = admin.list_topics(topic, timeout=PATIENCE_SECONDS).topics[topic]
    return [each.isrs for each in listed.partitions.values()]


def of_clients(broker: RunningKafka, is_secured: bool) -> dict[str, Any]:
    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0}
    if is_secured:
        settings |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        settings |= {"sasl.username": "admin", "sasl.password": ADMIN}
    return settings


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("alone", marks=pytest.mark.nightly),
        "alone, secured",
        pytest.param("three, secured", marks=pytest.mark.nightly),
    ],
)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    is_secured = "secured" in request.param
    count = 3 if "three" in request.param else 1
    common = secured(tmp_path_factory.mktemp("secrets")) if is_secured else {}
    # On a machine with much else to do a copy isn't soon out of sync.
    common |= {"group_initial_rebalance_delay": "0s", "replica_lag_time": "60s"}
    embedded = {} if count == 1 else {"coordination": "embedded"}
    with ExitStack() as stack:
        first = stack.enter_context(running_kafka(settings={**common, **embedded}))
        more = {"coordination": "zookeeper", "zookeeper_connect": str(first.zookeeper_connect)}
        for number in range(1, count):
            settings = {"broker_id": number, **common, **more}
            stack.enter_context(running_kafka(settings=settings))
        known = of_clients(first, is_secured)
        while len(AdminClient(known).list_topics(timeout=PATIENCE_SECONDS).brokers) < count:
            pass  # a run that hangs is ended, and shows where
        yield Cluster(count, is_secured, known)


@pytest.fixture
def prepared(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic with messages, and groups: one that has left what it committed, and two with members.

    They are named after the topic, the last two by what their members speak.
    """
    topic = request.function.__name__.removeprefix("test_").replace("_", "-")
    admin = AdminClient(cluster.settings)
    made = admin.create_topics([NewTopic(topic, 2, cluster.copies)])
    made[topic].result(PATIENCE_SECONDS)
    producer = Producer(cluster.settings)
    for number in range(4):
        producer.produce(topic, f"value {number}", f"key {number}", partition=number % 2)
    assert producer.flush(PATIENCE_SECONDS) == 0
    while not all(len(isr) == cluster.copies for isr in in_sync(admin, topic)):
        pass  # a run that hangs is ended, and shows where
    gone = Consumer({**cluster.settings, "group.id": topic})
    ends = [TopicPartition(topic, number, 1) for number in range(2)]
    gone.commit(offsets=ends, asynchronous=False)
    gone.close()
    members = []
    for protocol in ("classic", "consumer"):
        name = f"{topic}-{protocol}"
        settings = {"group.id": name, "group.protocol": protocol, "enable.auto.commit": False}
        members.append(Consumer({**cluster.settings, **settings}))
        members[-1].subscribe([topic])
    for each in members:
        while len(each.assignment()) < 2:
            each.poll(0.1)
    yield topic
    for each in members:
        each.close()
    remaining = [topic, f"{topic}-classic", f"{topic}-consumer"]
    for future in admin.delete_consumer_groups(remaining).values():
        with suppress(KafkaException):  # the first one is gone unless the user may only look
            future.result(PATIENCE_SECONDS)
    admin.delete_topics([topic])[topic].result(PATIENCE_SECONDS)


def java_pages(
    console: str, cluster: Cluster, topic: str, user: str = "admin", password: str = ADMIN
) -> dict[str, Any]:
    known = {"bootstrap.servers": cluster.settings["bootstrap.servers"]}
    if cluster.is_secured:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'{module} required username="{user}" password="{password}";'
        known |= {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256"}
        known["sasl.jaas.config"] = login
    settings = "\n".join(f"{key}={value}" for key, value in known.items())
    said = run_java("Consoles.java", console, settings, topic, topic, str(cluster.copies))
    pages: dict[str, Any] = json.loads(said)
    for each in pages.values():
        if isinstance(each, dict):
            each.pop("text", None)
    return pages


def java_groups(topic: str, lag: int = 3) -> dict[str, Any]:
    """State, protocol, members, their partitions, lag, and whether there is a coordinator."""
    return {
        topic: ["Empty", "Classic", 0, 0, lag, True],
        f"{topic}-classic": ["Stable", "Classic", 1, 2, 0, True],
        f"{topic}-consumer": ["Stable", "Consumer", 1, 2, 0, True],
    }


def java_brokers(copies: int) -> dict[str, Any]:
    return {
        "brokers": copies,
        "a controller among them": True,
        "an id": True,
        "directories": copies,
        "replicas of the topic": 2 * copies,
        "their bytes": True,
        "room": True,
    }


NOT_CLASSIC = "GROUP_ID_NOT_FOUND: The group id does not exist."
MESSAGES = [f"key {number} value {number}" for number in range(4)]


def test_kafka_ui(cluster: Cluster, prepared: str) -> None:
    copies, rules = cluster.copies, AS_ACLS if cluster.is_secured else NO_RULES
    shown = ["ACLs are shown", "ACLs can be changed"]
    if not cluster.is_secured:
        shown = ["SecurityDisabledException"]
    assert java_pages("kafka-ui", cluster, prepared) == {
        "dashboard": ["version 4.0", "topics can be deleted", *shown],
        "brokers": java_brokers(copies),
        "broker's settings": ["1"],
        "broker's setting is changed": "changed",
        "topics": [2, copies, 2 * copies, 4, False],
        "topic's settings": [["delete", "-1"], True],
        "messages": MESSAGES,
        "messages by time": [0, 0],
        "a message is produced": 0,
        "producers": True,
        "consumers": java_groups(prepared),
        "offsets are reset": [True, "Empty", 0],
        "a group's offsets are deleted": 0,
        "a group is deleted": "done",
        "topic is created": copies,
        "topic is created with defaults": 1,
        "topic is changed": ["3600000"],
        "topic is grown": 4,
        "copies are changed": "done",
        "topic is emptied": 1,
        "topic is made anew": copies,
        "topic is deleted": "done",
        "quotas": {"producer_byte_rate": 1e6},
        "ACLs": rules,
        "ACLs of an application": [8, 0] if cluster.is_secured else NO_RULES,
        "a replica is moved to another disk": ABSENT,
    }


@pytest.mark.parametrize("cluster", ["alone, secured"], indirect=True)
def test_who_only_looks_sees_all_but_what_is_for_administrators(
    cluster: Cluster, prepared: str
) -> None:
    pages = java_pages("kafka-ui", cluster, prepared, "viewer", VIEWER)
    refused = {name for name, each in pages.items() if isinstance(each, dict) and "error" in each}
    assert pages.keys() - refused == {
        *("brokers", "topics", "topic's settings", "messages", "messages by time", "producers"),
        *("consumers", "ACLs"),
    }
    assert pages["consumers"] == java_groups(prepared, lag=2)  # nothing could be produced
    assert pages["messages"] == MESSAGES


def test_akhq(cluster: Cluster, prepared: str) -> None:
    copies = cluster.copies
    assert java_pages("akhq", cluster, prepared) == {
        "nodes": java_brokers(copies),
        "node's settings": ["1"],
        "topics": [2, copies, 2 * copies, 4, False],
        "ends of partitions": 4,
        "messages": MESSAGES,
        "messages by time": [0, 0],
        "a message is produced": 0,
        "topic's settings": ["delete", "-1"],
        "topic's settings are changed": ["86400000"],
        "topic is created": copies,
        "topic is emptied": 1,
        "topic is deleted": "done",
        "groups": java_groups(prepared),
        "offsets are reset": 0,
        "a group's offsets are deleted": 0,
        "a group is deleted": "done",
        "ACLs": AS_ACLS if cluster.is_secured else NO_RULES,
    }


def test_redpanda_console(cluster: Cluster, prepared: str) -> None:
    copies, go = cluster.copies, FranzGo()
    settings = {"bootstrap.servers": cluster.settings["bootstrap.servers"], "group.id": prepared}
    settings["new password"] = planted("whom a console makes")
    if cluster.is_secured:
        settings |= {"user": "admin", "password": ADMIN}
    try:
        answer = go.ask(do="console", settings=settings, topic=prepared, count=copies)
    finally:
        go.close()
    pages = answer["pages"]
    refused = {
        name: pages.pop(name)["error"].partition(":")[0]
        for name in ("ACLs", "users")
        if isinstance(pages[name], dict)
    }
    if not cluster.is_secured:
        assert refused == {"ACLs": "SECURITY_DISABLED", "users": "INVALID_REQUEST"}
    assert pages == {
        "overview": [copies, True, True, True, True],
        "brokers": [copies] * 3,
        "topics": [2, copies, False, "delete"],
        "topic's partitions": [2 * copies, 4],
        "topic's settings": "delete",
        "messages": MESSAGES,
        "a message is produced": "done",
        "groups": {
            prepared: ["Empty", 0, 3, "<nil>"],
            f"{prepared}-classic": ["Stable", 1, 0, "<nil>"],
            # DescribeGroups knows classic members alone, in Kafka as well.
            f"{prepared}-consumer": ["Dead", 0, 0, NOT_CLASSIC],
        },
        "offsets are edited": 0,
        "a group's offsets are deleted": "done",
        "a group is deleted": "done",
        "topic is created": 2,
        "topic is created with defaults": 1,
        "topic is changed": "86400000",
        "topic is grown": "done",
        "records are deleted": 1,
        "topic is deleted": "done",
        "reassign partitions": "done",
        "quotas": 1,
        **({} if refused else {"ACLs": [2, 0], "users": True}),
    }
