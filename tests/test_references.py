"""Who holds whom, in a broker and an embedded server at work: references go one way.

Lower parts report upwards by callbacks, which are not followed here. A table of connections holds
them as whatever protocol it declares, which is the one way back.
"""

import struct
from collections import deque
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from broker_bench import BrokerBench
from hermes_testkit import fetch, message, produce, waiting_fetch
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import Logger

from hermes.coordination.embedded.clients import Clients
from hermes.coordination.embedded.commit_queue import CommitQueue
from hermes.coordination.embedded.connection import CoordinationFactory
from hermes.coordination.embedded.processor import RequestProcessor, ServerState
from hermes.limited_log import LimitedLog

CONTAINERS = (dict, list, tuple, set, frozenset, deque)


def values_of(thing: Any) -> Iterator[Any]:
    """What an object or a container refers to, slot by slot."""
    if isinstance(thing, dict):
        yield from thing
        yield from thing.values()
    elif isinstance(thing, CONTAINERS):
        yield from thing
    else:
        yield from getattr(thing, "__dict__", {}).values()
        names = (name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ()))
        yield from (getattr(thing, name) for name in names if hasattr(thing, name))


def held_by(thing: Any) -> Iterator[Any]:
    """The objects of Hermes that an object refers to, directly or in containers."""
    for value in values_of(thing):
        if isinstance(value, CONTAINERS):
            yield from held_by(value)
        elif type(value).__module__.startswith("hermes."):
            yield value


def holders(root: Any) -> dict[str, set[str]]:
    """Of each class of object that can be reached the classes that it holds."""
    found: dict[str, set[str]] = {}
    seen: dict[int, Any] = {}
    reached = [root]
    while reached:
        thing = reached.pop()
        if id(thing) not in seen:
            seen[id(thing)] = thing
            held = list(held_by(thing))
            found.setdefault(type(thing).__name__, set()).update(type(h).__name__ for h in held)
            reached += held
    return found


def check_one_way(connection: Any, *above: str) -> None:
    found = holders(connection)
    name = type(connection).__name__
    assert len(found) > 10, "most of the server can be reached"
    assert not found.keys() & set(above)
    for held in found.values():
        held.discard(name)
    TopologicalSorter(found).prepare()  # raises CycleError


def test_a_broker_is_held_one_way(tmp_path: Path) -> None:
    bench = BrokerBench(tmp_path)
    connection, _ = bench.connect()
    connection.dataReceived(produce("t", 0, message(b"x")) + fetch("t", 0, 0))
    connection.dataReceived(waiting_fetch(("t", 0, 1 << 20, 100)))
    check_one_way(connection, "BrokerFactory", "ServingBroker", "BrokerService")
    bench.close()


def test_an_embedded_server_is_held_one_way() -> None:
    clock = Clock()
    clients = Clients(clock)
    queue = CommitQueue(lambda then, changes, zxid: then(None), lambda failure: None, clock)
    log = LimitedLog(Logger(), clock.seconds)
    clients.processor = RequestProcessor(
        ServerState(), queue, (1000, 10_000), clock, lambda: 1_700_000_000_000, log
    )
    connection: Any = CoordinationFactory(clients).buildProtocol(None)
    connection.makeConnection(StringTransport())
    connection.dataReceived(struct.pack(">iiqiqi", 44, 0, 0, 5000, 0, 16) + bytes(16))
    clock.advance(0)
    assert connection.session is not None
    check_one_way(connection, "CoordinationFactory", "EmbeddedCoordination", "StoreKeeper")
