"""ACLs that Kafka's clients make: in force at once, kept, the same on all brokers."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from kafka_4 import run_tool
from kafka_raw import KafkaConversation, parts
from kazoo.client import KazooClient
from mirror_clusters import eventually

from hermes.errors import ConfigError, CorruptEntriesError
from hermes.storage import FileLayer
from hermes.storage.requested_file import write_requested
from hermes.testing import running_broker, running_kafka

ADMIN = {"principal": "anonymous", "operations": ["admin", "describe"], "cluster": True}
WEB = {"principal": "web-*", "operations": ["produce"], "topic": "web", "allow": False}
SECONDS = 60
EVERY = AclBindingFilter(
    *(ResourceType.ANY, None, ResourcePatternType.ANY),
    *(None, None, AclOperation.ANY, AclPermissionType.ANY),
)


def binding(operation: AclOperation, topic: str, principal: str = "User:ANONYMOUS") -> AclBinding:
    place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    return AclBinding(*place, principal, "*", operation, AclPermissionType.ALLOW)


def make(admin: AdminClient, *bindings: AclBinding) -> None:
    for made in admin.create_acls(list(bindings)).values():
        made.result(SECONDS)


def shown(admin: AdminClient) -> set[str]:
    found = admin.describe_acls(EVERY).result(SECONDS)
    return {f"{each.principal} {each.operation.name} {each.name}" for each in found}


OF_THE_FILE = {
    "User:ANONYMOUS ALTER kafka-cluster",
    "User:ANONYMOUS DESCRIBE kafka-cluster",
    "User:web-* WRITE web",
}


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[AdminClient]:
    with running_kafka(settings={"access": [ADMIN, WEB]}, log_dir=tmp_path) as kafka:
        yield AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def create_topic(address: str, name: str) -> int:
    make = parts("CreateTopics", 7)
    topic = make.CreatableTopic(
        name=name, num_partitions=1, replication_factor=1, assignments=(), configs=()
    )
    with KafkaConversation(address) as client:
        answer = client.ask(
            "CreateTopics", 7, topics=(topic,), timeout=make.timeout(1000), validate_only=False
        )
    return int(answer.topics[0].error_code)


def test_they_are_in_force_at_once_and_after_a_restart(tmp_path: Path) -> None:
    rules: dict[str, Any] = {"access": [ADMIN, WEB]}
    with running_kafka(settings=rules, log_dir=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert create_topic(kafka.bootstrap_servers, "clicks") == 29
        make(admin, binding(AclOperation.CREATE, "clicks"))
        assert create_topic(kafka.bootstrap_servers, "clicks") == 0
        assert create_topic(kafka.bootstrap_servers, "others") == 29
        assert {"User:ANONYMOUS CREATE clicks"} == shown(admin) - OF_THE_FILE
    with running_kafka(settings=rules, log_dir=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert "User:ANONYMOUS CREATE clicks" in shown(admin)
        (gone,) = admin.delete_acls([EVERY]).values()
        assert len(gone.result(SECONDS)) == 4
        assert shown(admin) == OF_THE_FILE
        admin.delete_topics(["clicks"])
        assert create_topic(kafka.bootstrap_servers, "clicks") == 29


def test_rules_of_the_file_are_shown_and_stay(admin: AdminClient) -> None:
    assert shown(admin) == OF_THE_FILE
    (gone,) = admin.delete_acls([EVERY]).values()
    gone.result(SECONDS)
    assert shown(admin) == OF_THE_FILE


def test_a_deletion_says_what_stays(tmp_path: Path) -> None:
    with (
        running_kafka(settings={"access": [ADMIN]}, log_dir=tmp_path) as kafka,
        KafkaConversation(kafka.bootstrap_servers) as client,
    ):
        make = parts("DeleteAcls", 3)
        anything = {"permission_type": 1, "principal_filter": "User:ANONYMOUS"}
        filters = make.DeleteAclsFilter(
            resource_type_filter=4,
            resource_name_filter=None,
            pattern_type_filter=1,
            host_filter=None,
            operation=7,
            **anything,
        )
        (result,) = client.ask("DeleteAcls", 3, filters=(filters,)).filter_results
    (kept,) = result.matching_acls
    assert (result.error_code.value, kept.error_code.value) == (0, 42)
    assert "broker.yaml" in kept.error_message


def test_without_rules_there_is_no_authorizer() -> None:
    with running_kafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        with pytest.raises(KafkaException, match="No Authorizer is configured"):
            make(admin, binding(AclOperation.READ, "clicks"))


def test_kafkas_own_tool(tmp_path: Path) -> None:
    rules = [{"principal": "anonymous", "operations": ["all"]}]
    with running_kafka(settings={"access": rules}, log_dir=tmp_path) as kafka:

        def acls(*arguments: str) -> str:
            return run_tool("kafka-acls", "--bootstrap-server", kafka.bootstrap_servers, *arguments)

        who = "--allow-principal", "User:bob"
        acls("--add", *who, "--consumer", "--topic", "t", "--group", "g")
        acls("--add", *who, "--producer", "--topic", "t", "--idempotent")
        listed = acls("--list", "--principal", "User:bob")
        for operation in ("READ", "DESCRIBE", "WRITE", "CREATE", "IDEMPOTENT_WRITE"):
            assert f"operation={operation}, permissionType=ALLOW" in listed
        acls("--remove", "--force", "--topic", "t")
        assert "TOPIC" not in acls("--list", "--principal", "User:bob")
        with pytest.raises(AssertionError, match="hold for all hosts"):
            acls("--add", *who, "--allow-host", "10.0.0.1", "--operation", "Read", "--topic", "t")


def test_a_damaged_file_of_them_is_named(tmp_path: Path) -> None:
    with running_kafka(settings={"access": [ADMIN]}, log_dir=tmp_path) as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        make(admin, binding(AclOperation.READ, "clicks", "User:alice"))
    path = tmp_path / ".hermes_requested"
    path.write_bytes(path.read_bytes().replace(b"alice", b"mally"))
    settings = {"access": [ADMIN]}
    with (
        pytest.raises(CorruptEntriesError, match=r"hermes_requested is damaged.*move it away"),
        running_kafka(settings=settings, log_dir=tmp_path),
    ):
        pass
    write_requested(str(tmp_path), b'{"later": 1}', FileLayer())
    with (
        pytest.raises(ConfigError, match=r"hermes_requested.*can't be read.*move it away"),
        running_kafka(settings=settings, log_dir=tmp_path),
    ):
        pass


def test_all_brokers_of_a_cluster_have_them(tmp_path: Path) -> None:
    listen = "tcp:0:interface=127.0.0.1"
    rules = {"access": [ADMIN, {"principal": "hermes", "operations": ["all"]}]}
    with running_broker(
        settings={**rules, "coordination": "embedded", "kafka_listen": listen}
    ) as one:
        of_two = {
            "broker_id": 1,
            "kafka_listen": listen,
            "coordination": "zookeeper",
            "zookeeper_connect": one.zookeeper_connect,
        }
        with running_broker(settings={**rules, **of_two}) as two:
            first = AdminClient({"bootstrap.servers": one.bootstrap_servers})
            second = AdminClient({"bootstrap.servers": two.bootstrap_servers})
            make(first, binding(AclOperation.READ, "from-one", "User:alice"))
            make(second, binding(AclOperation.READ, "from-two", "User:alice"))
            wanted = {f"User:alice READ from-{each}" for each in ("one", "two")}
            for each in (one, two):
                client = AdminClient({"bootstrap.servers": each.bootstrap_servers})
                eventually(lambda c=client: wanted <= shown(c), "both ACLs")

            # Both at a time: none is lost.
            some = [
                (admin, binding(AclOperation.READ, f"{place}-{n}", "User:bob"))
                for n in range(10)
                for place, admin in enumerate((first, second))
            ]
            asked = [admin.create_acls([each]) for admin, each in some]
            for each in asked:
                for done in each.values():
                    done.result(SECONDS)
            bobs = {f"User:bob READ {each.name}" for _, each in some}
            for client in (first, second):
                eventually(lambda c=client: bobs <= shown(c), "all of both")
            _check_what_is_in_coordination(one.zookeeper_connect, first, second)


def _check_what_is_in_coordination(connect: str, first: AdminClient, second: AdminClient) -> None:
    """Damage there changes no rules; deleted, it is written anew; and it may be emptied."""
    node, before = "/hermes/kafka/requested", shown(first)
    client = KazooClient(connect, timeout=30)
    client.start(SECONDS)
    try:
        client.set(node, b'{"acls": [')
        for each in (first, second):
            with pytest.raises(KafkaException, match=r"requested: .*can't be read.*delete it"):
                make(each, binding(AclOperation.READ, "more", "User:bob"))
            assert shown(each) == before
        client.delete(node)
        eventually(lambda: client.exists(node), "a broker writes it")
        make(second, binding(AclOperation.READ, "more", "User:bob"))
        eventually(lambda: shown(first) == {*before, "User:bob READ more"}, "all of them")
        lock_out = AclBinding(
            *(ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL),
            *("User:*", "*", AclOperation.ALTER, AclPermissionType.DENY),
        )
        with pytest.raises(KafkaException, match="only DESCRIBE can be denied"):
            make(first, lock_out)
        client.set(node, b'{"acls": [], "quotas": {}}')
        for each in (first, second):
            eventually(lambda c=each: not any("bob" in acl for acl in shown(c)), "none is left")
        make(second, binding(AclOperation.READ, "in", "User:bob"))
    finally:
        client.stop()
        client.close()
