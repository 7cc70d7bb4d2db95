"""Which partition of which broker a message goes to.

Partitions of a topic are counted over all brokers, ordered by (broker id, partition), as Kafka
0.7's producers do; the partitioner chooses by that count.
"""

import random
import time
from typing import Any, Final

from hermes.client.payloads import InPartition, Keys
from hermes.client.topic_metadata import MetadataProvider, Target, TopicPartitions
from hermes.coordination.layout import BrokerPartition
from hermes.errors import (
    HermesError,
    RoutingError,
)
from hermes.protocol import (
    NOBODY,
    core,
)
from hermes.quoting import quoted

# How long messages without a key keep away from a broker that failed.
_AVOID_SECONDS: Final = 1.0


class Router:
    """Chooses targets: the partitioner where partitions can be counted, else the broker."""

    def __init__(self, metadata: MetadataProvider, partitioner: Any) -> None:
        self._metadata = metadata
        self._partition = partitioner.partition
        self._partitioner_name = type(partitioner).__name__
        self._by_java_hash = getattr(partitioner, "keys_by_java_hash", False) is True
        self._avoided: dict[int, float] = {}

    def choose(self, topic: str, key: Any) -> Target:
        """Choose a target.

        Raises:
            RoutingError: the message has a key and the partitions can't be counted, or the
                partitioner, or the caller, chose one that isn't there.
            HermesError: no broker answers, or the topic is not there and can't be created.
        """
        known = self._metadata.partitions(topic)
        targets, is_counted, why_not, _ = known
        if type(key) is InPartition:
            return self._certain(topic, key.partition)
        if key is None and (self._avoided or known.leaders):
            targets = self._preferred(known)
        if not is_counted:
            if key is not None:
                assert why_not is not None
                raise why_not
            return random.choice(targets)
        count = len(targets)
        if count == 1 and key is None:
            return targets[0]
        try:
            chosen = self._partition(topic, key, count)
        except HermesError:
            raise
        except Exception as error:
            raise RoutingError(f"{self._partitioner_name}: {error}") from error
        return targets[self._checked(chosen, count, key)]

    def _certain(self, topic: str, partition: int | BrokerPartition) -> Target:
        """The target that the caller has chosen; looks again for one that isn't known (yet)."""
        found = _matching(self._metadata.partitions(topic), partition)
        if not found:
            self._metadata.forget(topic)
            found = _matching(self._metadata.partitions(topic), partition)
        if len(found) == 1:
            return found[0]
        if not found:
            raise _no_such_partition(topic, self._metadata.partitions(topic), partition)
        brokers = ", ".join(str(each.broker_id) for each in found)
        raise RoutingError(
            f"topic {topic!r} has a partition {partition} on each of the brokers {brokers}: say "
            f"which, as BrokerPartition({found[0].broker_id}, {partition})"
        )

    def _checked(self, chosen: object, count: int, key: Any) -> int:
        if type(chosen) is not int or not 0 <= chosen < count:
            raise RoutingError(
                f"{self._partitioner_name} chose partition {quoted(chosen)} of {count} "
                f"for key {quoted(key)}"
            )
        return chosen

    def choose_all(self, topic: str, keys: Keys) -> list[tuple[Target, list[int]]]:
        """Choose a target for each key, by one look at the partitions; raises as `choose` does.

        Returns each target with the places of its keys, in order.
        """
        targets, is_counted, _, _ = self._metadata.partitions(topic)
        found: dict[Target, list[int]] = {}
        if not is_counted or None in keys:
            for place, key in enumerate(keys):
                found.setdefault(self.choose(topic, key), []).append(place)
            return list(found.items())
        places: list[list[int]] = [[] for _ in targets]
        for place, chosen in enumerate(self._chosen(topic, keys, len(targets))):
            places[chosen].append(place)
        return [pair for pair in zip(targets, places, strict=True) if pair[1]]

    def _chosen(self, topic: str, keys: Keys, count: int) -> list[int]:
        partition = self._partition
        chosen: list[int | None] = [None] * len(keys)
        if self._by_java_hash:
            chosen = core.java_partitions(keys, count)
        try:
            return [
                self._checked(partition(topic, key, count), count, key) if known is None else known
                for key, known in zip(keys, chosen, strict=True)
            ]
        except HermesError:
            raise
        except Exception as error:
            raise RoutingError(f"{self._partitioner_name}: {error}") from error

    def only_target(self, topic: str) -> Target | None:
        """The target that every message of a topic without key goes to now; None for several."""
        try:
            known = self._metadata.partitions(topic)
        except HermesError:
            return None  # `choose` will say why
        targets = known.targets
        if self._avoided or known.leaders:
            targets = self._preferred(known)
        return targets[0] if len(targets) == 1 else None

    def has(self, topic: str, target: Target) -> bool:
        try:
            return target in self._metadata.partitions(topic).targets
        except HermesError:
            return True

    def leader(self, topic: str, target: Target) -> int:
        """The broker that a target's messages are to be sent to now, as far as is known."""
        try:
            return self._metadata.partitions(topic).leader(target)
        except HermesError:
            return target.broker_id

    def avoid(self, broker_id: int) -> None:
        """Send messages without a key elsewhere for a moment, where there is an elsewhere."""
        self._avoided[broker_id] = time.monotonic() + _AVOID_SECONDS

    def forget(self, topic: str) -> None:
        self._metadata.forget(topic)

    def _preferred(self, known: TopicPartitions) -> tuple[Target, ...]:
        now = time.monotonic()
        for broker_id, until in list(self._avoided.items()):
            if now >= until:
                self._avoided.pop(broker_id, None)
        avoided = {NOBODY, *self._avoided}
        preferred = tuple(each for each in known.targets if known.leader(each) not in avoided)
        return preferred or known.targets


def _matching(known: TopicPartitions, partition: int | BrokerPartition) -> list[Target]:
    """The targets that a caller may mean; raises HermesError if a broker of them doesn't answer."""
    broker_id: int | None = None
    if isinstance(partition, BrokerPartition):
        broker_id, partition = partition
    on = [each for each in known.targets if broker_id in (None, each.broker_id)]
    found = [each for each in on if each.partition == partition]
    if found or known.is_counted:
        return found
    if known.why_not is not None and not isinstance(known.why_not, RoutingError):
        raise known.why_not
    # Brokers that don't tell their partitions: whether there is this one, they say themselves.
    return [Target(each.broker_id, partition) for each in on]


def _no_such_partition(
    topic: str, known: TopicPartitions, partition: int | BrokerPartition
) -> RoutingError:
    numbers = sorted({each.partition for each in known.targets})
    has = f"0 to {numbers[-1]}" if numbers == list(range(len(numbers))) else f"{numbers}"
    if len({each.broker_id for each in known.targets}) > 1:
        has += ", on brokers " + ", ".join(
            map(str, sorted({each.broker_id for each in known.targets}))
        )
    return RoutingError(f"topic {topic!r} has no partition {partition}, but {has}")
