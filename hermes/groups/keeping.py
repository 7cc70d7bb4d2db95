"""Has consumer groups be on disk before anybody hears what they have come to."""

from collections.abc import Callable

from twisted.internet.defer import Deferred, ensureDeferred, succeed

from hermes.groups.consumer_group import ConsumerGroup
from hermes.groups.consumer_membership import can_be_kept
from hermes.groups.consumer_values import ConsumerMembership
from hermes.groups.group_entry import GroupEntry
from hermes.groups.offsets import Change, GroupRecord
from hermes.protocol.kafka_errors import Code


class ConsumerKeeper:
    """Writes consumer groups, one write of each at a time. Lives in the reactor's thread.

    Args:
        write: keeps a change of a group; its Deferred fires with what became of it.
        now_ms: the wall clock, in ms since 1970.
        tell_too_many: told the name of a group whose members can't be kept.
    """

    def __init__(
        self,
        write: "Callable[[GroupEntry, Change], Deferred[Code]]",
        now_ms: Callable[[], int],
        tell_too_many: Callable[[str], None],
    ) -> None:
        self._write = write
        self._now_ms = now_ms
        self._tell_too_many = tell_too_many

    def keep(self, kept: GroupEntry, group: ConsumerGroup) -> "Deferred[Code]":
        """Have a consumer group be on disk as it is now; fires with what became of it.

        Those who come while it is written share the next write.
        """
        if group.revision == kept.revision:
            return succeed(Code.NONE)
        done: Deferred[Code] = Deferred()
        kept.waiting.append((group.revision, done))
        if not kept.is_keeping:
            kept.is_keeping = True
            ensureDeferred(self._keep_all(kept))
        return done

    async def _keep_all(self, kept: GroupEntry) -> None:
        while kept.waiting:
            group, code = kept.group, Code.NOT_COORDINATOR
            is_there = isinstance(group, ConsumerGroup) and not group.is_dead
            revision = group.revision if isinstance(group, ConsumerGroup) else 0
            if isinstance(group, ConsumerGroup) and is_there:
                code = await self._keep_once(kept, group)
            waiting = kept.waiting
            told = [done for since, done in waiting if since <= revision or not is_there]
            kept.waiting = [each for each in waiting if each[0] > revision and is_there]
            for done in told:
                done.callback(code)
        kept.is_keeping = False

    async def _keep_once(self, kept: GroupEntry, group: ConsumerGroup) -> Code:
        revision, membership = group.revision, group.membership
        if not can_be_kept(membership):
            self._tell_too_many(group.name)
            membership = ConsumerMembership(group.epoch, {}, ())
        if not group.members:
            kept.empty_ms = self._now_ms()
        since = -1 if group.members else kept.empty_ms
        record = GroupRecord(group.epoch, group.protocol_type, since, membership)
        code = await self._write(kept, Change(group.name, record))
        if code is Code.NONE and kept.group is group:
            kept.revision = revision
        return code
