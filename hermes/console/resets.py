"""The one thing that the console changes: the offsets of a group, as a preview has shown them."""

from collections.abc import Callable
from dataclasses import dataclass

from hermes.client.places import Place
from hermes.client.resets import reset_offset
from hermes.console.cluster import Cluster
from hermes.console.group_sources import stored_number
from hermes.console.group_views import UNKNOWN_ENDS, TopicPlace
from hermes.console.groups import GroupReader
from hermes.console.recent import Recent
from hermes.coordination.group_state import GroupState, store_offsets
from hermes.errors import GroupActiveError, HermesError


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """What a reset would do to a partition.

    Attributes:
        topic: the topic.
        partition: `BROKER-NUMBER`.
        before: the stored offset; None where it can't be understood.
        after: the new one.
        end: up to where the partition can be read; None where that isn't known.
        counts_messages: whether its offsets do, not bytes.
    """

    topic: str
    partition: str
    before: int | None
    after: int
    end: int | None
    counts_messages: bool = False


class GroupResetter:
    """Resets groups. Every method may block, and may be called in any thread.

    Args:
        cluster: has the coordination and the brokers.
        recent: forgets what was read, once it has been changed.
        groups: reads the groups.
    """

    def __init__(self, cluster: Cluster, recent: Recent, groups: GroupReader) -> None:
        self._cluster = cluster
        self._recent = recent
        self._groups = groups

    def preview(
        self, name: str, topic: str, place: Place, sees: Callable[[str], bool] = lambda topic: True
    ) -> list[OffsetChange]:
        """What a reset would change.

        Args:
            name: the group, which must have no members.
            topic: one of its topics; empty for all.
            place: where it is to continue.
            sees: of which topics; the others stay as they are.

        Raises:
            GroupActiveError: it has members.
            HermesError: the place can't be found for a partition; the text names it.
        """
        state = self._inactive(name)
        places = [each for each in state.offsets if topic in ("", each[0]) and sees(each[0])]
        if not places:
            raise HermesError("The group has stored no such offsets.")
        ends, _ = self._groups.ends(sorted({each for each, _ in places}))
        states = self._cluster.read(())
        addresses = {each.broker_id: each.address for each in states if each.metadata}
        changes = []
        for each in places:
            partition = each[1]
            address = addresses.get(partition.broker_id)
            if address is None:
                raise HermesError(f"{each[0]} {partition}: its broker does not answer.")
            consumer = self._cluster.consumer(address)
            stored = state.offsets[each]
            try:
                after = reset_offset(consumer, each[0], partition.partition, stored, place)
            except HermesError as error:
                raise HermesError(f"{each[0]} {partition}: {error}") from error
            held = ends.get(each, UNKNOWN_ENDS)
            before = stored_number(stored)
            changes.append(
                OffsetChange(each[0], str(partition), before, after, held.end, held.counts_messages)
            )
        return changes

    def reset(self, name: str, changes: list[OffsetChange]) -> None:
        """Do what a preview has shown.

        Raises:
            GroupActiveError: somebody has joined meanwhile.
            HermesError: an offset is no longer what it was; nothing was changed.
        """
        state = self._inactive(name)
        offsets: dict[TopicPlace, int] = {}
        known = {(topic, str(partition)): partition for topic, partition in state.offsets}
        for change in changes:
            partition = known.get((change.topic, change.partition))
            stored = None if partition is None else state.offsets[change.topic, partition]
            if partition is None or stored_number(stored) != change.before:
                raise HermesError(
                    f"{change.topic} {change.partition}: the offset has changed since the preview; "
                    "nothing was changed."
                )
            offsets[change.topic, partition] = change.after
        store_offsets(self._cluster.session(), name, offsets)
        self._recent.forget()

    def _inactive(self, name: str) -> GroupState:
        state = self._groups.state(name)
        if state.members:
            raise GroupActiveError("The group has members: stop them first.")
        return state
