"""Quotas and users that Kafka's clients set: in force, kept, and beside those of files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_4 import run_tool
from mirror_clusters import eventually
from planted_secrets import planted

from hermes.security.users_file import read_users
from hermes.testing import RunningKafka, running_kafka

SECONDS = 60
ROOT, ROOTS, BOBS = "root", planted("the password of root"), planted("the password of bob")


def configs(kafka: RunningKafka, *arguments: str) -> str:
    place = "--bootstrap-server", kafka.bootstrap_servers
    return run_tool("kafka-configs", *place, *arguments, "--entity-type", "users")


def test_quotas_by_kafkas_own_tool(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"quotas": {"alice": {"bytes_in": 1000, "requests": 5}}}
    of_bob = "--alter", "--entity-name", "bob", "--add-config", "consumer_byte_rate=2048"
    with running_kafka(settings=settings, log_dir=tmp_path) as kafka:
        configs(kafka, *of_bob)
        configs(kafka, "--alter", "--entity-default", "--add-config", "producer_byte_rate=77")
        shown = configs(kafka, "--describe")
        with pytest.raises(AssertionError, match=r"one of broker\.yaml"):
            configs(kafka, "--alter", "--entity-name", "alice", *of_bob[3:])
    assert "user-principal 'alice' are producer_byte_rate=1000.0" in shown
    assert "user-principal 'bob' are consumer_byte_rate=2048.0" in shown
    assert "default user-principal are producer_byte_rate=77.0" in shown
    with running_kafka(settings=settings, log_dir=tmp_path) as kafka:
        assert configs(kafka, "--describe") == shown
        gone = "--entity-name", "bob", "--delete-config", "consumer_byte_rate"
        configs(kafka, "--alter", *gone)
        assert "bob" not in configs(kafka, "--describe")


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[RunningKafka]:
    with running_kafka(users={ROOT: ROOTS}, log_dir=tmp_path / "log") as kafka:
        yield kafka


def client(kafka: RunningKafka, user: str, password: str, mechanism: str) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": kafka.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def test_a_user_comes_changes_and_goes(secured: RunningKafka) -> None:
    admin = client(secured, ROOT, ROOTS, "SCRAM-SHA-256")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)

    def alter(change: Any) -> None:
        for done in admin.alter_user_scram_credentials([change]).values():
            done.result(SECONDS)

    def gets_in() -> bool:
        try:
            bob = client(secured, "bob", BOBS, "SCRAM-SHA-512")
            return len(bob.list_topics(timeout=5).brokers) > 0
        except KafkaException:
            return False

    assert not gets_in()
    alter(UserScramCredentialUpsertion("bob", info, BOBS.encode()))
    eventually(gets_in, "bob gets in")
    described = admin.describe_user_scram_credentials().result(SECONDS)
    found = {
        name: {(each.mechanism, each.iterations) for each in user.scram_credential_infos}
        for name, user in described.items()
    }
    assert found["bob"] == {(ScramMechanism.SCRAM_SHA_512, 8192)}
    assert len(found[ROOT]) == 2
    alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))
    eventually(lambda: not gets_in(), "bob is kept out")
    with pytest.raises(KafkaException, match="there is no user 'bob'"):
        alter(UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_512))


def test_without_a_users_file_there_are_none() -> None:
    with running_kafka() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
        assert admin.describe_user_scram_credentials().result(SECONDS) == {}
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)
        change = UserScramCredentialUpsertion("bob", info, BOBS.encode())
        (done,) = admin.alter_user_scram_credentials([change]).values()
        with pytest.raises(KafkaException, match="no users_file"):
            done.result(SECONDS)


def test_what_a_client_sends_is_what_hermes_users_makes(tmp_path: Path) -> None:
    """The same password with the same salt is the same verifier."""
    from hashlib import pbkdf2_hmac

    from kafka_raw import KafkaConversation, parts

    from hermes.security.passwords import make_verifier
    from hermes.security.users import Users

    path, salt = tmp_path / "users", b"a salt of sixteen"
    path.write_bytes(Users.none().encode())
    path.chmod(0o600)
    make = parts("AlterUserScramCredentials", 0)
    made = [
        make.ScramCredentialUpsertion(
            name="eve",
            mechanism=number,
            iterations=4096,
            salt=salt,
            salted_password=pbkdf2_hmac(digest, BOBS.encode(), salt, 4096),
        )
        for number, digest in ((1, "sha256"), (2, "sha512"))
    ]
    with (
        running_kafka(settings={"users_file": str(path)}) as kafka,
        KafkaConversation(kafka.bootstrap_servers) as conversation,
    ):
        for each in made:
            conversation.ask("AlterUserScramCredentials", 0, deletions=(), upsertions=(each,))
    expected = [make_verifier(BOBS, f"SCRAM-SHA-{bits}", 4096, salt=salt) for bits in (256, 512)]
    assert read_users(path)[0].verifier("eve") == tuple(expected)
