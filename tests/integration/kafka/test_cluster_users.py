"""Users and rules of a cluster: the same on all brokers, at once, and through what goes away."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from broker_bench import log_lines
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka_raw import KafkaConversation, parts
from mirror_clusters import eventually
from planted_secrets import planted
from zookeeper_process import ZooKeeperProcess

from hermes import FetchRequest, NotAuthenticatedError, NotAuthorizedError, SimpleConsumer
from hermes.cli import program
from hermes.coordination.kafka_topics import KAFKA_USERS
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationNotAuthorizedError, UnknownTopicError
from hermes.security import ClientSecurity
from hermes.security.users import Users
from hermes.testing import RunningBroker, running_broker

SECONDS = 60
ROOT, BROKERS, BOB = "root", "brokers", "bob"
PASSWORDS = {each: planted(each) for each in (ROOT, BROKERS)}
FIRST, SECOND, OF_THE_FILE = planted("first"), planted("second"), planted("the file's")
SALT = bytes(range(16))
EVERYTHING = [{"principal": each, "operations": ["all"]} for each in (ROOT, BROKERS)]


class Brokers:
    """Brokers of one cluster, each with a users file of its own below `place`."""

    def __init__(self, stack: ExitStack, place: Path, connect: str = "") -> None:
        self._stack = stack
        self._place = place
        self._has_server = not connect
        self.connect = connect
        place.mkdir(exist_ok=True)
        self._password = place / "brokers.password"
        self._password.touch(mode=0o600)
        self._password.write_text(PASSWORDS[BROKERS], encoding="utf-8")

    def start(self, number: int, stack: ExitStack | None = None, **settings: Any) -> RunningBroker:
        if number or not self._has_server:
            as_brokers = {"user": BROKERS, "password_file": str(self._password)}
            settings |= {"coordination": "zookeeper", "zookeeper_connect": self.connect}
            settings["connect_as"] = as_brokers
        else:
            settings["coordination"] = "embedded"
        settings |= {"broker_id": number, "kafka_listen": "tcp:0:interface=127.0.0.1"}
        settings["users_file"] = str(self.users_file(number))
        started = (stack or self._stack).enter_context(
            running_broker(self.log_dir(number), settings, users=PASSWORDS)
        )
        if number == 0:
            self.connect = str(started.zookeeper_connect)
        return started

    def log_dir(self, number: int) -> Path:
        return self._place / f"log {number}"

    def users_file(self, number: int, **more: str) -> Path:
        path = self._place / f"users {number}"
        if more or not path.exists():
            users = Users.none()
            for name, password in {**PASSWORDS, **more}.items():
                users = users.with_user(name, password, iterations=4096)
            path.touch(mode=0o600)
            path.write_bytes(users.encode())
        return path


@pytest.fixture(params=["embedded", "zookeeper"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        connect = ""
        if request.param == "zookeeper":
            (tmp_path / "zookeeper").mkdir()
            server = ZooKeeperProcess(tmp_path / "zookeeper")
            server.start()
            stack.callback(server.stop)
            connect = f"{server.address}/secure"
        yield Brokers(stack, tmp_path / "brokers", connect)


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(stack, tmp_path / "brokers")


def admin(broker: RunningBroker, user: str = ROOT, password: str = PASSWORDS[ROOT]) -> AdminClient:
    return AdminClient(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def alter(broker: RunningBroker, change: Any) -> None:
    client = admin(broker)
    for done in client.alter_user_scram_credentials([change]).values():
        done.result(SECONDS)


def set_password(broker: RunningBroker, name: str, password: str) -> None:
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    alter(broker, UserScramCredentialUpsertion(name, info, password.encode()))


def remove(broker: RunningBroker, name: str) -> None:
    alter(broker, UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_256))


def change_at(broker: RunningBroker, name: str, password: str | None) -> Any:
    """Have this broker set a user's password, or remove it; what is wrong, or None.

    A client that knows the cluster asks its controller, and that is whichever broker it asked last.
    """
    make = parts("AlterUserScramCredentials", 0)
    gone, made = (make.ScramCredentialDeletion(name=name, mechanism=1),), ()
    if password is not None:
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), SALT, 4096)
        entry = {"name": name, "mechanism": 1, "iterations": 4096}
        gone = ()
        made = (make.ScramCredentialUpsertion(**entry, salt=SALT, salted_password=salted),)
    with KafkaConversation(broker.bootstrap_servers, SECONDS) as conversation:
        conversation.log_in(ROOT, PASSWORDS[ROOT])
        answer = conversation.ask("AlterUserScramCredentials", 0, deletions=gone, upsertions=made)
    (result,) = answer.results
    return result.error_message


def consumer(broker: RunningBroker, name: str, password: str) -> SimpleConsumer:
    return SimpleConsumer(broker.host, broker.port, user=name, password=password)


def gets_in(broker: RunningBroker, name: str, password: str) -> bool:
    """Whether that is a user's password, and nothing else was in the way."""
    with consumer(broker, name, password) as client:
        try:
            client.metadata()
        except NotAuthenticatedError:
            return False
        except NotAuthorizedError:
            pass
    return True


