"""Topics are deleted: hidden at once, then their files, in a thread, then what was set for them.

Of many, some at a time: whoever waits for messages of all of them hears of these together.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from twisted.internet.defer import Deferred, gatherResults
from twisted.python.failure import Failure

from hermes.cluster.gathering import Gathered
from hermes.cluster.shared import Shared
from hermes.cluster.topic_settings import SettingChanges
from hermes.errors import BrokerError, StorageError
from hermes.server.clients import Client
from hermes.storage import Log

#: How many topics' files are deleted at a time, and for how long: then others may use the names.
_MOST: Final = 200
_MOST_SECONDS: Final = 0.5
_THREADS: Final = 4

#: How many segments, and topics, are deleted in one go: its last step takes as long as of one.
_TOGETHER: Final = 40


class _Doomed(NamedTuple):
    topic: str
    logs: Sequence[Log]
    client: Client


class Deletions:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared, changes: SettingChanges) -> None:
        self._shared = shared
        self._changes = changes
        self._doomed = Gathered[_Doomed](self._delete, _MOST)

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
        return self._doomed.add(_Doomed(topic, logs, client))

    async def _delete(self, doomed: Sequence[_Doomed]) -> list[Failure | None]:
        results = await self._delete_files(doomed)
        over = doomed[: len(results)]
        gone = [each.topic for each, fault in zip(over, results, strict=True) if fault is None]
        try:
            await self._changes.forget(gone)
        except StorageError:
            failure = Failure()  # type: ignore[no-untyped-call]
            results = [failure if fault is None else fault for fault in results]
        finally:
            self._end(over)
        for each, fault in zip(over, results, strict=True):
            self._tell(each, fault)
        return results

    async def _delete_files(self, doomed: Sequence[_Doomed]) -> list[Failure | None]:
        """What became of each, of the first ones at least."""
        # Each waits for the disk several times.
        shared, results = self._shared, dict[int, list[Failure | None]]()
        parts = list(_parts(doomed))
        left, ends = iter(enumerate(parts)), shared.clock.seconds() + _MOST_SECONDS

        def delete_some() -> None:
            for number, topics in left:
                results[number] = self._delete_together(topics)
                if shared.clock.seconds() >= ends:
                    break

        count = min(_THREADS, len(parts))
        await gatherResults([shared.in_thread(delete_some) for _ in range(count)])
        return [each for number in range(len(results)) for each in results[number]]

    def _delete_together(self, topics: Sequence[str]) -> list[Failure | None]:
        try:
            found = self._shared.directory.delete_topics(topics)
        except Exception:
            return [Failure()] * len(topics)  # type: ignore[no-untyped-call]
        return [Failure(each) if isinstance(each, Exception) else None for each in found]  # type: ignore[no-untyped-call]

    def _end(self, over: Sequence[_Doomed]) -> None:
        shared = self._shared
        shared.topics.end_delete(*(each.topic for each in over))
        for topic, logs, _ in over:
            if not shared.topics.exists(topic):
                shared.metrics.forget(topic)
            for log in logs:
                shared.flusher.forget(log)  # whatever was appended until its files were gone
                shared.partitions.forget(log)
        # Only now: who waits for many of them fetches all others again.
        for each in over:
            for log in each.logs:
                shared.waiting.changed(log.topic, log.partition)

    def _tell(self, doomed: _Doomed, fault: Failure | None) -> None:
        if fault is None:
            self._shared.lines.info(
                "deleted",
                "deleted topic {topic} for {client}",
                topic=doomed.topic,
                client=doomed.client,
            )
            return
        self._shared.lines.error(
            "not deleted",
            "deleting {topic} for {client} failed: {error}",
            topic=doomed.topic,
            client=doomed.client,
            error=fault.value,
        )


def _parts(doomed: Sequence[_Doomed]) -> Iterator[list[str]]:
    """Topics to delete in one go: of those with many segments each by itself."""
    some: list[str] = []
    size = 0
    for topic, logs, _ in doomed:
        segments = 1 + sum(len(log.view.segments) for log in logs)
        if some and size + segments > _TOGETHER:
            yield some
            some, size = [], 0
        some.append(topic)
        size += segments
    if some:
        yield some
