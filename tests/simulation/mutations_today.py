"""Rules of brokers, alone and with copies, each with what breaks it, and how soon that is found.

A mutation changes the product's functions while a schedule runs. `seeds` says within how many seeds
from 0 on it is found; a rule whose mutation nothing finds is not tested here.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

from disks import ProcessFiles
from schedule import MUTATIONS, Mutation

from hermes.cluster.cluster_part import ClusterPart
from hermes.coordination.registration import BrokerRegistration
from hermes.coordination.topic_tree import TopicTree
from hermes.groups import consumer_group
from hermes.groups.group import Group
from hermes.groups.local_groups import LocalGroups
from hermes.partition.awaited_batches import AwaitedBatches
from hermes.partition.flushing import FlushScheduler
from hermes.protocol.kafka_errors import Code
from hermes.replication.leading import Leading
from hermes.storage import log
from hermes.storage.compaction import _Compaction
from hermes.storage.log import Log
from hermes.storage.producer_states import ProducerStates

Change = Callable[[Any], Any]


def having(owner: Any, name: str, make: Change) -> Callable[[], AbstractContextManager[None]]:
    """What has something of the product's be what `make` makes of it."""

    @contextmanager
    def changed() -> Iterator[None]:
        kept = vars(owner)[name]
        setattr(owner, name, make(getattr(owner, name)))
        try:
            yield
        finally:
            setattr(owner, name, kept)

    return changed


def does_nothing(_: Any) -> Any:
    return lambda *args, **options: None


def _later(_: Any) -> Any:
    async def never(*args: Any) -> None:
        """Not in this life."""

    return never


def gives(value: Any) -> Change:
    return lambda _: lambda *args, **options: value


# -- what needs more than a line ------------------------------------------------------------------


def _told_at_once(_: Any) -> Any:
    def when_committed(self: Any, log: Any, notify: Any, *args: Any, **options: Any) -> None:
        self.appended(log)
        notify(None)

    return when_committed


def _moves_before_the_sync(flush: Any) -> Any:
    """Have the watermark move when the flush begins."""

    def early(state: Any) -> Any:
        with state.lock:
            end = state.tail.end
            state.view = state.view._replace(flushed_end=end, high_watermark=end)
        return flush(state)

    return early


def _only_known_epochs(check: Any) -> Any:
    def never(self: Any, headers: Any, offset: int) -> None:
        return None

    return never


def _keeps_the_first(stays: Any) -> Any:
    def first(self: Any, record: Any, *, is_over: bool) -> bool:
        return bool(stays(self, record, is_over=is_over)) and record.offset % 7 != 3

    return first


def _one_more(delete: Any) -> Any:
    def more(self: Any, offset: int) -> Any:
        return delete(self, min(offset + 1, self.high_watermark))

    return more


def _same_block(claim: Any) -> Any:
    """Take a block of producer ids without writing that it is taken."""

    def first(self: Any, count: int, at_least: int = 0) -> int:
        return max(0, at_least)

    return first


def _everything_is_free(next_step: Any) -> Any:
    def step(member: Any, epoch: int, target: Any, owned: Any, is_free: Any) -> Any:
        return next_step(member, epoch, target, owned, lambda each: True)

    return step


def _owns_loosely(release: Any) -> Any:
    def loosely(self: Any, member: Any) -> None:
        for partition in (*member.assigned, *member.revoking):
            self._owners.pop(partition, None)

    return loosely


@contextmanager
def _all_free() -> Iterator[None]:
    with (
        having(consumer_group, "next_step", _everything_is_free)(),
        having(consumer_group.ConsumerGroup, "_release", _owns_loosely)(),
    ):
        yield


def _registered_once(self_changed: Any) -> Any:
    def changed(self: Any) -> None:
        self._wake.set()

    return changed


def _no_watch(read: Any) -> Any:
    def unwatched(self: Any, known: Any = None) -> Any:
        session = self._session
        kept = session.get
        session.get = lambda path, watch=False: kept(path)
        try:
            return read(self, known)
        finally:
            session.get = kept

    return unwatched


