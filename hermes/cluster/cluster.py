"""What is true of brokers and topics, whichever protocol asks: each broker has one.

Without coordination, or without ports for Kafka's clients, the cluster is this broker. With both,
topics of Kafka's format are the cluster's: they are created, altered and deleted in coordination,
and each broker does its part. Topics of 0.7's format are each broker's own, but numbered through.
"""

from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from twisted.internet.defer import Deferred, fail, succeed

from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.cluster_value import ClusterValue
from hermes.cluster.deletions import Deletions
from hermes.cluster.producer_ids import ProducerIds
from hermes.cluster.replica_changes import ReplicaChanges
from hermes.cluster.replica_placing import DEFAULT, ReplicaPlacing
from hermes.cluster.requested import RequestedChanges
from hermes.cluster.shared import Shared
from hermes.cluster.topic_changes import TopicChanges
from hermes.cluster.topic_cluster import ClusterState, TopicCluster
from hermes.cluster.topic_settings import SettingChanges
from hermes.cluster.unclean_elections import UncleanElections
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.topic import COPY_COUNT, TOPIC_SETTINGS
from hermes.coordination.listeners import BrokerListeners
from hermes.coordination.nodes import TreeSession
from hermes.coordination.replicas import ReplicaTree
from hermes.errors import ConfigError, CoordinationUnavailableError, TopicExistsError
from hermes.protocol import AlterTopicRequest
from hermes.protocol.kafka_errors import KafkaError
from hermes.quoting import quoted
from hermes.server.clients import Client
from hermes.transactions.state import STATE_TOPIC

if TYPE_CHECKING:
    from hermes.cluster.user_changes import UserChanges
    from hermes.security.shared_users import SharedUsers

_FORMAT: Final = "format"
_PARTITIONS: Final = "partitions"
_REPLICAS: Final = "replicas"


class Following(NamedTuple):
    """How a broker keeps up with coordination.

    Attributes:
        connect: makes a session that calls what it is given when something may have changed; None
            while there is no place to connect to. Called in a thread.
        from_thread: calls a function in the reactor's thread.
    """

    connect: Callable[[Callable[[], None]], TreeSession | None]
    from_thread: Callable[[Callable[[], None]], None]


