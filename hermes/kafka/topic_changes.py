"""Creating, altering and deleting topics for Kafka's clients: of one broker, or of a cluster.

A topic of one broker is changed as 0.7's are. In a cluster it is changed in coordination, in one
step; each broker then does its part, as soon as it has seen that: it makes directories, uses the
settings, and deletes files.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import UUID, uuid4
from zlib import crc32

from twisted.internet.defer import Deferred

from hermes.broker.changing import Changes
from hermes.broker.clients import UNKNOWN_CLIENT, Client
from hermes.broker.deleting import Deletions
from hermes.broker.fairness import cooperatively
from hermes.broker.outcomes import settled
from hermes.broker.shared import Shared
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.topic import TOPIC_SETTINGS
from hermes.coordination.kafka_topics import TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import (
    ConfigError,
    CoordinationUnavailableError,
    HermesError,
    TooManyTopicsError,
    TopicExistsError,
    UnknownTopicError,
    WrongPartitionError,
)
from hermes.kafka.cluster import Seen, Share, TopicCluster
from hermes.kafka.topics import KafkaTopic, KafkaTopics
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.protocol import AlterTopicRequest, CreateTopicRequest, check_kafka_topic_name
from hermes.quoting import quoted
from hermes.storage import Log

#: The setting that says what a topic's partitions hold.
_FORMAT: Final = "format"
_PARTITIONS: Final = "partitions"


class TopicChanges:
    """Changes topics. Lives in the reactor's thread.

    Args:
        shared: the broker's logs and settings.
        topics: what there is.
        changes: changes this broker's topics.
        deletions: deletes this broker's topics.
    """

    _log = ModuleLogger()

    def __init__(
        self, shared: Shared, topics: KafkaTopics, changes: Changes, deletions: Deletions
    ) -> None:
        self._shared = shared
        self._registry = shared.topics
        self._topics = topics
        self._changes = changes
        self._deletions = deletions
        self._cluster: TopicCluster | None = None
        self._known: list[Deferred[None]] = []  # wait until it is known what there is
        self._nodes: Mapping[str, TopicNode] = {}
        self._deleting: dict[UUID, list[Deferred[None]]] = {}  # and who waits for it
        self._lines = LimitedLog(self._log, shared.clock.seconds)

    # -- checks ---------------------------------------------------------------------------------

    def check_new(self, name: str, count: int, settings: Mapping[str, str]) -> None:
        """Refuse a topic that can't be created.

        Raises:
            HermesError: it can't be.
        """
        check_kafka_topic_name(name)
        if self._topics.get(name) is not None:
            raise TopicExistsError(f"Topic {quoted(name)} already exists.")
        self._check_count(count)
        self._changes.check_new_topic(name, self._texts(count, settings))

    def check_grow(self, topic: KafkaTopic, count: int) -> None:
        """Refuse a number of partitions that a topic can't have.

        Raises:
            HermesError: it can't.
        """
        self._check_count(count)
        if self._topics.has_cluster and topic.format != FORMAT_KAFKA:
            raise ConfigError(
                _PARTITIONS,
                f"topic {quoted(topic.name)} has Kafka 0.7's format: in a cluster its brokers' "
                "partitions are set by `hermes topics alter`",
            )

    def check_alter(
        self, topic: KafkaTopic, given: Mapping[str, str], reset: Collection[str]
    ) -> None:
        """Refuse settings that a topic can't have.

        Raises:
            HermesError: it can't.
        """
        if self._registry.exists(topic.name):
            self._changes.check_alter(_altering(topic.name, given, reset))

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
        brokers: Sequence[int] | None = None,
    ) -> KafkaTopic:
        """Create a topic with Kafka's format.

        Args:
            name: its name.
            partitions: how many it has in the whole cluster; -1 for `num_partitions`.
            settings: further settings of the topic, each as broker.yaml would have it.
            client: who wants it, for the log.
            brokers: on which broker each partition is; one after the other unless given.

        Raises:
            HermesError: it is refused.
        """
        count = self._shared.config.num_partitions if partitions == -1 else partitions
        self.check_new(name, count, settings)
        if self._cluster is None:
            await self._changes.create_topic(name, self._texts(count, settings), client)
            await self._make([(name, number) for number in range(1, count)])
            return self._found(name)
        places = self._places(name, 0, count, brokers)
        node = TopicNode(uuid4(), FORMAT_KAFKA, places, dict(settings))
        if not await self._cluster.do(lambda tree: tree.create(name, node)):
            raise TopicExistsError(f"Topic {quoted(name)} already exists.")
        self._lines.info(
            "created",
            "created topic {topic} ({count} partitions) for {client}",
            topic=name,
            count=count,
            client=client,
        )
        await self._do_part(name)
        return self._found(name)

    async def grow(
        self,
        topic: KafkaTopic,
        count: int,
        client: Client,
        brokers: Sequence[int] | None = None,
    ) -> None:
        """Let a topic have more partitions.

        Args:
            topic: the topic.
            count: how many it shall have.
            client: who wants it, for the log.
            brokers: on which broker each new one is.

        Raises:
            WrongPartitionError: it has as many already.
            HermesError: it is refused.
        """
        self.check_grow(topic, count)
        name = topic.name
        if self._cluster is None:
            given = {_PARTITIONS: str(count)}
            await self._changes.alter_topic(_altering(name, given, ()), client)
            if topic.format == FORMAT_KAFKA:
                await self._make([(name, each) for each in range(len(topic.partitions), count)])
            return

        def change(node: TopicNode | None) -> TopicNode | None:
            if node is None or node.id != topic.id:
                raise UnknownTopicError(f"there is no topic {quoted(name)}")
            now = len(node.partitions)
            if now >= count:
                raise WrongPartitionError(f"topic {quoted(name)} has {now} partitions already")
            places = self._places(name, now, count, brokers)
            return replace(node, partitions=(*node.partitions, *places))

        await self._cluster.do(lambda tree: tree.change(name, change))

    async def alter(
        self,
        topic: KafkaTopic,
        given: Mapping[str, str],
        reset: Collection[str],
        client: Client,
    ) -> None:
        """Set and reset settings of a topic.

        Args:
            topic: the topic.
            given: what to set, as broker.yaml would have it.
            reset: what to reset.
            client: who wants it, for the log.

        Raises:
            HermesError: it is refused.
        """
        if self._cluster is None or topic.format != FORMAT_KAFKA:
            await self._changes.alter_topic(_altering(topic.name, given, reset), client)
            return

        def change(node: TopicNode | None) -> TopicNode | None:
            if node is None or node.id != topic.id:
                raise UnknownTopicError(f"there is no topic {quoted(topic.name)}")
            kept = {key: text for key, text in node.settings.items() if key not in reset}
            return replace(node, settings={**kept, **given})

        self._changes.check_settings(topic.name, given)
        await self._cluster.do(lambda tree: tree.change(topic.name, change))
        await self._do_part(topic.name)

    async def delete(self, topic: KafkaTopic, client: Client) -> None:
        """Delete a topic with all its partitions.

        Raises:
            HermesError: it is refused, or some of it may be left.
        """
        name = topic.name
        if self._cluster is None:
            await self._deletions.delete_topic(name, client)
            return

        def delete(tree: TopicTree) -> Any:
            return tree.delete(name, lambda node: node.id == topic.id)

        if await self._cluster.do(delete) is None:
            raise UnknownTopicError(f"there is no topic {quoted(name)}")
        if topic.id in self._deleting:
            gone: Deferred[None] = Deferred()
            self._deleting[topic.id].append(gone)
            await gone
        self._lines.info("deleted", "deleted topic {topic} for {client}", topic=name, client=client)

    def _found(self, name: str) -> KafkaTopic:
        found = self._topics.get(name)
        if found is None:  # deleted in this very moment
            raise UnknownTopicError(f"there is no topic {quoted(name)}")
        return found

    def _places(
        self, name: str, first: int, count: int, brokers: Sequence[int] | None
    ) -> tuple[BrokerPartition, ...]:
        """Where new partitions are: on the given brokers, or on those that live, in turns."""
        if brokers is not None:
            pairs = zip(brokers, range(first, count), strict=True)
            return tuple(BrokerPartition(*pair) for pair in pairs)
        live = self._topics.broker_ids
        start = crc32(name.encode())  # so that small topics don't all begin with the same one
        return tuple(
            BrokerPartition(live[(start + number) % len(live)], number)
            for number in range(first, count)
        )

    async def _make(self, partitions: Sequence[tuple[str, int]]) -> None:
        """Make directories of this broker's partitions; what fails is made when it is needed."""

        def make(pair: tuple[str, int]) -> Log | None:
            try:
                return self._topics.log(*pair)
            except HermesError as error:
                self._lines.warn(
                    "not made",
                    "{topic}-{number} can't be made now: {error}",
                    topic=pair[0],
                    number=pair[1],
                    error=error,
                )
                return None

        await settled(cooperatively(self._shared.scheduler, partitions, make))

    # -- the cluster ----------------------------------------------------------------------------

    def use_cluster(self, cluster: TopicCluster) -> None:
        """Change topics in a cluster from now on, and tell it what this broker has."""
        self._cluster = cluster
        self._changes.create_elsewhere = self._create_asked
        self._changes.alter_elsewhere = self._alter_asked
        self._deletions.delete_elsewhere = self._delete_asked
        self._registry.on_change(lambda _: self._tell_shares())
        self._tell_shares()

    def _create_asked(self, request: CreateTopicRequest, client: Client) -> "Deferred[Any] | None":
        """Create a topic for one of Hermes' own clients, if it has Kafka's format."""
        texts = dict(request.settings)
        if texts.pop(_FORMAT, "").strip("'\"") != FORMAT_KAFKA:
            return None
        count = texts.pop(_PARTITIONS, "-1")
        if not count.removeprefix("-").isdecimal():
            return None  # which refuses it
        return Deferred.fromCoroutine(self.create(request.topic, int(count), texts, client))

    def _alter_asked(self, request: AlterTopicRequest, client: Client) -> "Deferred[Any] | None":
        """The same for what is set."""
        found = self._topics.get(request.topic)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        given = dict(request.settings)
        count = given.pop(_PARTITIONS, "")
        reset = TOPIC_SETTINGS.keys() if request.reset is None else request.reset

        async def alter() -> None:
            if given or reset:
                await self.alter(found, given, reset, client)
            if count.isdecimal() and int(count) > len(found.partitions):
                await self.grow(found, int(count), client)

        return Deferred.fromCoroutine(alter())

    def _delete_asked(self, topic: str, client: Client) -> "Deferred[None] | None":
        """The same for a topic that is to go."""
        found = self._topics.get(topic)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        return Deferred.fromCoroutine(self.delete(found, client))

    def known(self) -> "Deferred[None] | None":
        """Fires when it is known what there is; None when it is."""
        if self._topics.is_known:
            return None
        known: Deferred[None] = Deferred()
        self._known.append(known)
        return known

    def stop(self) -> None:
        """Nobody waits any longer."""
        known, self._known = self._known, []
        for each in known:
            if not each.called:
                each.errback(CoordinationUnavailableError("the broker stops"))

    def _tell_shares(self) -> None:
        assert self._cluster is not None
        shares = {}
        for name in self._registry.names():
            logs = self._registry.partitions(name)
            if self._registry.format(name) == FORMAT_KAFKA:
                topic_id = next((each.topic_id for each in logs if each.topic_id), None)
                if topic_id is not None:
                    numbers = tuple(each.partition for each in logs)
                    shares[name] = Share(FORMAT_KAFKA, topic_id, numbers)
            else:
                count = self._registry.partition_count(name)
                shares[name] = Share("0.7", None, tuple(range(count)))
        self._cluster.use_shares(shares)

    def seen(self, seen: Seen) -> None:
        """What stands in coordination may have changed: do this broker's part of it."""
        before, self._nodes = self._nodes, seen.contents.topics
        is_first = not self._topics.is_known
        self._topics.use(seen.contents.topics, seen.brokers)
        for topic_id, deleted in seen.contents.deleted.items():
            if self._topics.broker_id in deleted.brokers and topic_id not in self._deleting:
                self._deleting[topic_id] = []
                share = self._share_of(deleted.name)
                is_here = share is not None and share.is_of(topic_id, deleted)
                Deferred.fromCoroutine(self._delete_here(deleted.name, topic_id, is_here))
        for name, node in self._nodes.items():
            if node is not before.get(name) and node.format == FORMAT_KAFKA:
                Deferred.fromCoroutine(self._do_part(name))
        for name in before.keys() - self._nodes.keys():
            if not self._registry.exists(name):
                Deferred.fromCoroutine(self._forget(name))
        if is_first:
            Deferred.fromCoroutine(self._create_declared())
        known, self._known = self._known, []
        for each in known:
            if not each.called:
                each.callback(None)

    async def _create_declared(self) -> None:
        """Create the topics of Kafka's format that broker.yaml declares; one broker is first."""
        config = self._shared.config
        for name in config.topics:
            settings = config.topic(name)
            if settings.format == FORMAT_KAFKA and self._topics.get(name) is None:
                try:
                    await self.create(name, settings.partitions, {}, UNKNOWN_CLIENT)
                except TopicExistsError:
                    pass
                except HermesError as error:
                    self._lines.error(
                        "declared",
                        "can't create {topic}, which broker.yaml declares: {error}",
                        topic=name,
                        error=error,
                    )

    def _share_of(self, name: str) -> Share | None:
        logs = self._registry.partitions(name) if self._registry.exists(name) else []
        if not logs:
            return None
        return Share(logs[0].format.name, logs[0].topic_id, tuple(each.partition for each in logs))

    async def _delete_here(self, name: str, topic_id: UUID, is_here: bool) -> None:
        """Delete this broker's part of a topic, and say so."""
        assert self._cluster is not None
        try:
            if is_here:
                await self._deletions.delete_topic(name, UNKNOWN_CLIENT)
            for gone in self._deleting[topic_id]:
                gone.callback(None)
            self._deleting[topic_id] = []
            broker_id = self._topics.broker_id
            await self._cluster.do(lambda tree: tree.has_deleted(topic_id, broker_id))
        except HermesError as error:
            self._lines.error(
                "not deleted", "{topic} is not deleted yet: {error}", topic=name, error=error
            )
        finally:
            for gone in self._deleting.pop(topic_id):
                gone.callback(None)

    async def _do_part(self, name: str) -> None:
        """Use a topic's settings, and make the directories of this broker's partitions."""
        node = self._nodes.get(name)
        if node is None:
            return
        texts = {**node.settings, _FORMAT: FORMAT_KAFKA}
        try:
            await self._changes.use_settings(name, texts)
        except HermesError as error:
            self._lines.error(
                "settings",
                "the cluster's settings of {topic} can't be used: {error}",
                topic=name,
                error=error,
            )
        numbers = node.of(self._topics.broker_id)
        await self._make([(name, number) for number in numbers])

    async def _forget(self, name: str) -> None:
        """Drop the settings of a topic that is gone, and that had no partition here."""
        with suppress(HermesError):  # they do no harm
            await self._changes.forget(name)


def _altering(name: str, given: Mapping[str, str], reset: Collection[str]) -> AlterTopicRequest:
    return AlterTopicRequest(name, tuple(given.items()), tuple(reset))
