"""Which brokers have the copies of new partitions, or why they can't be had.

Kafka's errors, in its words where it has some. Copies are on brokers that are there now and say
that they can have some: while a broker of an earlier release is there, nobody gets several. It
would take such a topic for one of single copies.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.placement import spread
from hermes.cluster.shared import Shared
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.topic import MOST_COPIES
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.quoting import quoted
from hermes.replication.state import TopicReplicas, first_state

#: Of how many partitions, or of how many copies of one, when that isn't said.
DEFAULT: Final = -1

#: Of each new partition the brokers that have a copy, the preferred leader first.
Assignment = Sequence[Sequence[int]]

#: The states of so many partitions fit into coordination's node of their topic, also on the move.
_MOST_PARTITIONS: Final = 5000


class ReplicaPlacing:
    """Any thread may ask. Whatever is refused raises KafkaError."""

    def __init__(self, shared: Shared, topics: ClusterTopics) -> None:
        self._shared = shared
        self._topics = topics

    def new(self, name: str, count: int, copies: int, assignment: Assignment | None) -> Assignment:
        """Place the partitions of a new topic: `copies` of each, or as they are assigned."""
        if assignment is None and copies == DEFAULT:
            copies = self._shared.config.default_replication_factor
        return self._placed(name, 0, count, None if copies == DEFAULT else copies, assignment)

    def more(
        self, topic: ClusterTopic, first: int, count: int, assignment: Assignment | None
    ) -> Assignment:
        """Place further partitions: as many copies of each as the first one has."""
        if assignment is not None and len(assignment) != count - first:
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {count - first} additional partition(s), but only "
                f"{len(assignment)} assignment(s) were specified.",
            )
        return self._placed(topic.name, first, count, copies_of(topic)[0], assignment)

    def check_sole(self, name: str, assignment: Assignment | None) -> None:
        """Refuse several copies of new partitions of a topic of 0.7's format."""
        if any(len(each) > 1 for each in assignment or ()):
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Topic {quoted(name)} has Kafka 0.7's format, and one copy of each partition. "
                "Copies need format: kafka: mirror it to a topic that has it.",
            )
        self._check_assigned(assignment or (), 1)

    def check_move(self, topic: ClusterTopic, number: int, target: Sequence[int]) -> None:
        """Refuse brokers to which a partition can't be moved; who has a copy may be down."""
        has = topic.replicas(number) if 0 <= number < len(topic.partitions) else ()
        known = {*self._topics.live, *has}
        self._check_assigned([target], None, known)
        if topic.format != FORMAT_KAFKA:
            raise KafkaError(
                Code.INVALID_REPLICA_ASSIGNMENT,
                f"Topic {quoted(topic.name)} has Kafka 0.7's format: its partitions stay where "
                f"they are. Moves need format: {FORMAT_KAFKA}: mirror it to a topic that has it.",
            )
        self._check_copies(len(target), len(topic.partitions), len(known))

    def _placed(
        self,
        name: str,
        first: int,
        count: int,
        copies: int | None,
        assignment: Assignment | None,
    ) -> Assignment:
        if assignment is not None:
            self._check_assigned(assignment, copies)
            copies = len(assignment[0])
        assert copies is not None
        racks = {each: self._rack(each) for each in self._topics.broker_ids}
        self._check_copies(copies, count, len(racks))
        return assignment or spread(racks, name, first, count, copies)

    def _rack(self, broker_id: int) -> str:
        listeners = self._topics.registered().get(broker_id)
        return "" if listeners is None else listeners.rack

    def _check_copies(self, copies: int, count: int, live: int) -> None:
        if copies == 1:
            return
        if copies > MOST_COPIES:
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"There can be {MOST_COPIES} copies of a partition at most, not {copies}.",
            )
        if copies > live:
            need = (
                ""
                if self._topics.has_cluster
                else (
                    " Several of them need coordination and kafka_listen in each one's broker.yaml."
                )
            )
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {copies} time(s): The target replication "
                f"factor of {copies} cannot be reached because only {live} broker(s) are "
                f"registered.{need}",
            )
        registered = self._topics.registered()
        earlier = [
            each
            for each in self._topics.broker_ids
            if each in registered and not registered[each].replication
        ]
        if earlier:
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"Unable to replicate the partition {copies} time(s): brokers {earlier} run a "
                "release that keeps no copies. Upgrade them first.",
            )
        if count > _MOST_PARTITIONS:
            raise KafkaError(
                Code.INVALID_PARTITIONS,
                f"A topic with copies can have {_MOST_PARTITIONS} partitions at most, not {count}.",
            )

    def _check_assigned(
        self, assignment: Assignment, copies: int | None, known: Collection[int] | None = None
    ) -> None:
        """As Kafka checks.

        `copies`: how many each partition is to have, None for any; `known`: the brokers that may be
        named, None for those that live.
        """
        for brokers in assignment:
            fault = self._fault(brokers, copies, self._topics.live if known is None else known)
            if fault:
                raise KafkaError(
                    Code.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes {fault}",
                )
            copies = len(brokers)

    def _fault(self, brokers: Sequence[int], copies: int | None, known: Collection[int]) -> str:
        if not brokers:
            return "an empty replica list."
        for each in sorted(brokers):
            if each not in known:
                return f"broker {each}, but no such broker is registered."
            if brokers.count(each) > 1:
                return f"the broker {each} more than once."
        if copies is not None and len(brokers) != copies:
            return (
                f"a partition with {len(brokers)} replica(s), but this is not consistent with "
                f"previous partitions, which have {copies} replica(s)."
            )
        return ""


def copies_of(topic: ClusterTopic) -> list[int]:
    """How many copies each partition has, or will have once a move under way is done."""
    states = map(topic.state, range(len(topic.partitions)))
    return [1 if state is None else len(state.target) for state in states]


def with_copies(
    before: TopicReplicas, first: int, placed: Assignment, lives: Mapping[int, int]
) -> TopicReplicas | None:
    """The node of a topic's copies with its new partitions; None where none has several."""
    after = before
    for number, brokers in enumerate(placed, first):
        if len(brokers) > 1:
            after = after.with_state(number, first_state(brokers, lives))
    return after if any(after.partitions) else None
