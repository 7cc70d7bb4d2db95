"""Resets and deletes groups of Hermes' own clients."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from hermes.client.places import PartitionPlace
from hermes.client.resets import check_inactive, reset_offset
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.group_reader import GroupReader
from hermes.console.group_sources import stored_number
from hermes.console.group_views import UNKNOWN_ENDS, TopicPlace
from hermes.console.topic_views import leaders_of
from hermes.coordination.group_state import GroupState, delete_group, store_offsets
from hermes.errors import HermesError


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """What a reset would do to a partition.

    Attributes:
        partition: `BROKER-NUMBER`; in groups of Kafka's clients Kafka's number.
        before: the stored offset; None where it can't be parsed.
        end: up to where the partition can be read; None where that isn't known.
        counts_messages: whether offsets do, not bytes.
        label: the partition for people; empty for its name.
    """

    topic: str
    partition: str
    before: int | None
    after: int
    end: int | None
    counts_messages: bool = False
    label: str = ""


class GroupChanger(Protocol):
    """Changes groups of one kind. Methods may block, and may be called in any thread."""

    def preview(
        self,
        name: str,
        topic: str,
        place: PartitionPlace,
        sees: Callable[[str], bool] = lambda topic: True,
    ) -> list[OffsetChange]:
        """What a reset would change.

        Args:
            topic: one of the group's topics; empty for all.
            sees: whether a topic is visible; the others are left as they are.

        Raises:
            GroupActiveError: the group has members.
            HermesError: the place can't be found for a partition; the text names it.
        """

    def reset(self, name: str, changes: list[OffsetChange]) -> None:
        """Do what a preview has shown.

        Raises GroupActiveError: somebody has joined meanwhile; HermesError: an offset is no longer
        what it was, and nothing was changed.
        """

    def delete(self, name: str) -> None:
        """Raises GroupActiveError if it has members, HermesError if it can't be deleted now."""


class OwnGroupChanger:
    """Changes groups of Hermes' own clients and of Kafka 0.7's."""

    def __init__(self, cluster: ClusterClient, cache: ReadCache, groups: GroupReader) -> None:
        self._cluster = cluster
        self._cache = cache
        self._groups = groups

    def preview(
        self,
        name: str,
        topic: str,
        place: PartitionPlace,
        sees: Callable[[str], bool] = lambda topic: True,
    ) -> list[OffsetChange]:
        state = self._inactive(name)
        places = [each for each in state.offsets if topic in ("", each[0]) and sees(each[0])]
        if not places:
            raise HermesError(NO_OFFSETS)
        topics = sorted({each for each, _ in places})
        ends, _ = self._groups.ends(topics)
        states = self._cluster.read(topics)
        led = leaders_of(states)
        addresses = {each.broker_id: each.address for each in states if each.metadata}
        changes = []
        for each in places:
            partition = each[1]
            copied = led.get(each[0], {}).get(partition.partition)
            address = addresses.get(partition.broker_id if copied is None else copied.leader)
            if address is None:
                raise HermesError(f"{each[0]} {partition}: its broker does not answer.")
            consumer = self._cluster.consumer(address)
            stored = state.offsets[each]
            try:
                after = reset_offset(consumer, each[0], partition.partition, stored, place)
            except HermesError as error:
                raise HermesError(f"{each[0]} {partition}: {error}") from error
            held = ends.get(each, UNKNOWN_ENDS)
            before, unit = stored_number(stored), held.counts_messages
            label = str(partition.partition if held.is_numbered else partition)
            change = OffsetChange(each[0], str(partition), before, after, held.end, unit, label)
            changes.append(change)
        return changes

    def reset(self, name: str, changes: list[OffsetChange]) -> None:
        state = self._inactive(name)
        offsets: dict[TopicPlace, int] = {}
        known = {(topic, str(partition)): partition for topic, partition in state.offsets}
        for change in changes:
            partition = known.get((change.topic, change.partition))
            stored = None if partition is None else state.offsets[change.topic, partition]
            if partition is None or stored_number(stored) != change.before:
                raise changed_since(change)
            offsets[change.topic, partition] = change.after
        store_offsets(self._cluster.session(), name, offsets)
        self._cache.forget()

    def delete(self, name: str) -> None:
        self._inactive(name)
        delete_group(self._cluster.session(), name)
        self._cache.forget()

    def _inactive(self, name: str) -> GroupState:
        state = self._groups.state(name)
        check_inactive(name, state.members)
        return state


#: Why there is nothing to be moved.
NO_OFFSETS: Final = "The group has stored no such offsets."


def changed_since(change: OffsetChange) -> HermesError:
    return HermesError(
        f"{change.topic} {change.partition}: the offset has changed since the preview; "
        "nothing was changed."
    )
