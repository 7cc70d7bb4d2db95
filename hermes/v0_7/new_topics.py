"""Which format a topic gets that is produced to first, and its creation in the cluster.

Topics that hold records are the cluster's: they are created there before anything is appended. What
holds messages of 0.7 is each broker's own, and made by the first append.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import wrong_format
from hermes.config.kinds import FORMAT_0_7
from hermes.errors import (
    ConfigError,
    CoordinationError,
    HermesError,
    InvalidTopicError,
    NotLeaderError,
    TopicExistsError,
)
from hermes.quoting import quoted
from hermes.server.clients import Client
from hermes.transactions.state import STATE_TOPIC

#: Topics that were missing, with what is refused of each; None: it is there now.
Made: TypeAlias = Mapping[str, HermesError | None]


class NewTopics:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared, cluster: Cluster) -> None:
        self._shared = shared
        self._cluster = cluster
        self._topics = shared.topics
        self._refusals = shared.refusals

    def is_missing(self, topic: str) -> bool:
        return not self._topics.exists(topic) and self._cluster.topics.get(topic) is None

    def is_made_here(self, topic: str) -> bool:
        """Whether a produce creates a topic: not where other brokers have it, and number it."""
        found = self._cluster.topics.get(topic)
        is_elsewhere = found is not None and found.format != FORMAT_0_7
        return not (self._topics.exists(topic) or is_elsewhere)

    def check(self, topic: str, client: Client, *, is_told: bool) -> None:
        """Refuse messages of 0.7 for a topic that this broker hasn't.

        Raises InvalidTopicError, WrongFormatError, NotAuthorizedError.
        """
        if self._format(topic, is_told=is_told) != FORMAT_0_7:
            raise wrong_format(topic)
        if self._refusals.is_on:
            error = self._refusals.create_error(client, topic)
            if error is not None:
                raise error

    def _format(self, topic: str, *, is_told: bool) -> str:
        """What a topic holds in the cluster, or would.

        `is_told`: whether the client hears of it. Others speak Kafka 0.7, and know its format only.
        """
        if topic == STATE_TOPIC:
            raise InvalidTopicError(f"topic {STATE_TOPIC!r} is the brokers' own")
        found = self._cluster.topics.get(topic)
        if found is not None:
            return found.format
        goes_by_settings = is_told or self._topics.is_declared(topic)
        return self._shared.config.topic(topic).format if goes_by_settings else FORMAT_0_7

    async def create(
        self,
        topics: Sequence[str],
        client: Client,
        errors: Sequence[HermesError | None],
        *,
        for_records: bool,
    ) -> Sequence[HermesError | None]:
        """Create those that are missing and are to hold records; what is refused, for each.

        `errors`: what is refused already; empty for nothing.
        """
        made: dict[str, HermesError | None] = {}
        for topic, error in zip(topics, errors or [None] * len(topics), strict=True):
            if error is None and topic not in made and self.is_missing(topic):
                made[topic] = await self._create(topic, client, for_records)
        return refused_also(topics, errors, made)

    async def _create(self, topic: str, client: Client, for_records: bool) -> HermesError | None:
        try:
            if self._format(topic, is_told=True) == FORMAT_0_7:
                return wrong_format(topic, holds_records=False) if for_records else None
            self._topics.check_creatable(topic)
            error = self._refusals.create_error(client, topic) if self._refusals.is_on else None
            if error is None:
                await self._cluster.create_topic(topic, {}, client)
        except TopicExistsError:
            return None  # another client was quicker
        except (CoordinationError, ConfigError) as failure:  # a broker may be missing for copies
            self._shared.lines.warn(
                "new",
                "{topic} can't be created now for {client}: {error}",
                topic=topic,
                client=client,
                error=failure,
            )
            return NotLeaderError(f"nobody leads {quoted(topic)}, which can't be created now")
        except HermesError as failure:
            return failure.with_traceback(None)
        return error


def refused_also(
    topics: Sequence[str],
    errors: Sequence[HermesError | None],
    made: Made,
) -> Sequence[HermesError | None]:
    """What is refused of topics for another reason (empty for nothing), or as they were made."""
    return [
        made.get(topic) if error is None else error
        for topic, error in zip(topics, errors or [None] * len(topics), strict=True)
    ]
