"""Creating, altering and deleting topics for Kafka's clients: of one broker, or of a cluster.

In a cluster a topic is changed in coordination, in one step. Each broker then does its part once it
has seen that: it makes directories, uses the settings, and deletes files.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

from twisted.internet.defer import Deferred

from hermes.cluster.cluster_part import ClusterPart
from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.deletions import Deletions
from hermes.cluster.gathering import Gathered
from hermes.cluster.placement import numbered_places, own_places
from hermes.cluster.replica_placing import (
    DEFAULT,
    Assignment,
    ReplicaPlacing,
    copies_of,
    with_copies,
)
from hermes.cluster.shared import Shared
from hermes.cluster.topic_settings import SettingChanges
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.loading import parse_topic_settings
from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.topic_tree import MOST_DELETED
from hermes.errors import (
    ConfigError,
    CoordinationUnavailableError,
    HermesError,
    TooManyTopicsError,
    TopicExistsError,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol import AlterTopicRequest, check_kafka_topic_name
from hermes.protocol.kafka_errors import Code, code_of
from hermes.quoting import quoted
from hermes.replication.state import TopicReplicas
from hermes.server.clients import UNKNOWN_CLIENT, Client

#: The setting that says what a topic's partitions hold.
_FORMAT: Final = "format"
_PARTITIONS: Final = "partitions"
_MIN_INSYNC: Final = "min_insync_replicas"


class TopicChanges:
    """Lives in the reactor's thread; whatever is refused raises a HermesError.

    `part`: this broker's part in a cluster; None where there is none.
    """

    def __init__(
        self,
        shared: Shared,
        topics: ClusterTopics,
        changes: SettingChanges,
        deletions: Deletions,
        part: ClusterPart | None = None,
    ) -> None:
        self._shared = shared
        self._registry = shared.topics
        self._topics = topics
        self._changes = changes
        self._deletions = deletions
        self._part = part
        self._placing = ReplicaPlacing(shared, topics)
        self._waiting: frozenset[int] | None = None  # for others than these brokers
        self._doomed = Gathered[ClusterTopic](self._delete_all, MOST_DELETED)  # in a cluster
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        known = self.known()
        if known is not None:
            known.addCallbacks(
                lambda _: Deferred.fromCoroutine(self._create_declared()),
                lambda failure: failure.trap(CoordinationUnavailableError),
            )
        if part is not None:
            part.observe(lambda _: self._try_declared())
            shared.settings.on_change(self._settings_changed)
        if shared.config.default_replication_factor > 1:
            self._log.info(
                "copies",
                "topics of the format kafka get {copies} copies unless their creation says it; "
                "those of 0.7's format have one",
                copies=shared.config.default_replication_factor,
            )

    # -- checks ---------------------------------------------------------------------------------

    def check_new(
        self,
        name: str,
        count: int,
        settings: Mapping[str, str],
        copies: int = DEFAULT,
        assignment: Assignment | None = None,
    ) -> tuple[int, Assignment]:
        """Returns how many partitions a new topic would have, and on which brokers their copies.

        Arguments and errors are as of `create`.
        """
        check_kafka_topic_name(name)
        if self._topics.get(name) is not None:
            raise TopicExistsError(f"Topic {quoted(name)} already exists.")
        if count == DEFAULT:  # a client may be quicker with a topic that broker.yaml declares
            count = self._registry.partition_count(name)
        self._check_count(count)
        self._changes.check_new_topic(name, self._texts(count, settings))
        placed = self._placing.new(name, count, copies, assignment)
        self._check_min_insync(name, settings, len(placed[0]))
        return count, placed

    def check_grow(
        self, topic: ClusterTopic, count: int, assignment: Assignment | None = None
    ) -> Assignment:
        """Returns on which brokers the copies of the new partitions of Kafka's format would be."""
        self._check_count(count)
        if topic.format != FORMAT_KAFKA:
            self._placing.check_sole(topic.name, assignment)
            return assignment or ()
        return self._placing.more(topic, len(topic.partitions), count, assignment)

    def check_alter(
        self, topic: ClusterTopic, given: Mapping[str, str], reset: Collection[str]
    ) -> None:
        self._check_min_insync(topic.name, given, min(copies_of(topic)))
        if self._registry.exists(topic.name):
            self._changes.check_alter(_altering(topic.name, given, reset))
        else:
            self._check_elsewhere(topic.name, given)

    def _check_elsewhere(self, name: str, given: Mapping[str, str]) -> None:
        """Check settings of a topic of Kafka's format, which this broker needn't have any of."""
        self._changes.check_settings(name, {**given, _FORMAT: FORMAT_KAFKA})

    def _check_min_insync(self, name: str, given: Mapping[str, str], copies: int) -> None:
        if _MIN_INSYNC not in given:
            return
        asked = parse_topic_settings({_MIN_INSYNC: given[_MIN_INSYNC]}).min_insync_replicas
        if asked is not None and asked > copies:
            raise ConfigError(
                _MIN_INSYNC,
                f"{asked} copies of topic {quoted(name)} can't be in sync: it has {copies}. Give "
                f"it more replicas, or ask for {copies} at most",
            )

    def _check_count(self, count: int) -> None:
        limit = self._shared.config.max_partitions
        if count > limit:
            raise TooManyTopicsError(f"{count} partitions are more than max_partitions={limit}")

    def _texts(self, count: int, settings: Mapping[str, str]) -> dict[str, str]:
        texts = {**settings, _FORMAT: FORMAT_KAFKA}
        return texts if self._topics.has_cluster else {**texts, _PARTITIONS: str(count)}

    # -- changes --------------------------------------------------------------------------------

    async def create(
        self,
        name: str,
        partitions: int,
        settings: Mapping[str, str],
        client: Client,
        copies: int = DEFAULT,
        assignment: Assignment | None = None,
    ) -> ClusterTopic:
        """Create a topic with Kafka's format.

        Args:
            partitions: how many it has in the whole cluster; `DEFAULT` for what broker.yaml says.
            settings: each as broker.yaml would have it.
            copies: how many brokers have each partition; `DEFAULT` for what broker.yaml says.
            assignment: which brokers have each partition, the preferred leader first; chosen unless
                given.
        """
        count, placed = self.check_new(name, partitions, settings, copies, assignment)
        if self._part is None:
            await self._changes.create_topic(name, self._texts(count, settings), client)
            await self._topics.make([(name, number) for number in range(1, count)])
            return self._found(name)
        node = TopicNode(uuid4(), FORMAT_KAFKA, numbered_places(placed), dict(settings))
        replicas = with_copies(TopicReplicas(node.id, ()), 0, placed, self._topics.lives)
        if not await self._part.cluster.do(lambda tree: tree.create(name, node, replicas)):
            raise TopicExistsError(f"Topic {quoted(name)} already exists.")
        self._log.info(
            "created",
            "created topic {topic} ({count} partitions) with {copies} copies of each for {client}",
            topic=name,
            count=count,
            copies=len(placed[0]),
            client=client,
        )
        await self._part.do(name)
        return self._found(name)

    async def grow(
        self,
        topic: ClusterTopic,
        count: int,
        client: Client,
        assignment: Assignment | None = None,
    ) -> None:
        """Let a topic have `count` partitions; `assignment` is as in `create`, of the new ones.

        Raises WrongPartitionError: it has as many already.
        """
        self.check_grow(topic, count, assignment)
        name = topic.name
        if self._part is None:
            given = {_PARTITIONS: str(count)}
            await self._changes.alter_topic(_altering(name, given, ()), client)
            if topic.format == FORMAT_KAFKA:
                await self._topics.make(
                    [(name, each) for each in range(len(topic.partitions), count)]
                )
            return
        first = 0
        placed: Assignment = ()

        def change(node: TopicNode | None) -> TopicNode | None:
            nonlocal first, placed
            if node is None or node.id != topic.id:
                raise UnknownTopicError(f"there is no topic {quoted(name)}")
            first = len(node.partitions)
            if first >= count:
                raise WrongPartitionError(f"topic {quoted(name)} has {first} partitions already")
            if node.format == FORMAT_KAFKA:
                placed = self._placing.more(topic, first, count, assignment)
                places = numbered_places(placed, first)
            else:
                brokers = None if assignment is None else [each for (each,) in assignment]
                places = own_places(name, node, count - first, brokers, self._topics.live)
            return replace(node, partitions=(*node.partitions, *places))

        def change_replicas(before: TopicReplicas | None) -> TopicReplicas | None:
            if before is None or before.id != topic.id:
                before = TopicReplicas(topic.id, ())
            return with_copies(before, first, placed, self._topics.lives)

        await self._part.cluster.do(lambda tree: tree.change(name, change, change_replicas))
        await self._part.do(name)

    async def alter(
        self,
        topic: ClusterTopic,
        given: Mapping[str, str],
        reset: Collection[str],
        client: Client,
    ) -> None:
        """Set (as broker.yaml would have it) and reset settings of a topic."""
        self._check_min_insync(topic.name, given, min(copies_of(topic)))
        if self._part is None or topic.format != FORMAT_KAFKA:
            await self._changes.alter_topic(_altering(topic.name, given, reset), client)
            return

        def change(node: TopicNode | None) -> TopicNode | None:
            if node is None or node.id != topic.id:
                raise UnknownTopicError(f"there is no topic {quoted(topic.name)}")
            kept = {key: text for key, text in node.settings.items() if key not in reset}
            return replace(node, settings={**kept, **given})

        self._check_elsewhere(topic.name, given)
        await self._part.cluster.do(lambda tree: tree.change(topic.name, change))
        await self._part.do(topic.name)

    async def delete(self, topic: ClusterTopic, client: Client) -> None:
        """Delete a topic with all its partitions; some of it may be left if that fails."""
        name = topic.name
        if self._part is None:
            await self._deletions.delete_topic(name, client)
            return

        deleted = await self._doomed.add(topic)
        if isinstance(deleted, HermesError):
            raise deleted
        if deleted is None:
            raise UnknownTopicError(f"there is no topic {quoted(name)}")
        gone = self._part.deletion(topic.id)
        if gone is not None:
            await gone
        self._log.info("deleted", "deleted topic {topic} for {client}", topic=name, client=client)

    async def _delete_all(self, topics: Sequence[ClusterTopic]) -> Sequence[Any]:
        assert self._part is not None
        wanted = {each.name: partial(_is_of, each.id) for each in topics}
        deleted = await self._part.cluster.do(lambda tree: tree.delete_all(wanted))
        return [deleted.pop(each.name, None) for each in topics]

    def _found(self, name: str) -> ClusterTopic:
        found = self._topics.get(name)
        if found is None:  # deleted in this very moment
            raise UnknownTopicError(f"there is no topic {quoted(name)}")
        return found

    # -- the cluster ----------------------------------------------------------------------------

    async def _create_declared(self) -> None:
        """Create the topics of Kafka's format that broker.yaml declares; one broker is first.

        Those that are to have more copies than there are brokers wait for more of these.
        """
        config, live = self._shared.config, self._topics.live
        waits = False
        for name in config.topics:
            settings = config.topic(name)
            if settings.format == FORMAT_KAFKA and self._topics.get(name) is None:
                try:
                    await self.create(name, settings.partitions, {}, UNKNOWN_CLIENT)
                except TopicExistsError:
                    pass
                except HermesError as error:
                    waits |= self._not_declared(name, error)
        self._waiting = live if waits else None
        self._try_declared()

    def _settings_changed(self) -> None:
        if self._topics.is_known:
            Deferred.fromCoroutine(self._create_declared())

    def _not_declared(self, name: str, error: HermesError) -> bool:
        """Say why a declared topic can't be created; whether it can once there are more brokers."""
        waits = code_of(error) is Code.INVALID_REPLICATION_FACTOR
        if not waits:
            self._log.error(
                "declared",
                "can't create {topic}, which broker.yaml declares: {error}",
                topic=name,
                error=error,
            )
        elif self._waiting is None:
            self._log.info(
                "waiting",
                "{topic}, which broker.yaml declares, waits for other brokers: {error}",
                topic=name,
                error=error,
            )
        return waits

    def _try_declared(self) -> None:
        if self._waiting is not None and self._waiting != self._topics.live:
            self._waiting = self._topics.live
            Deferred.fromCoroutine(self._create_declared())

    def known(self) -> "Deferred[None] | None":
        """Fires when it is known which topics there are; None when it is."""
        return None if self._part is None else self._part.known()


def _is_of(topic_id: UUID, node: TopicNode) -> bool:
    return node.id == topic_id


def _altering(name: str, given: Mapping[str, str], reset: Collection[str]) -> AlterTopicRequest:
    return AlterTopicRequest(name, tuple(given.items()), tuple(reset))
