"""Where the registry's topic lives: one broker of the cluster, recorded once in coordination.

    /registry/home      persistent      {"broker": <id>}

Whoever writes the first event records it; from then on it stays, since ids that were given out are
only there. A broker that has the topic already is preferred: coordination may have lost its nodes.
"""

import json
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

from hermes.config.topic import SCHEMAS_TOPIC
from hermes.coordination.cluster_view import read_brokers, read_partition_counts
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationError, HermesError, InvalidNodeError
from hermes.quoting import quoted
from hermes.security import PLAIN, ClientSecurity

#: The node with the home's broker id.
HOME_PATH: Final = "/registry/home"


class HomeError(HermesError):
    """The home is known, or could be, but can't be used."""


class HomeBroker(NamedTuple):
    """The broker with the topic. `broker_id`: -1 where only its address is known."""

    broker_id: int
    host: str
    port: int
    security: ClientSecurity = PLAIN

    def __str__(self) -> str:
        where = f"{self.host}:{self.port}"
        return where if self.broker_id < 0 else f"broker {self.broker_id} at {where}"


class HomeLocator(Protocol):
    """Finds the home. Blocks; for one thread at a time."""

    def find(self) -> HomeBroker | None:
        """The home of now; None when there is none yet. Raises HermesError."""

    def choose(self) -> HomeBroker:
        """The home, which is recorded if there was none.

        Raises HermesError: as for `find`; or there is no broker, or more than one with events.
        """

    def remember(self, broker_id: int) -> None:
        """Prefer a broker, which was the home according to a snapshot."""


class FixedHome:
    """The home where there is no coordination: a broker that somebody has named."""

    def __init__(self, home: HomeBroker) -> None:
        self._home = home

    def find(self) -> HomeBroker | None:
        return self._home

    def choose(self) -> HomeBroker:
        return self._home

    def remember(self, broker_id: int) -> None:
        """See `HomeLocator`: there is no other."""


class RecordedHome:
    """The home that coordination records.

    Args:
        session: gives the session with coordination, or raises why there is none at the moment.
        own: the broker in whose process this is; None where it is in none.
        security: how to connect to other brokers; may block, and raise HermesError.
    """

    def __init__(
        self,
        session: Callable[[], Session],
        own: HomeBroker | None,
        security: Callable[[], ClientSecurity] = lambda: PLAIN,
    ) -> None:
        self._session = session
        self._own = own
        self._security = security
        self._remembered: int | None = None

    def remember(self, broker_id: int) -> None:
        self._remembered = broker_id if broker_id >= 0 else None

    def find(self) -> HomeBroker | None:
        session = self._session()
        node = session.get(HOME_PATH, watch=True)
        return None if node is None else self._place(session, _parse(node.value))

    def choose(self) -> HomeBroker:
        session = self._session()
        node = session.get(HOME_PATH)
        if node is None:
            session.create(HOME_PATH, json.dumps({"broker": self._candidate(session)}).encode())
            node = session.get(HOME_PATH)  # another's, perhaps
        if node is None:
            raise HomeError(f"{HOME_PATH} was deleted in the very moment")
        return self._place(session, _parse(node.value))

    def _candidate(self, session: Session) -> int:
        if self._remembered is not None:
            return self._remembered
        holders = list(read_partition_counts(session, SCHEMAS_TOPIC, _ignore))
        if len(holders) > 1:
            names = ", ".join(map(str, holders))
            raise HomeError(
                f"the brokers {names} all have a topic {SCHEMAS_TOPIC}, and {HOME_PATH} is gone: "
                f'write the right one there, as {{"broker": {holders[0]}}}'
            )
        if holders:
            return holders[0]
        if self._own is not None:
            return self._own.broker_id
        brokers = read_brokers(session, _ignore, security=PLAIN)  # whatever their addresses
        if not brokers:
            raise HomeError("no broker is registered that could keep the registry's topic")
        return next(iter(brokers))

    def _place(self, session: Session, broker_id: int) -> HomeBroker:
        if self._own is not None and broker_id == self._own.broker_id:
            return self._own
        security = self._security()
        node = read_brokers(session, _ignore, security=security).get(broker_id)
        if node is None:
            raise HomeError(f"the registry's home, broker {broker_id}, does not run")
        return HomeBroker(broker_id, node.host, node.port, security)


def _parse(value: bytes) -> int:
    try:
        broker_id = json.loads(value)["broker"]
    except (ValueError, RecursionError, KeyError, TypeError):
        broker_id = None
    if type(broker_id) is not int or broker_id < 0:
        raise InvalidNodeError(
            f'{HOME_PATH}: expected {{"broker": <id>}}, got {quoted(value) if value else "nothing"}'
        )
    return broker_id


def _ignore(fault: CoordinationError) -> None:
    """The broker's own registration, and clients, say what is wrong with nodes."""
