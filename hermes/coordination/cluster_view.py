"""The brokers and their partitions, as clients see them in ZooKeeper.

What others have written there is data, not truth. An entry that can't be understood costs what it
is about, one broker or one broker's part of a topic; it is reported to `on_fault`, and the others
are read. With `watch`, the session's `on_change` is called for changes. Everything here raises
CoordinationUnavailableError when ZooKeeper does not answer.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from hermes.coordination.kafka_topics import (
    KAFKA_TOPICS,
    RECORD_TOPICS,
    fits_in_a_path,
    parse_topic,
    topic_node_path,
)
from hermes.coordination.layout import (
    BROKER_IDS,
    BROKER_TOPICS,
    BrokerNode,
    BrokerPartition,
    parse_broker,
    parse_broker_id,
    parse_partition_count,
)
from hermes.coordination.listeners import (
    BrokerListeners,
    ListenerNode,
    listeners_path,
    parse_listeners,
)
from hermes.coordination.replicas import replicas_path
from hermes.coordination.sessions import Session
from hermes.errors import InvalidNodeError
from hermes.protocol import NOBODY
from hermes.replication.state import parse_replicas
from hermes.security import INTERNAL, ClientSecurity

#: Hears of a node that can't be understood, or must not be read.
OnFault = Callable[[InvalidNodeError], object]

_MOST_REMEMBERED = 1000


class NodeFaults:
    """Logs what is wrong with nodes, each fault once. Not for several threads at once."""

    def __init__(self, log: logging.Logger, who: str) -> None:
        self._log = log
        self._who = who
        self._known: set[str] = set()
        self._met: set[str] = set()

    def note(self, fault: InvalidNodeError, cost: str = "it is left out") -> bool:
        """Log a fault, and what is lost by it; returns whether it is news."""
        text = str(fault)
        is_new = text not in self._known and text not in self._met
        if len(self._met) < _MOST_REMEMBERED:
            self._met.add(text)
            if is_new:
                self._log.warning(
                    "%s: %s; %s until the node is mended or deleted", self._who, text, cost
                )
        return is_new

    def looked(self) -> None:
        """A look at the tree is over: what was not met in it is mended, and news if it returns."""
        self._known, self._met = self._met, set()


def read_brokers(
    session: Session,
    on_fault: OnFault,
    *,
    watch: bool = False,
    security: ClientSecurity | None = None,
) -> dict[int, BrokerNode]:
    """The brokers that live and can be understood, by id, each at a listener for this client.

    That is the first one with the TLS and the authentication that the client has; where none is
    like that, or none is known, what Kafka 0.7's clients would use.

    Args:
        security: what the client brings to brokers; None: what the session brings to ZooKeeper.
    """
    brokers = _read_places(session, on_fault, watch=watch)
    brings = session.security if security is None else security
    if brings.is_plain or brings.user == INTERNAL:
        return brokers
    paths = [listeners_path(broker_id) for broker_id in brokers]
    for broker_id, path, own in zip(list(brokers), paths, session.get_all(paths), strict=True):
        try:
            listeners = () if own is None else parse_listeners(path, own.value).listeners
        except InvalidNodeError as fault:
            on_fault(fault)
            continue
        found = suitable_listeners(listeners, brings)
        if found:
            creator = brokers[broker_id].creator
            brokers[broker_id] = BrokerNode(creator, found[0].host, found[0].port)
    return brokers


def suitable_listeners(
    listeners: Sequence[ListenerNode], brings: ClientSecurity
) -> list[ListenerNode]:
    """The listeners that are for a client, by the security it brings; the best first."""
    found = [each for each in listeners if brings.fits(each.tls, each.authentication)]
    if brings.user is None and brings.uses_tls:  # a certificate may be brought where none is wanted
        found += [
            each
            for each in listeners
            if each.tls and each.authentication == "none" and each not in found
        ]
    return found


def _read_places(session: Session, on_fault: OnFault, *, watch: bool) -> dict[int, BrokerNode]:
    """The brokers that live, at what Kafka 0.7's clients would use."""
    brokers = {}
    for name in session.children(BROKER_IDS, watch=watch):
        path = f"{BROKER_IDS}/{name}"
        try:
            broker_id = parse_broker_id(path, name)
            node = session.get(path, watch=watch)
            if node is not None:
                brokers[broker_id] = parse_broker(path, node.value)
        except InvalidNodeError as fault:
            on_fault(fault)
    return dict(sorted(brokers.items()))


def read_listeners(session: Session, on_fault: OnFault) -> dict[int, BrokerListeners]:
    """Where the brokers that live listen, by id.

    A broker that registers no more than 0.7's do has one listener, without TLS and authentication.
    """
    brokers = _read_places(session, on_fault, watch=False)
    paths = [listeners_path(broker_id) for broker_id in brokers]
    found = {}
    for (broker_id, node), path, own in zip(
        brokers.items(), paths, session.get_all(paths), strict=True
    ):
        listeners = ListenerNode("0", node.host, node.port, False, "none")
        found[broker_id] = BrokerListeners((listeners,))
        try:
            if own is not None:
                found[broker_id] = parse_listeners(path, own.value)
        except InvalidNodeError as fault:
            on_fault(fault)
    return found


