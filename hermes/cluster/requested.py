"""What Kafka's clients set for the whole broker or cluster: ACLs and quotas, changed and kept.

In a cluster they are one node of coordination, which all brokers follow. The file in the data
directory is then what was read last, so that a broker starts with the rules that it stopped with.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from twisted.internet.defer import Deferred, DeferredLock

from hermes.cluster.shared import Shared
from hermes.config.requested import Change, Requested
from hermes.coordination.kafka_topics import KAFKA_REQUESTED
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import ConfigError, HermesError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.storage.requested_file import write_requested


class RequestedChanges:
    """Lives in the reactor's thread; whatever is refused raises a HermesError.

    `do_in_cluster`: changes coordination, and returns once `use` has been called with it; None
    where there is no cluster.
    """

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self._one_at_a_time = DeferredLock()
        self._seen: bytes | None = None
        self._kept: bytes | None = None  # in the file; None: what it said at the start
        self.do_in_cluster: Callable[[Callable[[TopicTree], Any]], Awaitable[Any]] | None = None

    @property
    def now(self) -> Requested:
        return self._shared.config.requested

    async def change(self, change: Change) -> None:
        """Change it, and return when that is kept and in force.

        `change` may be called several times, in any thread.
        """
        if self.do_in_cluster is not None:

            def changed(before: bytes) -> bytes:
                return change(_of_cluster(before)).encode()

            await self.do_in_cluster(lambda tree: tree.change_requested(changed))
            await self._one_at_a_time.run(lambda: None)  # it is in force once it is in the file
            return
        async with self._one_at_a_time:
            requested = change(self.now)
            await self._keep(requested.encode())
            self._put_in_force(requested)

    def use(self, data: bytes) -> None:
        """What the cluster has is to be in force here."""
        if data != self._seen:
            self._seen = data
            Deferred.fromCoroutine(self._use(data))

    async def _use(self, data: bytes) -> None:
        async with self._one_at_a_time:
            try:
                if not data and self.now != Requested():
                    await self._hand_over(self.now.encode())
                    return
                requested = _of_cluster(data)
                kept = self.now.encode() if self._kept is None else self._kept
                if requested != self.now:
                    self._put_in_force(requested)
                if data and data != kept:
                    await self._keep(data)
            except HermesError as error:
                self._seen = None
                self._log.error(
                    "requested",
                    "ACLs and quotas of the cluster can't be taken: {error}",
                    error=error,
                )

    async def _hand_over(self, data: bytes) -> None:
        """The cluster has never had any: it is new, or lost what it had."""
        assert self.do_in_cluster is not None
        await self.do_in_cluster(lambda tree: tree.change_requested(lambda before: before or data))

    async def _keep(self, data: bytes) -> None:
        directory = self._shared.directory
        self._kept = b""  # should it fail
        await self._shared.in_thread(write_requested, directory.path, data, directory.files)
        self._kept = data

    def _put_in_force(self, requested: Requested) -> None:
        settings = self._shared.settings
        settings.use(replace(settings.config, requested=requested))


def _of_cluster(data: bytes) -> Requested:
    try:
        return Requested.decode(data)
    except ConfigError as error:
        raise ConfigError(
            "",
            f"{KAFKA_REQUESTED}: {error.message}; put back what it held, or delete it, so that a "
            "broker writes there what it has",
        ) from None
