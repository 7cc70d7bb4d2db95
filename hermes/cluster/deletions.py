"""Topics are deleted: hidden at once, then their files, in a thread, then what was set for them."""

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.shared import Shared
from hermes.cluster.topic_settings import SettingChanges
from hermes.errors import BrokerError
from hermes.server.clients import Client
from hermes.storage import Log


class Deletions:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared, changes: SettingChanges) -> None:
        self._shared = shared
        self._changes = changes

    def delete_topic(self, topic: str, client: Client) -> "Deferred[None]":
        """Delete all partitions of a topic that are here; fires when they are gone.

        Fails with UnknownTopicError, TopicBeingDeletedError, or StorageError: some may be left.
        """
        shared = self._shared
        try:
            logs = shared.topics.begin_delete(topic)
        except BrokerError:
            refused: Deferred[None] = Deferred()
            refused.errback()
            return refused
        for log in logs:
            shared.flusher.forget(log)
            shared.partitions.forget(log)

        async def delete() -> None:
            await shared.in_thread(shared.directory.delete_topic, topic)
            await self._changes.forget(topic)

        def ended(result: Failure | None) -> Failure | None:
            self._ended(topic, logs)
            if isinstance(result, Failure):
                shared.lines.error(
                    "not deleted",
                    "deleting {topic} for {client} failed: {error}",
                    topic=topic,
                    client=client,
                    error=result.value,
                )
            else:
                shared.lines.info(
                    "deleted", "deleted topic {topic} for {client}", topic=topic, client=client
                )
            return result

        deleted: Deferred[None] = Deferred.fromCoroutine(delete())
        return deleted.addBoth(ended)

    def _ended(self, topic: str, logs: list[Log]) -> None:
        shared = self._shared
        shared.topics.end_delete(topic)
        if not shared.topics.exists(topic):
            shared.metrics.forget(topic)
        for log in logs:
            shared.flusher.forget(log)  # whatever was appended until its files were gone
            shared.partitions.forget(log)
            shared.waiting.changed(log.topic, log.partition)