def read_topics(session: Session, *, watch: bool = False) -> list[str]:
    """The topics that any broker ever had, of both formats; 0.7's clients see only theirs."""
    parents = (BROKER_TOPICS, KAFKA_TOPICS, RECORD_TOPICS)
    return sorted({name for each in parents for name in session.children(each, watch=watch)})


def read_partition_counts(
    session: Session, topic: str, on_fault: OnFault, *, watch: bool = False
) -> dict[int, int]:
    """How many partitions of a topic each broker has that lives; none for an unknown topic."""
    return _counts(session, f"{BROKER_TOPICS}/{topic}", on_fault, watch=watch)


def _counts(session: Session, parent: str, on_fault: OnFault, *, watch: bool) -> dict[int, int]:
    counts = {}
    try:
        names = session.children(parent, watch=watch)
    except InvalidNodeError as fault:
        on_fault(fault)
        return {}
    for name in names:
        try:
            broker_id = parse_broker_id(f"{parent}/{name}", name)
            path = f"{parent}/{broker_id}"
            node = session.get(path, watch=watch)
            if node is not None:
                counts[broker_id] = parse_partition_count(path, node.value)
        except InvalidNodeError as fault:
            on_fault(fault)
    return dict(sorted(counts.items()))


def read_partitions(
    session: Session, topic: str, on_fault: OnFault, *, watch: bool = False
) -> dict[int, Sequence[int]]:
    """The numbers of a topic's partitions by the brokers in their names, of either format.

    Those that live; and all that have partitions of which there are copies, whoever leads them now
    (`leaders_of`). Topics of Kafka's format aren't where Kafka 0.7's clients look; they are looked
    for when there is nothing. Brokers with `kafka_listen` number them through; each other one has
    its own.
    """
    return _read_topic(session, topic, on_fault, watch=watch)[0]


def leaders_of(
    session: Session, topic: str, on_fault: OnFault, *, watch: bool = False
) -> dict[BrokerPartition, int]:
    """The partitions of `read_partitions`, each with the live broker that leads it; -1 for none.

    A partition's name, which positions are stored under, never changes.
    """
    partitions, copies = _read_topic(session, topic, on_fault, watch=watch)
    return {
        BrokerPartition(home, number): copies.get(number, home)
        for home, numbers in partitions.items()
        for number in numbers
    }


def record_names(session: Session, topic: str) -> Sequence[BrokerPartition]:
    """The partitions of a topic of Kafka's format by Kafka's numbers, whoever lives.

    None for one of 0.7's, and where no broker has `kafka_listen`. Raises InvalidNodeError.
    """
    path = topic_node_path(topic)
    node = session.get(path) if fits_in_a_path(topic) else None
    found = None if node is None else parse_topic(path, node.value)
    return found.partitions if found is not None and found.format == "kafka" else ()


def _read_topic(
    session: Session, topic: str, on_fault: OnFault, *, watch: bool
) -> tuple[dict[int, Sequence[int]], Mapping[int, int]]:
    """The partitions; and by number who leads those of which there are copies."""
    counts = read_partition_counts(session, topic, on_fault, watch=watch)
    if counts or not fits_in_a_path(topic):
        return {broker_id: range(count) for broker_id, count in counts.items()}, {}
    path = topic_node_path(topic)
    try:
        node = session.get(path, watch=watch)
        found = None if node is None else parse_topic(path, node.value)
    except InvalidNodeError as fault:
        on_fault(fault)
        found = None
    partitions: dict[int, Sequence[int]] = {}
    copies: dict[int, int] = {}
    if found is not None and found.format == "kafka":
        living = session.children(BROKER_IDS, watch=watch)
        leaders = _read_leaders(session, topic, found.id, on_fault, watch=watch)
        copies = {
            number: leader if str(leader) in living else NOBODY
            for number, leader in leaders.items()
        }
        for home in found.brokers:
            numbers = found.of(home)
            if str(home) not in living:
                numbers = tuple(each for each in numbers if each in copies)
            if numbers or str(home) in living:
                partitions[home] = numbers
    own = _counts(session, f"{RECORD_TOPICS}/{topic}", on_fault, watch=watch)
    for broker_id, count in own.items():  # those of the cluster's topic have its numbers
        partitions.setdefault(broker_id, range(count))
    return dict(sorted(partitions.items())), copies


def _read_leaders(
    session: Session, topic: str, topic_id: UUID, on_fault: OnFault, *, watch: bool
) -> dict[int, int]:
    path = replicas_path(topic)
    try:
        node = session.get(path, watch=watch)
        replicas = None if node is None else parse_replicas(path, node.value)
    except InvalidNodeError as fault:
        on_fault(fault)
        return {}
    if replicas is None or replicas.id != topic_id:
        return {}
    return {
        number: state.leader
        for number, state in enumerate(replicas.partitions)
        if state is not None
    }
