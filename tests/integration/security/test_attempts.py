"""The table of attempts: everything that can be asked, in every way of somebody who doesn't belong.

Each attempt goes over a real socket to a broker whose every port wants TLS and proof. It must be
refused, tell nothing, and leave everything as it was. A new type of request needs a row.
"""

import hashlib
import json
import ssl
import struct
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from attempts import (
    FORGED,
    NODE_REQUESTS,
    REQUESTS,
    ROUTES,
    UNANSWERED,
    WITHOUT_TOPIC,
    Node,
    Wire,
    ask,
    is_refused,
    is_refused_part,
)
from certificates import Certificates, Pair
from hermes_testkit import BrokerProcess
from planted_secrets import planted
from registry_cluster import until

from hermes.client import Producer, ProducerConfig
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import (
    REQUEST_VERSIONS,
    AuthenticateRequest,
    decode_authenticate_response,
)
from hermes.registry.election import LEADER_PATH
from hermes.security import ClientSecurity
from hermes.security.scram import ScramClient
from hermes.security.users import Users

#: alice may do everything with `clicks` and her group; mallory has a password and no right.
PASSWORDS: Final = {name: planted(name) for name in ("alice", "mallory", "operator")}
RULES: Final = [
    {"principal": "alice", "operations": ["all"], "topic": "clicks*"},
    {"principal": "group:friends", "operations": ["all"], "topic": "clicks*"},
    {"principal": "alice", "operations": ["all"], "group": "readers"},
    {"principal": "operator", "operations": ["all"]},
]
HERS, ANOTHERS = "clicks", "secrets"
STORED: Final = b"what nobody else may read"

#: How many more users there are, who may do all that alice may.
USERS: Final = 50

_TYPES: Final = [number for number, _ in REQUEST_VERSIONS]
_TALLY: Final[Counter[str]] = Counter()


