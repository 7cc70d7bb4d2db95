"""The table of attempts: everything that can be asked, in every way of somebody who doesn't belong.

Each attempt goes over a real socket to a broker whose every port wants TLS and proof. It must be
refused, tell nothing, and leave everything as it was. A new type of request needs a row.
"""

import hashlib
import json
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any, Final

import pytest
from attempts import FORGED, REQUESTS, UNANSWERED, WITHOUT_TOPIC, Wire, is_refused
from certificates import Certificates, Pair
from hermes_testkit import BrokerProcess

from hermes.client import Producer, ProducerConfig
from hermes.protocol import (
    REQUEST_VERSIONS,
    AuthenticateRequest,
    decode_authenticate_response,
)
from hermes.security.scram import ScramClient
from hermes.security.users import Users

#: alice may do everything with `clicks` and her group; mallory has a password and no right.
PASSWORDS: Final = {"alice": "wonderland-7391", "mallory": "evil-2846"}
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
_TALLY: Final[dict[str, int]] = {}


class Stand:
    """A broker with a listener for every way of getting it wrong.

    Attributes:
        certificates: those of its listeners, and those of clients.
    """

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        users = Users.none()
        for name, password in (*PASSWORDS.items(), ("operator", "calm-5120")):
            users = users.with_user(name, password, iterations=4096)
        for number in range(USERS):
            users = users.with_user(f"user-{number}", "hers-4471", ["friends"], iterations=4096)
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
        settings = {
            "listen": [{"name": name, **each} for name, each in listeners.items()],
            "http_listen": [{"name": "web", **_listener(certificates.server, "scram")}],
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
        self.web_port = told["http_listen"][0]["port"]
        self.coordination = told["zookeeper_connect"]
        self._fill()

    def _fill(self) -> None:
        """Put something into both topics, which makes them, as the operator."""
        config = ProducerConfig(
            broker_list=f"0:127.0.0.1:{self.ports['users']}",
            acks="flushed",
            tls_ca=str(self.certificates.ca),
            user="operator",
            password="calm-5120",
        )
        with Producer(config) as producer:
            for topic in (HERS, ANOTHERS):
                producer.send(topic, STORED)

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
            _TALLY[way] = _TALLY.get(way, 0) + 1
            return
        answer = wire.call(REQUESTS[number](topic))
        if number != AuthenticateRequest.TYPE:  # whose answer to anybody is a salt of no meaning
            assert is_refused(number, answer), (way, number, topic, answer)
        assert STORED not in answer
        assert FORGED not in answer
        _TALLY[way] = _TALLY.get(way, 0) + 1