def _loses_settings(change: Any) -> Any:
    """Grow a topic without what else stands in its node."""

    def changing(self: Any, name: str, make: Any) -> Any:
        def forgetful(node: Any) -> Any:
            made = make(node)
            grown = node is not None and made is not None and made.partitions != node.partitions
            return replace(made, id=made.id, partitions=made.partitions[-1:]) if grown else made

        return change(self, name, forgetful)

    return changing


def _not_moved(give_up: Any) -> Any:
    def keep(self: Any, name: str) -> None:
        return None

    return keep


def _as_if_all_had_begun(may_join: Any) -> Any:
    return lambda self, follower, lives, now, earliest: may_join(self, follower, lives, now, 0)


_TODAY: dict[str, tuple[str, int, Callable[[], AbstractContextManager[None]]]] = {
    "no_sync": (
        "what is acknowledged is on the disk: fdatasync comes first",
        10,
        having(ProcessFiles, "fdatasync", does_nothing),
    ),
    "no_names": (
        "what is acknowledged is on the disk: so are the names of its files",
        10,
        having(ProcessFiles, "fsync_directory", does_nothing),
    ),
    "told_at_once": (
        "an acknowledgement waits for the flush",
        60,
        having(FlushScheduler, "when_committed", _told_at_once),
    ),
    "visible_early": (
        "nothing is shown before it is flushed",
        20,
        having(log, "flush", _moves_before_the_sync),
    ),
    "unchecked_sequences": (
        "what a producer repeats is not appended again",
        10,
        having(ProducerStates, "check", _only_known_epochs),
    ),
    "forgotten_producers": (
        "a broker that starts again knows what its producers have sent",
        10,
        having(ProducerStates, "replace", does_nothing),
    ),
    "same_producer_ids": (
        "no producer id is given out twice",
        10,
        having(TopicTree, "claim_producer_ids", _same_block),
    ),
    "no_awaited": (
        "nothing goes before a batch that was refused and is to come again",
        600,
        having(AwaitedBatches, "check", does_nothing),
    ),
    "compacts_too_much": (
        "compaction keeps the last message of each key",
        100,
        having(_Compaction, "_stays", _keeps_the_first),
    ),
    "deletes_too_much": (
        "what was not asked to be deleted stays",
        10,
        having(Log, "delete_records", _one_more),
    ),
    "deletes_nothing": (
        "who missed the deletion of a topic does it when it is back",
        10,
        having(ClusterPart, "_delete_here", _later),
    ),
    "registered_once": (
        "a broker whose session has expired registers again",
        20,
        having(BrokerRegistration, "_session_changed", _registered_once),
    ),
    "unwatched": (
        "a broker sees every change of topics",
        10,
        having(TopicTree, "read", _no_watch),
    ),
    "lost_partitions": (
        "a topic never loses partitions",
        10,
        having(TopicTree, "change", _loses_settings),
    ),
    "not_moved": (
        "a coordinator gives up what became another's",
        60,
        having(LocalGroups, "_give_up", _not_moved),
    ),
    "no_rejoin": (
        "nobody gets a partition before all have joined again",
        10,
        having(Group, "_all_have_joined", gives(True)),
    ),
    "any_generation": (
        "who is of an earlier generation commits nothing",
        1000,
        having(Group, "commit", gives(Code.NONE)),
    ),
    "all_free": ("a member gets only what nobody has", 10, _all_free),
}

_COPIES: dict[str, tuple[str, int, Callable[[], AbstractContextManager[None]]]] = {
    "deleted_here": (
        "records are said to be deleted once all in-sync copies have deleted them",
        10,
        having(Leading, "low_watermark", lambda _: lambda self, earliest: earliest),
    ),
    "joins_undeleted": (
        "a copy gets in sync once it has deleted what the leader has",
        110,
        having(Leading, "_may_join", _as_if_all_had_begun),
    ),
}

MUTATIONS.update(
    {
        name: Mutation(rule, scene, seeds, make)
        for scene, mutations in (("today", _TODAY), ("copies", _COPIES))
        for name, (rule, seeds, make) in mutations.items()
    }
)
