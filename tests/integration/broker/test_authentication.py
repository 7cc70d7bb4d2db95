"""A real broker that wants users: who gets in, what becomes of them, what it says about it."""

import re
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Certificates
from hermes_testkit import (
    DEADLINE_SECONDS,
    BrokerProcess,
    RawClient,
    fetch,
    message,
    produce,
    produce_acknowledged,
    wait_until_visible,
)

from hermes.client import SimpleConsumer, SyncProducer
from hermes.errors import NotAuthenticatedError
from hermes.protocol import (
    AuthenticateRequest,
    ErrorCode,
    ProduceRequest,
    decode_authenticate_response,
)
from hermes.security.scram import ScramClient
from hermes.security.users import Users
from hermes.security.users_file import change_users_file

StartBroker = Callable[..., BrokerProcess]

HELLO = message(b"hello")


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    path = tmp_path / "users"

    def add(users: Users) -> Users:
        return users.with_user("alice", "wonder", iterations=4096).with_user(
            "bob", "builder", iterations=4096
        )

    change_users_file(path, add, may_create=True)
    return path


@pytest.fixture
def broker(start_broker: StartBroker, users_file: Path) -> BrokerProcess:
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    return start_broker(listen=listener, users_file=str(users_file))


def log_in(client: RawClient, user: str, password: str) -> None:
    scram = ScramClient(user, password)
    challenge = _ask(client, scram.first())
    scram.verify(_ask(client, scram.answer(challenge)))


def _ask(client: RawClient, text: bytes) -> bytes:
    answer = client.call(AuthenticateRequest("SCRAM-SHA-256", text).encode())
    return decode_authenticate_response(answer[4:])


def is_served(client: RawClient) -> bool:
    return bool(client.call(produce_acknowledged(("t", 0, HELLO)))[4:6] == b"\0\0")


def test_only_users_are_served(broker: BrokerProcess) -> None:
    with broker.connect() as alice, broker.connect() as stranger:
        log_in(alice, "alice", "wonder")
        assert is_served(alice)
        with pytest.raises(NotAuthenticatedError):
            log_in(stranger, "alice", "builder")
        assert stranger.closed()
    line = broker.wait_for_line("could not authenticate as alice")
    assert "builder" not in "".join(broker.lines)
    assert "the user or the password is wrong" in line


def test_changes_of_the_file_hold_while_the_broker_runs(
    broker: BrokerProcess, users_file: Path
) -> None:
    with broker.connect() as alice, broker.connect() as bob:
        log_in(alice, "alice", "wonder")
        log_in(bob, "bob", "builder")
        change_users_file(
            users_file,
            lambda users: users.without("bob").with_user("carol", "c", iterations=4096),
        )
        broker.wait_for_line("its user was removed")
        assert bob.closed()
        with broker.connect() as carol:
            log_in(carol, "carol", "c")
            assert is_served(carol)
        good = users_file.read_bytes()
        users_file.write_text("alice:hunter2\n")
        broker.wait_for_line("users stay as they were")
        assert "hunter2" not in "".join(broker.lines)
        assert is_served(alice)
        with broker.connect() as carol:
            log_in(carol, "carol", "c")
        users_file.write_bytes(good)
        change_users_file(
            users_file, lambda users: users.with_password("alice", "new", iterations=4096)
        )
        broker.wait_for_line("its user has another password")
        assert alice.closed()


@pytest.mark.parametrize("harm", ["missing", "mode", "nonsense"])
def test_a_users_file_that_can_not_be_used_keeps_a_broker_from_starting(
    tmp_path: Path, users_file: Path, harm: str
) -> None:
    if harm == "missing":
        users_file.unlink()
    elif harm == "mode":
        users_file.chmod(0o644)
    else:
        users_file.write_text("alice:hunter2\n")
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    settings = {
        "log_dir": str(tmp_path / "logs"),
        "listen": listener,
        "users_file": str(users_file),
    }
    refused = BrokerProcess(tmp_path / "refused", settings, wait=False)
    assert refused.wait() == 1
    output = "".join(refused.lines)
    assert "users_file" in output
    assert str(users_file) in output
    assert "hunter2" not in output
    assert "Traceback" not in output


