"""Users of a broker without sockets, and how one of its clients says who it is."""

from collections.abc import Callable
from typing import Any

from broker_bench import BrokerBench, answers
from hermes_testkit import message, produce_acknowledged

from hermes.interfaces import User
from hermes.protocol import (
    AuthenticateRequest,
    decode_authenticate_response,
)
from hermes.security.scram import ScramClient
from hermes.security.users import Users
from hermes.server.policies import ListenerPolicy

__all__ = ["HELLO", "SCRAM", "USERS", "Connect", "Directory", "ask", "is_served", "log_in"]

SCRAM = ListenerPolicy("users", "scram")
HELLO = message(b"hello")


class Directory:
    """Users that a test changes; what an authenticator is that may also be down."""

    def __init__(self, users: Users) -> None:
        self.users = users
        self.is_down = False
        self.problem: str | None = None

    def find(self, name: str) -> User | None:
        if self.is_down:
            raise OSError("the directory is down")
        return self.users.find(name)

    def disguise(self) -> Any:
        return self.users.disguise()

    def revision(self) -> object:
        return id(self.users)


USERS = (
    Users.none()
    .with_user("alice", "wonder", ["web"], iterations=4096)
    .with_user("bob", "builder", iterations=4096)
)

Connect = Callable[..., tuple[Any, Any]]


def ask(connection: Any, transport: Any, mechanism: str, text: bytes) -> bytes:
    connection.dataReceived(AuthenticateRequest(mechanism, text).encode())
    (answer,) = answers(transport)
    return decode_authenticate_response(answer)


def log_in(
    connected: tuple[Any, Any], user: str, password: str, mechanism: str = "SCRAM-SHA-256"
) -> None:
    client = ScramClient(user, password, mechanism)
    challenge = ask(*connected, mechanism, client.first())
    client.verify(ask(*connected, mechanism, client.answer(challenge)))


def is_served(bench: BrokerBench, connected: tuple[Any, Any]) -> bool:
    connection, transport = connected
    bench.clock.advance(0)
    connection.dataReceived(produce_acknowledged(("t", 0, HELLO)))
    bench.clock.advance(1)
    (answer,) = answers(transport)
    return answer[:2] == b"\0\0"
