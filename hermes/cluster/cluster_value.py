"""What the brokers of a cluster have alike: one node of coordination, which they all follow.

A file in the data directory has what was read last, for a start at which coordination can't be
looked at, and for a cluster that lost what it had.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Generic, TypeVar

from twisted.internet.defer import Deferred, DeferredLock

from hermes.cluster.shared import Shared
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import ConfigError, HermesError
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.storage.requested_file import read_requested, write_requested

_Value = TypeVar("_Value")


class ClusterValue(ABC, Generic[_Value]):
    """Lives in the reactor's thread; whatever is refused raises a HermesError.

    Attributes:
        node: where it is in coordination; `file_name` is its file, `what` its name for people.
        do_in_cluster: changes coordination, and returns once `use` has been called with it; None
            where there is no cluster.
        try_later: called when `use` is to be called with the same once more.
    """

    node: ClassVar[str]
    file_name: ClassVar[str]
    what: ClassVar[str]

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self._one_at_a_time = DeferredLock()
        self._seen: bytes | None = None
        self._used: bytes | None = None  # what is in force, as the cluster has written it
        self._kept: bytes | None = None  # in the file; None: there is none, or nobody knows
        self.do_in_cluster: Callable[[Callable[[TopicTree], Any]], Awaitable[Any]] | None = None
        self.try_later: Callable[[], None] = lambda: None

    @property
    @abstractmethod
    def now(self) -> _Value:
        """What is in force."""

    @abstractmethod
    def _decode(self, data: bytes) -> _Value:
        """Read what a node holds, b"" where there never was any. Raises ConfigError."""

    @abstractmethod
    def _encode(self, value: _Value) -> bytes:
        """Raises ConfigError: there is too much of it."""

    @abstractmethod
    def _put_in_force(self, value: _Value) -> None: ...

    @abstractmethod
    def _is_nothing(self, value: _Value) -> bool: ...

    def _unknown(self) -> None:
        """Neither coordination nor a file says anything: have nobody gain by that."""

    def begin(self, found: bytes | None) -> None:
        """Use what coordination has before anybody is served; None: it can't be looked at now.

        Blocks. Raises CorruptEntriesError, ConfigError: the file can't be used.
        """
        directory = self._shared.directory
        self._kept = read_requested(directory.path, directory.files, self.file_name)
        data = found or self._kept
        if data is None and found is None:
            self._unknown()
            return
        try:
            self._put_in_force(self._decode(data or b""))
            self._used = data
        except ConfigError as error:
            if data == self._kept:
                raise
            self._say(error)
            if self._kept is None:
                self._unknown()
            else:
                self._put_in_force(self._decode(self._kept))

    async def change(self, change: Callable[[_Value], _Value]) -> None:
        """Change it, and return when that is kept and in force.

        `change` may be called several times, in any thread.
        """
        if self.do_in_cluster is not None:

            def changed(before: bytes) -> bytes:
                return self._encode(change(self._of_cluster(before)))

            await self.do_in_cluster(lambda tree: tree.change_value(self.node, changed))
            await self._one_at_a_time.run(lambda: None)  # it is in force once it is in the file
            return
        async with self._one_at_a_time:
            value = change(self.now)
            await self._keep(self._encode(value))
            self._put_in_force(value)

    def use(self, data: bytes) -> None:
        """What the cluster has is to be in force here."""
        if data != self._seen:
            self._seen = data
            Deferred.fromCoroutine(self._use(data))

    async def _use(self, data: bytes) -> None:
        async with self._one_at_a_time:
            try:
                if not data and not self._is_nothing(self.now):
                    await self._hand_over(self._encode(self.now))
                    return
                value = self._of_cluster(data)
                if data != self._used:
                    self._put_in_force(value)
                    self._used = data
                if data != self._kept:
                    await self._keep(data)
            except HermesError as error:
                self._seen = None
                self._say(error)
                if not isinstance(error, ConfigError):  # what can't be read is mended, and so news
                    self.try_later()

    async def _hand_over(self, data: bytes) -> None:
        """The cluster has never had any: it is new, or lost what it had."""
        assert self.do_in_cluster is not None
        await self.do_in_cluster(lambda tree: tree.change_value(self.node, lambda it: it or data))

    async def _keep(self, data: bytes) -> None:
        directory = self._shared.directory
        self._kept = None  # should it fail
        await self._shared.in_thread(
            write_requested, directory.path, data, directory.files, self.file_name
        )
        self._kept = data

    def _of_cluster(self, data: bytes) -> _Value:
        try:
            return self._decode(data)
        except ConfigError as error:
            raise ConfigError(
                "",
                f"{self.node}: {error.message}; put back what it held, or delete it, so that a "
                "broker writes there what it has",
            ) from None

    def _say(self, error: HermesError) -> None:
        self._log.error(
            self.node, "{what} of the cluster can't be taken: {error}", what=self.what, error=error
        )