class Cluster:
    """The cluster, as one of its brokers sees it. Lives in the reactor's thread.

    Args:
        shared: the broker's logs and settings.
        listeners: tells where this broker listens.
        cluster_id: tells the cluster's UUID; empty while it isn't known.
        following: None where the cluster is this broker.
        users: those of this broker, where it shares users with the others.
    """

    def __init__(
        self,
        shared: Shared,
        listeners: Callable[[], BrokerListeners],
        cluster_id: Callable[[], str],
        following: Following | None = None,
        users: "SharedUsers | None" = None,
    ) -> None:
        self.cluster_id = cluster_id
        self.topics = ClusterTopics(
            shared, listeners, cluster_id, has_cluster=following is not None
        )
        self.changes = SettingChanges(shared)
        self.deletions = Deletions(shared, self.changes)
        self.requested = RequestedChanges(shared)
        self.users: UserChanges | None = None
        self._values: list[ClusterValue[Any]] = []
        self._shared = shared
        self._part: ClusterPart | None = None
        claim = shared.directory.claim_producer_ids
        if following is not None:
            self._values.append(self.requested)
            if users is not None:
                from hermes.cluster import user_changes  # few brokers have users

                self.users = user_changes.UserChanges(shared, users)
                self._values.append(self.users)
            self._part = ClusterPart(
                shared,
                self.topics,
                self.changes,
                self.deletions,
                self._use_values,
                lambda on_state: TopicCluster(
                    shared.config.broker_id,
                    *following,
                    shared.in_thread,
                    on_state,
                    [each.node for each in self._values],
                ),
            )
            for each in self._values:
                each.do_in_cluster = self._part.cluster.do
                each.try_later = self._part.try_later
            claim = partial(claim, elsewhere=self._part.cluster.claim_producer_ids)
        self.topic_changes = TopicChanges(
            shared, self.topics, self.changes, self.deletions, self._part
        )
        self.replica_changes = ReplicaChanges(ReplicaPlacing(shared, self.topics), self._part)
        self._unclean = None
        if self._part is not None:
            self._unclean = UncleanElections(shared, self.topics, self.replica_changes, self._part)
        self.producer_ids = ProducerIds(claim, shared.in_thread)

    def begin(self, look: Callable[[Collection[str]], Mapping[str, bytes]]) -> None:
        """Have users and rules be the cluster's before anybody is served. Blocks.

        `look`: reads nodes of coordination; leaves those out that can't be read now. Raises
        CorruptEntriesError, ConfigError: what is kept of them can't be used.
        """
        found = look([each.node for each in self._values]) if self._values else {}
        for each in self._values:
            each.begin(found.get(each.node))

    def _use_values(self, found: Mapping[str, bytes]) -> None:
        for each in self._values:
            if each.node in found:
                each.use(found[each.node])

    def start(self) -> None:
        if self._part is not None:
            self._part.cluster.start()

    def stop(self) -> "Deferred[None]":
        if self._part is None:
            return succeed(None)
        self._part.stop()
        if self._unclean is not None:
            self._unclean.stop()
        return self._part.cluster.stop()

    # -- copies -----------------------------------------------------------------------------------

    def observe(self, observer: Callable[[ClusterState], None]) -> None:
        """Have `observer` called with each new state of coordination; never without a cluster."""
        if self._part is not None:
            self._part.observe(observer)

    def replica_tree(self) -> ReplicaTree:
        """What coordination has of copies. Any thread.

        Raises CoordinationUnavailableError: it wasn't reached yet, or there is none.
        """
        tree = None if self._part is None else self._part.cluster.tree
        if tree is None:
            raise CoordinationUnavailableError("coordination isn't reached yet; try again")
        return tree.replicas

    def refreshed(self) -> "Deferred[None]":
        """Fires once coordination was read again; fails where it can't be."""
        return succeed(None) if self._part is None else self._part.cluster.refreshed()

    # -- what a topic's settings say as broker.yaml would ---------------------------------------

    def create_topic(self, name: str, texts: Mapping[str, str], client: Client) -> "Deferred[Any]":
        """Create a topic, in the cluster if its format is Kafka's.

        Its settings are as broker.yaml would have them, and `replicas` how many copies it gets.
        Fires when the topic exists; fails with HermesError when it is refused.
        """
        return Deferred.fromCoroutine(self._create(name, dict(texts), client))

    async def _create(self, name: str, texts: dict[str, str], client: Client) -> None:
        copies = _count_of_copies(texts.pop(_REPLICAS, None))
        others = dict(texts)
        form = others.pop(_FORMAT, self._shared.config.topic(name).format).strip("'\"")
        count = others.pop(_PARTITIONS, "-1")
        is_number = count.removeprefix("-").isdecimal()  # else this broker refuses it
        if copies > 1 and form != FORMAT_KAFKA:
            raise ConfigError(
                _REPLICAS,
                f"messages of Kafka {form} have one copy: copies need `format: {FORMAT_KAFKA}`",
            )
        if (self._part is None and copies <= 1) or form != FORMAT_KAFKA or not is_number:
            await self.changes.create_topic(name, texts, client)
        else:
            await self._create_once(name, int(count), others, client, copies)

    async def _create_once(
        self, name: str, count: int, texts: Mapping[str, str], client: Client, copies: int
    ) -> None:
        try:
            await self.topic_changes.create(name, count, texts, client, copies)
        except KafkaError as error:
            raise ConfigError(_REPLICAS, str(error)) from None
        except TopicExistsError:
            found = self.topics.get(name)
            count = len(found.partitions) if found else 0
            raise TopicExistsError(
                f"topic {quoted(name)} exists already, with {count} partitions in the cluster: one "
                "of Kafka's format is created once, on any of the brokers, for all of them"
            ) from None

    def alter_topic(self, request: AlterTopicRequest, client: Client) -> "Deferred[Any]":
        changed = {*dict(request.settings), *(request.reset or ())}
        if request.topic == STATE_TOPIC and (request.reset is None or _PARTITIONS in changed):
            return fail(ConfigError(_PARTITIONS, "those of transactional ids stay as they are"))
        found = self._of_cluster(request.topic)
        if found is None:
            return self.changes.alter_topic(request, client)
        return Deferred.fromCoroutine(self._alter(found, request, client))

    async def _alter(self, topic: ClusterTopic, request: AlterTopicRequest, client: Client) -> None:
        given = dict(request.settings)
        now = len(topic.partitions)
        count = given.pop(_PARTITIONS, str(now))
        form = given.pop(_FORMAT, FORMAT_KAFKA).strip("'\"")
        reset = TOPIC_SETTINGS.keys() if request.reset is None else request.reset
        if not count.isdecimal() or int(count) < now:
            raise ConfigError(
                _PARTITIONS, f"topic {quoted(topic.name)} has {now}, and never loses one"
            )
        if form != FORMAT_KAFKA:
            raise ConfigError(
                _FORMAT, f"topic {quoted(topic.name)} is {FORMAT_KAFKA}, and keeps its format"
            )
        if given or reset:
            await self.topic_changes.alter(topic, given, reset, client)
        if int(count) > now:
            await self.topic_changes.grow(topic, int(count), client)

    def delete_topic(self, name: str, client: Client) -> "Deferred[None]":
        found = self._of_cluster(name)
        if found is None:
            return self.deletions.delete_topic(name, client)
        return Deferred.fromCoroutine(self.topic_changes.delete(found, client))

    def _of_cluster(self, name: str) -> ClusterTopic | None:
        """A topic that is the cluster's; None for one of this broker's own, or none at all."""
        found = None if self._part is None else self.topics.get(name)
        return found if found is not None and found.format == FORMAT_KAFKA else None


def _count_of_copies(text: str | None) -> int:
    if text is None:
        return DEFAULT
    try:
        return int(COPY_COUNT.parse(int(text) if text.isdecimal() and len(text) < 20 else text))
    except ValueError as error:
        raise ConfigError(_REPLICAS, str(error)) from None
