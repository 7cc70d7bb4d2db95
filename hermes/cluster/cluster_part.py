"""A broker's part of the cluster's topics: their directories, settings, and deletions.

What a broker missed while it was down, it does when it is back: what it has is compared with the
cluster's state, so that no crash between two steps leaves anything undone.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Final
from uuid import UUID

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IDelayedCall
from twisted.python.failure import Failure

from hermes.announcement import Announcement
from hermes.cluster.cluster_topics import ClusterTopics
from hermes.cluster.deletions import Deletions
from hermes.cluster.gathering import Gathered
from hermes.cluster.local_partitions import LocalPartitions
from hermes.cluster.shared import Shared
from hermes.cluster.topic_cluster import ClusterState, TopicCluster
from hermes.cluster.topic_settings import SettingChanges
from hermes.config.kinds import FORMAT_0_7, FORMAT_KAFKA
from hermes.coordination.kafka_topics import DeletedTopic, TopicNode
from hermes.coordination.topic_tree import MOST_DELETED
from hermes.errors import CoordinationUnavailableError, HermesError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol import AlterTopicRequest
from hermes.server.clients import UNKNOWN_CLIENT

_FORMAT: Final = "format"
_PARTITIONS: Final = "partitions"

#: The pause before what failed is tried again.
RETRY_SECONDS: Final = 5.0


class ClusterPart:
    """Lives in the reactor's thread. `follow` makes the TopicCluster, which reports the state.

    `use_values`: takes what the cluster's nodes hold that are no topics, by path.
    """

    def __init__(
        self,
        shared: Shared,
        topics: ClusterTopics,
        changes: SettingChanges,
        deletions: Deletions,
        use_values: Callable[[Mapping[str, bytes]], None],
        follow: Callable[[Callable[[ClusterState], None]], TopicCluster],
    ) -> None:
        self._shared = shared
        self._registry = shared.topics
        self._topics = topics
        self._changes = changes
        self._deletions = deletions
        self._use_values = use_values
        self.cluster = follow(self.on_state)
        self._observers: list[Callable[[ClusterState], None]] = []
        self._known = Announcement[None]()  # what there is
        self._nodes: Mapping[str, TopicNode] = {}
        self._deleted: Mapping[UUID, DeletedTopic] = {}
        self._deleting: dict[UUID, Announcement[None]] = {}  # that each is gone here
        # Of 0.7's format, which has no ids, those that are gone here and of which that isn't known
        # to be said: what has such a name now may be another one.
        self._unsaid: set[UUID] = set()
        self._gone = Gathered[UUID](self._say_gone, MOST_DELETED)  # to be said in the cluster
        self._values: Mapping[str, bytes] = {}
        self._unused: set[str] = set()  # topics whose settings could not be used
        self._retry: IDelayedCall | None = None
        self._is_stopped = False
        self._local: Mapping[str, LocalPartitions] = {}
        self._without_id: set[str] = set()  # `kafka` topics here that have none yet
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        for observed in (self._registry.on_change, shared.settings.on_topic_change):
            observed(lambda name: self._publish_local([name]))
        self._publish_local(self._registry.names())

    def observe(self, observer: Callable[[ClusterState], None]) -> None:
        """Have `observer` called with each new state, once the topics are those of it."""
        self._observers.append(observer)

    def deletion(self, topic_id: UUID) -> "Deferred[None] | None":
        """Fires when this broker's deletion of a topic is over; None when there is none."""
        gone = self._deleting.get(topic_id)
        return None if gone is None else gone.wait()

    def known(self) -> "Deferred[None] | None":
        """Fires when it is known which topics there are; None when it is."""
        return None if self._topics.is_known else self._known.wait()

    def stop(self) -> None:
        """Fail those that wait to know which topics there are, and try nothing again."""
        self._is_stopped = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        stops = CoordinationUnavailableError("the broker stops")
        self._known.tell(Failure(stops))  # type: ignore[no-untyped-call]

    def _publish_local(self, names: Collection[str]) -> None:
        changed: dict[str, LocalPartitions | None] = {}
        for each in {*names, *self._without_id}:
            if self._registry.is_being_deleted(each):
                continue  # its logs are gone before it is: it would look like one of 0.7
            self._without_id.discard(each)
            local = None
            if self._registry.exists(each):
                local = self._local_of(each)
                if local is None:
                    self._without_id.add(each)
            if local != self._local.get(each):
                changed[each] = local
        if changed:
            published = dict(self._local)  # the cluster's thread reads what it was given
            for name, local in changed.items():
                if local is None:
                    del published[name]
                else:
                    published[name] = local
            self._local = published
            self.cluster.publish_local(published)

    def _local_of(self, name: str) -> LocalPartitions | None:
        """None for a `kafka` topic that has no id yet."""
        if self._registry.format(name) != FORMAT_KAFKA:
            return LocalPartitions(
                FORMAT_0_7, None, tuple(range(self._registry.partition_count(name)))
            )
        # Copies have their place. Should coordination have lost it, no single one may take it. And
        # who doesn't know its topic's id would bring one back that is deleted.
        logs = [
            each
            for each in self._registry.partitions(name)
            if each.is_sole_copy and not each.has_provisional_id
        ]
        topic_id = next((each.topic_id for each in logs if each.topic_id), None)
        if topic_id is None:
            return None
        return LocalPartitions(FORMAT_KAFKA, topic_id, tuple(each.partition for each in logs))

    def on_state(self, state: ClusterState) -> None:
        before, self._deleted = self._nodes, state.contents.deleted
        self._unsaid &= self._deleted.keys()
        # A topic that was deleted while this was read is in both: whoever used it would make anew
        # what is being deleted.
        self._nodes = {
            name: node
            for name, node in state.contents.topics.items()
            if node.id not in self._deleted
        }
        state = state._replace(contents=state.contents._replace(topics=self._nodes))
        self._topics.use(
            self._nodes,
            state.brokers,
            state.contents.replicas,
            state.lives,
            state.contents.unreadable,
        )
        self._topics.throttles = state.throttles
        for observer in self._observers:
            observer(state)
        self._values = state.values
        self._use_values(state.values)
        self._begin_deletions()
        for name, node in self._nodes.items():
            known = before.get(name)  # read again where only its copies have changed
            if node is not known and node != known:
                Deferred.fromCoroutine(self.do(name))
        for name in before.keys() - self._nodes.keys():
            if not self._registry.exists(name):
                Deferred.fromCoroutine(self._forget(name))
        self._known.tell(None)

    def _begin_deletions(self) -> None:
        for topic_id, deleted in self._deleted.items():
            if self._topics.broker_id in deleted.brokers and topic_id not in self._deleting:
                self._deleting[topic_id] = Announcement()
                local = self._any_local(deleted.name)
                is_here = local is not None and local.is_of(topic_id, deleted)
                if deleted.format == FORMAT_KAFKA and self._is_mistaken(deleted.name):
                    is_here = True
                if topic_id in self._unsaid:
                    is_here = False
                Deferred.fromCoroutine(self._delete_here(deleted, topic_id, is_here))

    def try_later(self) -> None:
        """Nothing may change in the cluster for long, and so nothing would have it tried again."""
        if self._retry is None and not self._is_stopped:
            self._retry = self._shared.clock.callLater(RETRY_SECONDS, self._try_again)

    def _try_again(self) -> None:
        self._retry = None

        def refreshed(_: None) -> None:
            self._use_values(self._values)
            self._begin_deletions()
            unused, self._unused = self._unused, set()
            for name in sorted(unused):
                Deferred.fromCoroutine(self.do(name))

        def failed(failure: Failure) -> None:
            failure.trap(HermesError)  # type: ignore[no-untyped-call]
            self.try_later()

        # Of what was read before, some may be done, and a name be another topic's.
        self.cluster.refreshed().addCallbacks(refreshed, failed)

    def _any_local(self, name: str) -> LocalPartitions | None:
        logs = self._registry.partitions(name) if self._registry.exists(name) else []
        if not logs:
            return None
        # Who doesn't know its topic has nothing that anybody was told to be kept: it goes, too.
        topic_id = None if logs[0].has_provisional_id else logs[0].topic_id
        numbers = tuple(each.partition for each in logs)
        return LocalPartitions(logs[0].format.name, topic_id, numbers)

    async def _delete_here(self, deleted: DeletedTopic, topic_id: UUID, is_here: bool) -> None:
        try:
            await self._delete_files(deleted.name, is_here)
            if deleted.format == FORMAT_0_7:
                self._unsaid.add(topic_id)
            self._deleting[topic_id].tell(None)
            await self._gone.add(topic_id)
        except HermesError as error:
            self._log.error(
                "not deleted",
                "{topic} is not deleted yet: {error}",
                topic=deleted.name,
                error=error,
            )
            self.try_later()
        finally:
            self._deleting.pop(topic_id).tell(None)

    async def _delete_files(self, name: str, is_here: bool) -> None:
        shared = self._shared
        if is_here:
            await self._deletions.delete_topic(name, UNKNOWN_CLIENT)
            return
        await shared.in_thread(shared.directory.delete_left, name)
        if not self._registry.exists(name) and name not in self._nodes:
            # A crash came between the last of its files and what was set for it.
            await shared.in_thread(shared.directory.delete_topic, name)
            await self._changes.forget([name])

    async def _say_gone(self, topic_ids: Sequence[UUID]) -> Sequence[None]:
        broker_id = self._topics.broker_id
        await self.cluster.do(lambda tree: tree.has_deleted(topic_ids, broker_id))
        return [None] * len(topic_ids)

    async def do(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        numbers = node.of(self._topics.broker_id)
        try:
            if node.format == FORMAT_KAFKA:
                if self._is_mistaken(name):
                    await self._deletions.delete_topic(name, UNKNOWN_CLIENT)
                texts = {**node.settings, _FORMAT: FORMAT_KAFKA}
                await self._changes.use_settings(name, texts)
            else:
                await self._grow(name, numbers)
        except HermesError as error:
            self._log.error(
                "settings",
                "the cluster's settings of {topic} can't be used: {error}",
                topic=name,
                error=error,
            )
            self._unused.add(name)
            self.try_later()
        if node.format == FORMAT_KAFKA:
            topic = self._topics.get(name)
            sole = [each for each in numbers if topic is not None and topic.state(each) is None]
            await self._topics.make([(name, number) for number in sole])

    def _is_mistaken(self, name: str) -> bool:
        """Whether what is here of a topic of Kafka's was taken for one of 0.7."""
        logs = self._registry.partitions(name) if self._registry.exists(name) else []
        return bool(logs) and all(log.replica.may_be_mistaken for log in logs)

    async def _grow(self, name: str, numbers: Sequence[int]) -> None:
        """Have as many partitions of a topic of 0.7's format as have Kafka's numbers."""
        count, registry = max(numbers, default=-1) + 1, self._registry
        if not registry.exists(name) or registry.format(name) != FORMAT_0_7:
            return
        if count > registry.partition_count(name):
            request = AlterTopicRequest(name, ((_PARTITIONS, str(count)),), ())
            await self._changes.alter_topic(request, UNKNOWN_CLIENT)

    async def _forget(self, name: str) -> None:
        """Drop the settings of a topic that is gone, and that had no partition here."""
        with suppress(HermesError):  # they do no harm
            await self._changes.forget([name])