def deny(broker: RunningBroker, name: str, topic: str) -> None:
    place = ResourceType.TOPIC, topic, ResourcePatternType.LITERAL
    each = AclBinding(*place, f"User:{name}", "*", AclOperation.ALL, AclPermissionType.DENY)
    client = admin(broker)
    for made in client.create_acls([each]).values():
        made.result(SECONDS)


def may_consume(broker: RunningBroker, name: str, password: str, topic: str) -> bool:
    with consumer(broker, name, password) as client:
        try:
            client.fetch(FetchRequest(topic, 0, 0, 100))
        except NotAuthorizedError:
            return False
        except UnknownTopicError:
            return True
    raise AssertionError


def test_a_user_comes_changes_and_goes_everywhere(brokers: Brokers) -> None:
    one, two = brokers.start(0), brokers.start(1)
    both: tuple[RunningBroker, ...] = one, two
    assert not any(gets_in(each, BOB, FIRST) for each in both)
    set_password(one, BOB, FIRST)
    eventually(lambda: all(gets_in(each, BOB, FIRST) for each in both), "bob gets in")
    for each in both:
        client = admin(each)
        described = client.describe_user_scram_credentials().result(SECONDS)
        assert set(described) == {ROOT, BROKERS, BOB}
    set_password(two, BOB, SECOND)
    eventually(lambda: all(gets_in(each, BOB, SECOND) for each in both), "the new password")
    assert not any(gets_in(each, BOB, FIRST) for each in both)
    with consumer(one, BOB, SECOND) as connected:
        connected.metadata()
        remove(two, BOB)
        eventually(lambda: not any(gets_in(each, BOB, SECOND) for each in both), "bob is out")
        with pytest.raises(NotAuthenticatedError):
            eventually(lambda: connected.metadata() is None, "whoever is connected is put out")
    with pytest.raises(KafkaException, match="there is no user 'bob'"):
        remove(one, BOB)
    third = brokers.start(2)  # knows at its start what the others know
    assert not gets_in(third, BOB, SECOND)
    assert gets_in(third, ROOT, PASSWORDS[ROOT])


def test_a_brokers_own_file_wins(brokers: Brokers) -> None:
    one = brokers.start(0)
    assert change_at(one, BOB, FIRST) is None
    brokers.users_file(1, bob=OF_THE_FILE)
    with log_lines() as lines:
        two = brokers.start(1)
    assert sum("users of users_file and of the cluster: bob;" in line for line in lines) == 1
    assert gets_in(one, BOB, FIRST)
    assert not gets_in(one, BOB, OF_THE_FILE)
    assert gets_in(two, BOB, OF_THE_FILE)
    assert not gets_in(two, BOB, FIRST)
    assert "users_file, which wins here" in change_at(two, BOB, SECOND)
    assert "users_file, which wins here" in change_at(two, BOB, None)
    assert change_at(one, BOB, SECOND) is None
    assert gets_in(one, BOB, SECOND)
    assert not gets_in(two, BOB, SECOND)
    users = Users.parse(brokers.users_file(1).read_bytes())
    brokers.users_file(1).write_bytes(users.without(BOB).encode())
    eventually(lambda: gets_in(two, BOB, SECOND), "the cluster's, once the file says nothing")


def test_what_is_denied_while_a_broker_is_down_is_never_allowed_by_it(brokers: Brokers) -> None:
    may = {"principal": BOB, "operations": ["consume"], "topic": "*"}
    rules = {"access": [*EVERYTHING, may]}
    one = brokers.start(0, **rules)
    with ExitStack() as stack:
        two = brokers.start(1, stack, **rules)
        set_password(two, BOB, FIRST)
        assert may_consume(two, BOB, FIRST, "clicks")
    deny(one, BOB, "clicks")
    # Each of these is the first request that the broker serves; the last one has nothing kept.
    for number in (1, 2):
        late = brokers.start(number, **rules)
        assert not may_consume(late, BOB, FIRST, "clicks")
        assert may_consume(late, BOB, FIRST, "pages")


def test_rules_that_contradict_each_other_are_told_at_the_start(embedded: Brokers) -> None:
    may = {"principal": BOB, "operations": ["consume"], "topic": "clicks"}
    deny(embedded.start(0, access=[*EVERYTHING, {**may, "topic": "*"}]), BOB, "clicks")
    with log_lines() as lines:
        embedded.start(1, access=[*EVERYTHING, may])
    (line,) = [each for each in lines if "what either denies is denied" in each]
    assert "of the cluster: {principal: 'bob', operations: [consume], topic: 'clicks'" in line


