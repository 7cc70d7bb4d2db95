"""What the groups of a broker forget: offsets that have expired, and those of deleted topics."""

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import ensureDeferred

from hermes.groups.bounds import RefusedError
from hermes.groups.expiry import expired
from hermes.groups.group_entry import GroupEntry
from hermes.groups.local_groups import LocalGroups
from hermes.groups.offsets import Change, Committed, TopicPartition
from hermes.groups.values import State

#: How often it is looked whether offsets have expired; Kafka's default.
_EXPIRY_SECONDS: Final = 600.0

#: For how long deleted topics are gathered whose offsets are to be forgotten.
_GATHER_SECONDS: Final = 1.0


class ForgettingGroups(LocalGroups):
    """The groups of a broker, without what is of no use any more. See `LocalGroups`."""

    def begin(self) -> None:
        """See `LocalGroups.begin`."""
        super().begin()
        self._again(self._begin_expiry, _EXPIRY_SECONDS)

    def _begin_expiry(self) -> None:
        def failed(failure: Any) -> None:
            if failure.check(RefusedError) is None:
                self._log.failure("the expiry of groups' offsets failed", failure)

        ensureDeferred(self.expire()).addErrback(failed)

    async def expire(self) -> None:
        """Forget offsets that have had their time, and groups of which nothing is left.

        Raises:
            RefusedError: groups can't be read now.
        """
        for kept in await self._all():
            if self.groups.get(kept.group.name) is kept:
                await self._expire(kept)

    def _shown(self, kept: GroupEntry) -> dict[TopicPartition, Committed]:
        """What a group has committed, without what is of topics that are deleted."""
        return {
            place: committed
            for place, committed in kept.offsets.items()
            if committed.topic_id is None
            or not self._topics.is_gone(place.topic, committed.topic_id)
        }

    async def _expire(self, kept: GroupEntry) -> None:
        now_ms, retention_ms = self._now_ms(), self._settings().retention_ms
        group = kept.group
        gone = set(expired(group, kept.offsets, kept.empty_ms, now_ms, retention_ms))
        self.counts.expired += len(gone)
        gone |= kept.offsets.keys() - self._shown(kept).keys()
        is_idle = group.state is State.EMPTY and not group.pending and not kept.busy
        if is_idle and len(gone) == len(kept.offsets):
            await self._delete(kept)
            return
        if gone:
            await self._write(kept, Change(group.name, offsets=dict.fromkeys(gone)))

    def topic_gone(self, topic: str) -> None:
        """Forget all groups' offsets of a topic that is deleted, soon.

        Of thousands that are deleted one after the other each would have all offsets looked at, and
        each group written: those of about a second are forgotten together.
        """
        if not self._gone and not self._is_stopped:
            call = self._begin_forgetting
            self._timers[call] = self._clock.callLater(_GATHER_SECONDS, call)
        self._gone[topic] = self._now_ms()

    def _begin_forgetting(self) -> None:
        gone, self._gone = self._gone, {}
        del self._timers[self._begin_forgetting]

        def failed(failure: Any) -> None:
            if failure.check(RefusedError) is None:
                self._log.failure("forgetting the offsets of deleted topics failed", failure)

        ensureDeferred(self.forget_topics(gone)).addErrback(failed)

    async def forget_topics(self, gone: Mapping[str, int]) -> None:
        """Forget all groups' offsets of some topics that are from up to some time.

        Args:
            gone: when each was deleted, in ms since 1970, by its name; another one may have that
                by now.

        Raises:
            RefusedError: groups can't be read now.
        """
        for kept in await self._all():
            places = [
                place
                for place, committed in kept.offsets.items()
                if place.topic in gone and committed.commit_ms <= gone[place.topic]
            ]
            if places:
                await self._write(kept, Change(kept.group.name, offsets=dict.fromkeys(places)))
