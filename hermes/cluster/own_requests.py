"""What Hermes' own clients ask of topics of Kafka's format in a cluster: each is the cluster's."""

from collections.abc import Mapping
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.cluster.deletions import Deletions
from hermes.cluster.shared import Shared
from hermes.cluster.topic_changes import TopicChanges
from hermes.cluster.topic_settings import Changes
from hermes.cluster.topics import KafkaTopics
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.topic import TOPIC_SETTINGS
from hermes.errors import ConfigError, TopicExistsError
from hermes.protocol import AlterTopicRequest, CreateTopicRequest
from hermes.quoting import quoted
from hermes.server.clients import Client

_FORMAT: Final = "format"
_PARTITIONS: Final = "partitions"


class OwnRequests:
    """Takes these requests from a broker's own parts. Lives in the reactor's thread.

    Args:
        shared: the broker's settings.
        topics: the topics of the cluster.
        topic_changes: changes them.
    """

    def __init__(self, shared: Shared, topics: KafkaTopics, topic_changes: TopicChanges) -> None:
        self._shared = shared
        self._topics = topics
        self._topic_changes = topic_changes

    def take_from(self, changes: Changes, deletions: Deletions) -> None:
        """Be asked from now on."""
        changes.create_elsewhere = self.create
        changes.alter_elsewhere = self.alter
        deletions.delete_elsewhere = self.delete

    def create(self, request: CreateTopicRequest, client: Client) -> "Deferred[Any] | None":
        """Create a topic, if it has Kafka's format; None where it is this broker's alone."""
        name, texts = request.topic, dict(request.settings)
        text = texts.pop(_FORMAT, self._shared.config.topic(name).format).strip("'\"")
        if text != FORMAT_KAFKA:
            return None
        count = texts.pop(_PARTITIONS, "-1")
        if not count.removeprefix("-").isdecimal():
            return None  # which refuses it
        return Deferred.fromCoroutine(self._create_once(name, int(count), texts, client))

    async def _create_once(
        self, name: str, count: int, texts: Mapping[str, str], client: Client
    ) -> None:
        try:
            await self._topic_changes.create(name, count, texts, client)
        except TopicExistsError:
            found = self._topics.get(name)
            count = len(found.partitions) if found else 0
            raise TopicExistsError(
                f"topic {quoted(name)} exists already, with {count} partitions in the cluster: one "
                "of Kafka's format is created once, on any of the brokers, for all of them"
            ) from None

    def alter(self, request: AlterTopicRequest, client: Client) -> "Deferred[Any] | None":
        """Alter a topic, likewise."""
        found = self._topics.get(request.topic)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        given = dict(request.settings)
        now = len(found.partitions)
        count = given.pop(_PARTITIONS, str(now))
        form = given.pop(_FORMAT, FORMAT_KAFKA).strip("'\"")
        reset = TOPIC_SETTINGS.keys() if request.reset is None else request.reset

        async def alter() -> None:
            if not count.isdecimal() or int(count) < now:
                text = f"topic {quoted(found.name)} has {now}, and never loses one"
                raise ConfigError(_PARTITIONS, text)
            if form != FORMAT_KAFKA:
                text = f"topic {quoted(found.name)} is {FORMAT_KAFKA}, and keeps its format"
                raise ConfigError(_FORMAT, text)
            if given or reset:
                await self._topic_changes.alter(found, given, reset, client)
            if int(count) > now:
                await self._topic_changes.grow(found, int(count), client)

        return Deferred.fromCoroutine(alter())

    def delete(self, topic: str, client: Client) -> "Deferred[None] | None":
        """Delete a topic, likewise."""
        found = self._topics.get(topic)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        return Deferred.fromCoroutine(self._topic_changes.delete(found, client))
