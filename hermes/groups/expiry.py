"""What the groups of a broker forget: offsets that have expired, and those of deleted topics."""

from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from typing import Any, Final

from twisted.internet.defer import ensureDeferred
from twisted.internet.task import deferLater

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.group_entry import GroupEntry
from hermes.groups.local_groups import LocalGroups
from hermes.groups.offsets import Change, Committed, TopicPartition
from hermes.groups.values import CONSUMER, State
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code, KafkaError

#: How often to check for expired offsets; Kafka's default.
_EXPIRY_SECONDS: Final = 600.0

#: For how long deleted topics are gathered whose offsets are to be forgotten.
_GATHER_SECONDS: Final = 1.0

#: The pause before that is tried again, where groups could not be read or written.
_AGAIN_SECONDS: Final = 10.0

#: How many groups and offsets are looked at in one go, if a group has no more.
_AT_A_TIME: Final = 1_000


class OffsetExpiry:
    """Forgets what is of no use any more. Lives in the reactor's thread."""

    _log = ModuleLogger()

    def __init__(self, groups: LocalGroups) -> None:
        self._groups = groups
        self._gone: dict[str, int] = {}  # deleted topics, and when: their offsets are to go
        self._check: Any = None
        self._gathering: Any = None
        self._is_stopped = False

    def begin(self) -> None:
        self._check = self._groups.clock.callLater(_EXPIRY_SECONDS, self._begin_expiry)

    def stop(self) -> None:
        self._is_stopped = True
        for timer in (self._check, self._gathering):
            if timer is not None and timer.active():
                timer.cancel()

    def _begin_expiry(self) -> None:
        self.begin()
        self._run(self.expire(), "the expiry of groups' offsets failed")

    def _run(self, work: Coroutine[Any, Any, None], failed: str) -> None:
        def on_failure(failure: Any) -> None:
            if failure.check(KafkaError) is None:
                self._log.failure(failed, failure)

        ensureDeferred(work).addErrback(on_failure)

    async def expire(self) -> None:
        """Forget offsets that have expired, and empty groups; KafkaError if none can be read."""
        async for entry in self._all():
            await self._expire(entry)

    async def _all(self) -> AsyncIterator[GroupEntry]:
        """All groups, one after the other, while others have turns."""
        seen = 0
        for entry in await self._groups.all():
            if self._groups.entries.get(entry.group.name) is entry:
                yield entry
            seen += 1 + len(entry.offsets)
            if seen >= _AT_A_TIME:
                seen = 0
                await deferLater(self._groups.clock, 0)

    async def _expire(self, entry: GroupEntry) -> None:
        group, retention_ms = entry.group, self._groups.settings().retention_ms
        # What is committed anew is not in its offsets before it is on disk.
        gone = entry.unchanging(_expired(entry, self._groups.now_ms(), retention_ms))
        self._groups.counts.expired += len(gone)
        gone |= entry.unchanging(entry.offsets.keys() - self.shown(entry).keys())
        is_idle = group.state is State.EMPTY and not (
            group.pending or entry.is_in_use or entry.pending
        )
        if is_idle and len(gone) == len(entry.offsets):
            await self._groups.delete(entry)
            return
        if gone:
            await self._groups.write(entry, Change(group.name, offsets=dict.fromkeys(gone)))

    def shown(
        self, entry: GroupEntry, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """What a group has committed, of some partitions or of all, but not of deleted topics."""
        offsets, is_gone = entry.offsets, self._groups.topics.is_gone
        if partitions is not None:
            offsets = {each: offsets[each] for each in partitions if each in offsets}
        return {
            partition: committed
            for partition, committed in offsets.items()
            if committed.topic_id is None or not is_gone(partition.topic, committed.topic_id)
        }

    def topic_gone(self, topic: str) -> None:
        """Forget all groups' offsets of a topic that is deleted, soon.

        If thousands were deleted one after the other, each would have all offsets looked at and
        each group written; so those of about a second are forgotten together.
        """
        self._gone[topic] = self._groups.now_ms()
        self._gather(_GATHER_SECONDS)

    def _gather(self, seconds: float) -> None:
        if self._gathering is None and not self._is_stopped:
            self._gathering = self._groups.clock.callLater(seconds, self._begin_forgetting)

    def _begin_forgetting(self) -> None:
        gone, self._gone, self._gathering = self._gone, {}, None
        self._run(self._forget_topics(gone), "forgetting the offsets of deleted topics failed")

    async def _forget_topics(self, gone: Mapping[str, int]) -> None:
        """Forget all groups' offsets of deleted topics, whose names others may have by now.

        `gone`: when each was deleted, in ms since 1970, by its name.
        """
        is_done = False
        try:
            is_done = await self._forget_all(gone)
        finally:
            if not is_done:
                self._gone = {**gone, **self._gone}
                self._gather(_AGAIN_SECONDS)

    async def _forget_all(self, gone: Mapping[str, int]) -> bool:
        """The same; False where a group could not be written, KafkaError where none can be read."""
        is_done = True
        async for entry in self._all():
            forgotten = entry.unchanging(
                partition
                for partition, committed in entry.offsets.items()
                if partition.topic in gone and committed.commit_ms <= gone[partition.topic]
            )
            if forgotten:
                change = Change(entry.group.name, offsets=dict.fromkeys(forgotten))
                code = await self._groups.write(entry, change)
                is_done &= code is not Code.COORDINATOR_NOT_AVAILABLE
        return is_done


def _expired(entry: GroupEntry, now_ms: int, retention_ms: int) -> Iterable[TopicPartition]:
    """Find the offsets of a group that are of no use any more; Kafka's rules."""
    # Those of a group without members count from when it has lost the last one; those of consumers
    # that share with nobody, and of topics that a group doesn't want any more, from their commit.
    # While a group rebalances none expires, nor does any of a group that isn't one of consumers.
    # The offsets of a consumer group (KIP-848) always count from their commit.
    group = entry.group
    if isinstance(group, ConsumerGroup) or group.protocol_type is None:
        since = None
    elif group.state is State.EMPTY:
        since = entry.empty_ms
    elif group.state is State.STABLE and group.protocol_type == CONSUMER and group.topics:
        since = None
    else:
        return
    for partition, committed in entry.offsets.items():
        if group.state is not State.EMPTY and group.subscribes_to(partition.topic):
            continue
        end = committed.expire_ms
        if end < 0:
            end = (committed.commit_ms if since is None else since) + retention_ms
        if end <= now_ms:
            yield partition