def test_who_is_no_broker_can_not_read_users(brokers: Brokers) -> None:
    one = brokers.start(0)
    set_password(one, BOB, FIRST)
    strangers = ClientSecurity(user="stranger", password=planted("stranger"))
    connect = brokers.connect
    of_zookeeper = "/" in connect
    for security in (strangers, None) if of_zookeeper else (None,):
        stranger = Session(connect, security=security)
        if not of_zookeeper:
            with pytest.raises(Exception, match="asks for a user"):
                stranger.start()
            continue
        stranger.start()
        try:
            for attempt in (
                lambda s=stranger: s.get(KAFKA_USERS),
                lambda s=stranger: s.set(KAFKA_USERS, b""),
                lambda s=stranger: s.delete(KAFKA_USERS, -1),
            ):
                with pytest.raises(CoordinationNotAuthorizedError):
                    attempt()
        finally:
            stranger.stop()
    data = _as_brokers(connect, lambda session: session.get(KAFKA_USERS).value)
    assert b"SCRAM-SHA-256$4096:" in data
    assert FIRST.encode() not in data


def _as_brokers(connect: str, do: Callable[[Any], Any]) -> Any:
    session = Session(connect, security=ClientSecurity(user=BROKERS, password=PASSWORDS[BROKERS]))
    session.start()
    try:
        return do(session)
    finally:
        session.stop()


def test_without_coordination_what_was_known_last_holds(embedded: Brokers) -> None:
    may = {"principal": BOB, "operations": ["consume"], "topic": "*"}
    rules = {"access": [*EVERYTHING, may]}
    with ExitStack() as stack:
        one = embedded.start(0, stack, **rules)
        set_password(one, BOB, FIRST)
        deny(one, BOB, "clicks")
    directory = embedded.log_dir(0)
    assert (directory / ".hermes_users").stat().st_mode & 0o777 == 0o600
    for path in directory.glob(".hermes_coordination*"):
        path.write_bytes(b"damaged" * 1000)
    with ExitStack() as stack:
        one = embedded.start(0, stack, **rules)
        assert may_consume(one, BOB, FIRST, "pages")
        assert not may_consume(one, BOB, FIRST, "clicks")
        assert not gets_in(one, "eve", FIRST)
    for name in (".hermes_users", ".hermes_requested"):
        (directory / name).unlink()
    one = embedded.start(0, **rules)  # which knows of no user, and of no rule that may deny
    assert not gets_in(one, BOB, FIRST)
    assert gets_in(one, ROOT, PASSWORDS[ROOT])
    assert not may_consume(one, ROOT, PASSWORDS[ROOT], "pages")


def test_a_cluster_that_lost_its_users_gets_those_of_a_broker(brokers: Brokers) -> None:
    one = brokers.start(0)
    set_password(one, BOB, FIRST)
    connect = brokers.connect
    _as_brokers(connect, lambda session: session.set(KAFKA_USERS, b'{"lines": 5}'))
    with pytest.raises(KafkaException, match="can't be read"):
        set_password(one, BOB, SECOND)
    assert gets_in(one, BOB, FIRST)
    _as_brokers(connect, lambda session: session.delete(KAFKA_USERS, -1))
    eventually(lambda: _as_brokers(connect, lambda s: s.get(KAFKA_USERS)) is not None, "it is back")
    set_password(one, BOB, SECOND)
    eventually(lambda: gets_in(one, BOB, SECOND), "it can be changed")


def test_the_command_changes_the_users_of_all_brokers(embedded: Brokers, tmp_path: Path) -> None:
    first, second = embedded.start(0), embedded.start(1)
    secret = tmp_path / "a password"
    secret.touch(mode=0o600)
    secret.write_text(FIRST, encoding="utf-8")
    own = tmp_path / "root's"
    own.touch(mode=0o600)
    own.write_text(PASSWORDS[ROOT], encoding="utf-8")
    runner = CliRunner()

    def run(*arguments: str, by: RunningBroker = first) -> Any:
        where = ["--kafka", by.bootstrap_servers, "--user", ROOT, "--own-password-file", str(own)]
        return runner.invoke(program, ["users", *arguments, *where])

    def listed(by: RunningBroker) -> dict[str, str | None]:
        ran = run("list", "--json", "--file", str(embedded.users_file(0)), by=by)
        rows = [json.loads(line) for line in ran.stdout.splitlines()]
        return {each["name"]: each["from"] for each in rows}

    of_files = {ROOT: "file", BROKERS: "file"}
    assert listed(first) == of_files
    added = run("add", BOB, "--password-file", str(secret))
    assert (added.stdout, added.exit_code) == ("added bob\n", 0)
    eventually(lambda: listed(second) == {**of_files, BOB: "cluster"})
    eventually(lambda: admin(second, BOB, FIRST).list_topics(timeout=SECONDS) is not None)
    assert "there is a user 'bob' already" in run("add", BOB, "--password-file", str(secret)).stderr
    secret.write_text(SECOND, encoding="utf-8")
    changed = run("passwd", BOB, "--password-file", str(secret), by=second)
    assert changed.stdout == "changed bob\n"
    eventually(lambda: admin(first, BOB, SECOND).list_topics(timeout=SECONDS) is not None)
    assert "change it there" in run("passwd", ROOT, "--password-file", str(secret)).stderr
    assert run("remove", BOB).stdout == "removed bob\n"
    eventually(lambda: listed(second) == of_files)
    assert "there is no user 'bob'" in run("remove", BOB).stderr