def test_whoever_has_no_users_pays_for_none(start_broker: StartBroker) -> None:
    """Neither time nor memory: the library isn't even imported."""
    broker = start_broker()
    with broker.connect() as client:
        assert is_served(client)
    code = (
        "import sys, hermes.tap, hermes.broker.connection\n"
        "print('scramp' in sys.modules, 'hermes.security.users' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert found.stdout == "False False\n"


def test_groups_hold_for_connections_that_there_are(
    start_broker: StartBroker, users_file: Path
) -> None:
    everything = {"principal": "group:writers", "operations": ["all"]}
    broker = start_broker(
        listen={"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"},
        users_file=str(users_file),
        access=[everything],
    )
    with broker.connect() as client:
        log_in(client, "alice", "wonder")

        def code() -> int:
            answer = client.call(produce_acknowledged(("t", 0, HELLO)))
            return int.from_bytes(answer[12:14] if answer[4:6] == b"\0\0" else answer[4:6])

        assert code() == ErrorCode.NOT_AUTHORIZED
        for groups, expected in ((["writers"], 0), ([], ErrorCode.NOT_AUTHORIZED)):
            change_users_file(
                users_file,
                lambda users, groups=groups: users.with_groups("alice", groups),  # type: ignore[misc]
            )
            deadline = time.monotonic() + DEADLINE_SECONDS
            while code() != expected:
                assert time.monotonic() < deadline, f"{groups} have no effect"


def test_a_client_without_a_user_is_told_so_at_once(broker: BrokerProcess) -> None:
    with SimpleConsumer("127.0.0.1", broker.port) as consumer:
        for ask in (lambda: consumer.metadata(["t"]), lambda: consumer.metadata([])):
            with pytest.raises(NotAuthenticatedError, match="give a user and a password"):
                ask()
    with (
        SyncProducer("127.0.0.1", broker.port) as producer,
        pytest.raises(NotAuthenticatedError, match="give a user and a password"),
    ):
        producer.send_acknowledged([ProduceRequest("t", 0, message(bytes(10_000)))])
    broker.wait_for_line("did not say who it is: this listener (0) wants a user")


# -- with TLS ------------------------------------------------------------------------------------


@pytest.fixture
def tls_broker(
    start_broker: StartBroker, users_file: Path, certificates: Certificates
) -> BrokerProcess:
    tls = {"certificate": str(certificates.server.certificate), "key": str(certificates.server.key)}
    by_password = {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "authentication": "scram",
        "tls": tls,
    }
    by_certificate = {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "authentication": "tls",
        "tls": {**tls, "client_ca": str(certificates.ca)},
    }
    return start_broker(listen=[by_password, by_certificate], users_file=str(users_file))


def ports(broker: BrokerProcess) -> list[int]:
    line = broker.wait_for_line("is ready: Hermes")
    listening = line.partition("listening on ")[2].partition(", logs in")[0]
    return [int(each) for each in re.findall(r"127\.0\.0\.1:(\d+)", listening)]


def test_users_and_certificates_say_who_a_client_is(
    tls_broker: BrokerProcess, certificates: Certificates
) -> None:
    by_password, by_certificate = ports(tls_broker)
    ca, mine = str(certificates.ca), certificates.client("web-1")
    with SyncProducer(
        "127.0.0.1", by_password, tls_ca=ca, user="alice", password="wonder"
    ) as producer:
        producer.send_acknowledged([ProduceRequest("by-alice", 0, HELLO)])
    with SyncProducer(
        "127.0.0.1",
        by_certificate,
        tls_ca=ca,
        tls_certificate=str(mine.certificate),
        tls_key=str(mine.key),
    ) as producer:
        producer.send_acknowledged([ProduceRequest("by-certificate", 0, HELLO)])
    assert " for alice@127.0.0.1:" in tls_broker.wait_for_line("created topic by-alice")
    assert " for web-1@127.0.0.1:" in tls_broker.wait_for_line("created topic by-certificate")


def test_a_wrong_password_over_tls_is_an_error_at_once(
    tls_broker: BrokerProcess, certificates: Certificates
) -> None:
    by_password, _ = ports(tls_broker)
    with (
        SyncProducer(
            "127.0.0.1", by_password, tls_ca=str(certificates.ca), user="alice", password="wrong"
        ) as producer,
        pytest.raises(NotAuthenticatedError, match="alice"),
    ):
        producer.send_acknowledged([ProduceRequest("t", 0, HELLO)])
    assert not (tls_broker.log_dir / "t-0").exists()


def test_a_client_of_kafka_0_7_comes_in_through_a_tunnel(
    tls_broker: BrokerProcess, certificates: Certificates
) -> None:
    """What the tunnel does to its bytes is TLS; what it says of it is in its certificate."""
    by_password, by_certificate = ports(tls_broker)
    mine = certificates.client("legacy")
    context = ssl.create_default_context(cafile=str(certificates.ca))
    context.load_cert_chain(mine.certificate, mine.key)

    def through_a_tunnel(port: int) -> RawClient:
        client = RawClient(port)
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        return client

    with through_a_tunnel(by_certificate) as client:
        client.send(produce("of-0-7", 0, HELLO))
        assert client.alive()
        wait_until_visible(client, "of-0-7", 0, len(HELLO))
        assert client.call(fetch("of-0-7", 0, 0))[6:] == HELLO
    assert " for legacy@127.0.0.1:" in tls_broker.wait_for_line("created topic of-0-7")
    with through_a_tunnel(by_password) as client:
        client.send(produce("stolen", 0, HELLO))
        assert client.closed()
    assert not (tls_broker.log_dir / "stolen-0").exists()