class Stand:
    """A broker with a listener for every way of getting it wrong.

    Attributes:
        certificates: those of its listeners, and those of clients.
    """

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        users = Users.none()
        for name, password in PASSWORDS.items():
            users = users.with_user(name, password, iterations=4096)
        for number in range(USERS):
            users = users.with_user(f"user-{number}", planted("user"), ["friends"], iterations=4096)
        users_file = directory / "users"
        users_file.touch(mode=0o600)
        users_file.write_bytes(users.encode())
        self.certificates = certificates
        listeners = {
            "users": _listener(certificates.server, "scram"),
            "certificates": _listener(certificates.server, "tls", certificates.ca),
            "untrusted": _listener(certificates.untrusted_server, "scram"),
            "expired": _listener(certificates.expired_server, "scram"),
            "otherhost": _listener(certificates.wrong_host_server, "scram"),
        }
        self.ready_file = directory / "ready"
        listed = [{"name": name, **each} for name, each in listeners.items()]
        settings = {
            "listen": listed,
            "http_listen": [each for each in listed if each["name"] != "certificates"],
            "coordination": "embedded",
            "coordination_listen": _listener(certificates.server, "scram"),
            "users_file": str(users_file),
            "access": RULES,
            "ready_file": str(self.ready_file),
            "log_dir": str(directory / "log"),
        }
        self.process = BrokerProcess(directory / "broker", settings)
        told = json.loads(self.ready_file.read_text())
        self.ports = {each["name"]: each["port"] for each in told["listen"]}
        self.web_ports = {each["name"]: each["port"] for each in told["http_listen"]}
        self.web_port = self.web_ports["users"]
        self.coordination = told["zookeeper_connect"]
        self._fill()

    def _fill(self) -> None:
        """Put something into both topics, which makes them, as the operator."""
        config = ProducerConfig(
            broker_list=f"0:127.0.0.1:{self.ports['users']}",
            acks="flushed",
            tls_ca=str(self.certificates.ca),
            user="operator",
            password=PASSWORDS["operator"],
        )
        with Producer(config) as producer:
            for topic in (HERS, ANOTHERS):
                producer.send(topic, STORED)
        session = Session(
            self.coordination,
            security=ClientSecurity(
                tls_ca=str(self.certificates.ca), user="operator", password=PASSWORDS["operator"]
            ),
        )
        session.start()
        try:
            for group in ("readers", "others"):
                store_offsets(session, group, {(HERS, BrokerPartition(0, 0)): 7})
            # The last that a broker adds by itself as it starts.
            until(lambda: session.get(LEADER_PATH) is not None, "the registry's leader")
        finally:
            session.stop()

    def context(self, client: Pair | None = None, ca: Path | None = None) -> ssl.SSLContext:
        """TLS as a client has it, that trusts the test authority unless told otherwise."""
        made = ssl.create_default_context(cafile=str(ca or self.certificates.ca))
        if client is not None:
            made.load_cert_chain(client.certificate, client.key)
        return made

    def stored(self) -> dict[str, str]:
        """All files of the broker's logs and topics, by what is in them."""
        log_dir = self.process.log_dir
        return {
            str(path.relative_to(log_dir)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(log_dir.rglob("*"))
            if path.is_file() and not path.name.startswith(".hermes_coordination")
        }


def _listener(pair: Pair, authentication: str, client_ca: Path | None = None) -> dict[str, Any]:
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    if client_ca is not None:
        tls |= {"client_ca": str(client_ca), "client_certificate": "required"}
    return {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "tls": tls,
        "authentication": authentication,
    }


@pytest.fixture(scope="module")
def stand(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Stand]:
    made = Stand(tmp_path_factory.mktemp("stand"), certificates)
    yield made
    assert made.process.stop() == 0
    rows = [f"{way}: {count}" for way, count in sorted(_TALLY.items())]
    sys.stdout.write("\n  ".join((f"\nrefused: {sum(_TALLY.values())} attempts", *rows, "")))


# -- ways of getting in ---------------------------------------------------------------------------


def _log_in(wire: Wire, user: str, password: str) -> bool:
    """Say who one is; whether the broker believes it."""
    client = ScramClient(user, password)
    answer = wire.call(AuthenticateRequest(client.mechanism, client.first()).encode())
    if answer[:2] != b"\0\0":
        return False
    proof = client.answer(decode_authenticate_response(answer))
    answer = wire.call(AuthenticateRequest(client.mechanism, proof).encode())
    if answer[:2] != b"\0\0":
        return False
    client.verify(decode_authenticate_response(answer))
    return True


def _as(user: str) -> Callable[[Stand, ExitStack], Wire]:
    """With the right password."""

    def enter(stand: Stand, stack: ExitStack) -> Wire:
        wire = stack.enter_context(Wire(stand.ports["users"], stand.context()))
        assert _log_in(wire, user, PASSWORDS[user])
        return wire

    return enter


# Each try from an address of its own, and for a user of its own: else the broker would soon refuse
# all of them without a look.
_TRIES: Final = count()


def _trying(user: str) -> Callable[[Stand, ExitStack], Wire]:
    """With a wrong password, for a user whose name ends in a number."""

    def enter(stand: Stand, stack: ExitStack) -> Wire:
        number = next(_TRIES)
        source = f"127.0.{2 + number // 200}.{1 + number % 200}"
        wire = stack.enter_context(Wire(stand.ports["users"], stand.context(), source))
        assert not _log_in(wire, f"{user}-{number % USERS}", "not the password")
        return wire

    return enter


def _by(
    listener: str, context: Callable[[Stand], ssl.SSLContext | None]
) -> Callable[[Stand, ExitStack], Wire]:
    return lambda stand, stack: stack.enter_context(Wire(stand.ports[listener], context(stand)))


WAYS: Final[dict[str, Callable[[Stand, ExitStack], Wire]]] = {
    "no TLS": _by("users", lambda stand: None),
    "no TLS, where certificates are wanted": _by("certificates", lambda stand: None),
    "a broker of an unknown authority": _by("untrusted", lambda stand: stand.context()),
    "a broker whose certificate has expired": _by("expired", lambda stand: stand.context()),
    "a broker of another name": _by("otherhost", lambda stand: stand.context()),
    "a client of an unknown authority": _by(
        "certificates", lambda stand: stand.context(stand.certificates.untrusted_client)
    ),
    "a client whose certificate has expired": _by(
        "certificates", lambda stand: stand.context(stand.certificates.expired_client)
    ),
    "a client without a certificate": _by("certificates", lambda stand: stand.context()),
    "no user": _by("users", lambda stand: stand.context()),
    "a wrong password": _trying("user"),
    "a user that there isn't": _trying("nobody"),
    "a user without any right": _as("mallory"),
    "a certificate without any right": _by(
        "certificates", lambda stand: stand.context(stand.certificates.client("mallory"))
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_who_does_not_belong_gets_nothing(stand: Stand, way: str) -> None:
    before = stand.stored()
    for number in _TYPES:
        for topic in (HERS, "a-new-topic"):
            _attempt(stand, way, number, topic, WAYS[way])
    assert stand.stored() == before


@pytest.mark.parametrize("way", ["a password", "a certificate"])
def test_who_belongs_gets_nothing_of_others(stand: Stand, way: str) -> None:
    enter = {
        "a password": _as("alice"),
        "a certificate": _by(
            "certificates", lambda stand: stand.context(stand.certificates.client("alice"))
        ),
    }[way]
    before = stand.stored()
    for number in _TYPES:
        if number not in WITHOUT_TOPIC:
            _attempt(stand, f"another's topic, with {way}", number, ANOTHERS, enter)
    for number in (73, 76):  # they are about the broker
        _attempt(stand, f"another's topic, with {way}", number, ANOTHERS, enter)
    assert stand.stored() == before


# -- HTTP -----------------------------------------------------------------------------------------


def _source() -> str:
    number = next(_TRIES)
    return f"127.0.{2 + number // 200}.{1 + number % 200}"


WEB_WAYS: Final[dict[str, Callable[[Stand], dict[str, Any]]]] = {
    "no TLS": lambda stand: {"context": None},
    "no user": lambda stand: {"context": stand.context()},
    "a wrong password": lambda stand: {
        "context": stand.context(),
        "credentials": f"user-{next(_TRIES) % USERS}:wrong",
        "source": _source(),
    },
    "a user that there isn't": lambda stand: {
        "context": stand.context(),
        "credentials": f"nobody-{next(_TRIES)}:wrong",
        "source": _source(),
    },
    "a user without any right": lambda stand: {
        "context": stand.context(),
        "credentials": f"mallory:{PASSWORDS['mallory']}",
    },
}


@pytest.mark.parametrize("way", WEB_WAYS)
def test_who_does_not_belong_is_shown_nothing(stand: Stand, way: str) -> None:
    before = stand.stored()
    for route in ROUTES:
        status, body = ask(
            stand.web_port, route=route, topic=HERS, group="readers", **WEB_WAYS[way](stand)
        )
        allowed = (0, 302, 303, 400, 401, 403, 404)
        if way == "a user without any right" and status == 200:
            assert not route[1].startswith(("/metrics", "/registry")), route
        else:
            assert status in allowed, (way, route, status)
        assert STORED.decode() not in body
        for name in (HERS, ANOTHERS, "readers", "others"):
            if name not in route[1].format(topic=HERS, group="readers"):  # it may say what it lacks
                assert name not in body, (way, route, name)
        _TALLY.update([f"HTTP: {way}"])
    assert stand.stored() == before


@pytest.mark.parametrize("listener", ["untrusted", "expired", "otherhost"])
def test_a_web_server_that_is_not_who_it_should_be_is_told_nothing(
    stand: Stand, listener: str
) -> None:
    for route in ROUTES:
        with pytest.raises(ssl.SSLCertVerificationError):
            ask(stand.web_ports[listener], stand.context(), route, topic=HERS, group="readers")
        _TALLY.update([f"HTTP: a server that is {listener}"])


def test_who_belongs_is_shown_nothing_of_others(stand: Stand) -> None:
    hers = {"credentials": f"alice:{PASSWORDS['alice']}", "context": stand.context()}
    before = stand.stored()
    for route in ROUTES:
        names = {"topic": ANOTHERS, "group": "others"}
        _, body = ask(stand.web_port, route=route, **hers, **names)
        path = route[1].format(**names)
        assert STORED.decode() not in body
        if ANOTHERS not in path and "others" not in path:
            assert ANOTHERS not in body, route
            assert "others" not in body, route
        _TALLY.update(["HTTP: another's topic and group"])
    assert stand.stored() == before
    status, body = ask(stand.web_port, route=("GET", "/topics", ""), **hers)
    assert status == 200
    assert HERS in body


# -- coordination ---------------------------------------------------------------------------------

#: What is another's, and what is the brokers'.
NODES: Final = (
    "/consumers/others",
    "/consumers/others/offsets/clicks/0-0",
    "/brokers/ids/0",
    "/brokers/topics/secrets",
    "/brokers/topics/secrets/0",
    "/hermes/brokers/0",
    "/",
)
# Whoever has proved who they are may know where the brokers are.
_READABLE: Final = {"/", "/brokers/ids/0", "/hermes/brokers/0"}
_READS: Final = {"exists, with a watch", "get", "children", "children with stat", "get ACL"}


def _node(
    stand: Stand, stack: ExitStack, credentials: str, source: str = "127.0.0.1", tls: bool = True
) -> Node:
    _, port = stand.coordination.split(":")
    context = stand.context() if tls else None
    node = stack.enter_context(Node(int(port), context, source))
    node.open(credentials)
    return node


@pytest.mark.parametrize(
    "way",
    [
        "no TLS",
        "no user",
        "a wrong password",
        "a user that there isn't",
        "a user without any right",
        "another's group",
    ],
)
def test_who_does_not_belong_changes_and_learns_nothing_of_coordination(
    stand: Stand, way: str
) -> None:
    before = _tree(stand)
    assert "/consumers/others/offsets/clicks/0-0" in before
    for name in NODE_REQUESTS:
        for path in NODES:
            credentials, source, tls = "", "127.0.0.1", way != "no TLS"
            if way == "a wrong password":
                credentials, source = f"user-{next(_TRIES) % USERS}:wrong", _source()
            elif way == "a user that there isn't":
                credentials, source = f"nobody-{next(_TRIES)}:wrong", _source()
            elif way == "a user without any right":
                credentials = f"mallory:{PASSWORDS['mallory']}"
            elif way == "another's group":
                credentials = f"alice:{PASSWORDS['alice']}"
            with ExitStack() as stack:
                try:
                    error, rest = _node(stand, stack, credentials, source, tls).request(name, path)
                except (ssl.SSLError, ConnectionError):
                    error, rest = None, b""
            is_somebody = way in ("a user without any right", "another's group")
            if is_somebody and name in _READS and path in _READABLE:
                assert error == 0, (way, name, path)
                assert b"secrets" not in rest, (name, path)
                assert b"others" not in rest, (name, path)
                continue
            assert error != 0 or is_refused_part(name, rest), (way, name, path, rest)
            assert b"127.0.0.1" not in rest
            _TALLY.update([f"coordination: {way}"])
    assert _tree(stand) == before


def _tree(stand: Stand) -> dict[str, bytes]:
    """All nodes as the operator sees them, with their values."""
    found: dict[str, bytes] = {}
    with ExitStack() as stack:
        node = _node(stand, stack, f"operator:{PASSWORDS['operator']}")

        def walk(path: str) -> None:
            error, value = node.request("get", path)
            assert error == 0, path
            found[path] = value[:-68]  # without its stat
            error, names = node.request("children", path)
            assert error == 0, path
            (number,) = struct.unpack_from(">i", names)
            at = 4
            for _ in range(max(0, number)):
                (size,) = struct.unpack_from(">i", names, at)
                name = names[at + 4 : at + 4 + size].decode()
                at += 4 + size
                walk(f"{path.rstrip('/')}/{name}")

        walk("/")
    return found


# -- the table ------------------------------------------------------------------------------------


def test_every_type_of_request_has_its_row() -> None:
    assert sorted(REQUESTS) == _TYPES
    assert set(_TYPES) >= WITHOUT_TOPIC


def test_who_belongs_is_served(stand: Stand) -> None:
    """Else nothing above shows anything."""
    served = 0
    for enter in (
        _as("alice"),
        _by("certificates", lambda stand: stand.context(stand.certificates.client("alice"))),
    ):
        for number in _TYPES:
            if number in (68, 73, 76, 80) or number in UNANSWERED:
                continue
            with ExitStack() as stack:
                answer = enter(stand, stack).call(REQUESTS[number](HERS))
                assert answer, number
                assert not is_refused(number, answer), (number, answer)
                served += 1
    assert served > 30


def _attempt(
    stand: Stand,
    way: str,
    number: int,
    topic: str,
    enter: Callable[[Stand, ExitStack], Wire],
) -> None:
    """Make one attempt, which is to be refused, be it while the connection is made or after."""
    with ExitStack() as stack:
        try:
            wire = enter(stand, stack)
        except (ssl.SSLError, ConnectionError):
            _TALLY.update([way])
            return
        answer = wire.call(REQUESTS[number](topic))
        if number != AuthenticateRequest.TYPE:  # whose answer to anybody is a salt of no meaning
            assert is_refused(number, answer), (way, number, topic, answer)
        assert STORED not in answer
        assert FORGED not in answer
        _TALLY.update([way])
