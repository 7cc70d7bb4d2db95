"""The clients of one broker, blocking and awaited, used alike: for contracts that all of them keep.

with DRIVERS["twisted"](host, port, **settings) as client:
    client.metadata()
"""

import asyncio
import threading
from collections.abc import Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, Protocol, Self

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.client import SimpleConsumer
from hermes.reactors import make_reactor, release_reactor

__all__ = ["DRIVERS", "Driver"]


class Driver(Protocol):
    """A client; each of its methods is one of `SimpleConsumer`, and returns when it is done."""

    def __init__(self, host: str, port: int, **settings: Any) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(self, *exception: object) -> None: ...

    def __getattr__(self, name: str) -> Any: ...

    def disconnect(self) -> None:
        """Let the next call make a new connection."""


class Blocking:
    """`hermes.SimpleConsumer`."""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        self._client = SimpleConsumer(host, port, **settings)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._client.close()

    def disconnect(self) -> None:
        self._client._channel.connection.disconnect()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class _Awaited:
    """A client whose methods are coroutines, in a loop that runs in a thread of its own."""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        self._place = host, port
        self._settings = settings
        self._thread = threading.Thread(target=self._run, name=type(self).__name__)
        self._client: Any = None

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._client = self._wait(self._make())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        try:
            self._wait(self._client.close())
        finally:
            self._end()

    def _end(self) -> None:
        self._stop()
        self._thread.join()

    def disconnect(self) -> None:
        async def drop() -> None:
            self._client._channel.connection.disconnect()

        self._wait(drop())

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)
        return lambda *given, **named: self._wait(method(*given, **named))

    async def _make(self) -> Any:
        raise NotImplementedError

    def _run(self) -> None:
        raise NotImplementedError

    def _stop(self) -> None:
        raise NotImplementedError

    def _wait(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        raise NotImplementedError


class Asyncio(_Awaited):
    """`hermes.aio.SimpleConsumer`."""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        super().__init__(host, port, **settings)
        self._loop = asyncio.new_event_loop()

    async def _make(self) -> Any:
        from hermes.aio import SimpleConsumer

        return SimpleConsumer(*self._place, **self._settings)

    def _run(self) -> None:
        self._loop.run_forever()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)

    def _wait(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(awaited, self._loop).result(120)


class OnTwisted(_Awaited):
    """`hermes.aio.twisted.SimpleConsumer`, on a reactor of its own."""

    def __init__(self, host: str, port: int, **settings: Any) -> None:
        super().__init__(host, port, **settings)
        self._reactor = make_reactor()
        self._reactor.getThreadPool()

    async def _make(self) -> Any:
        from hermes.aio.twisted import SimpleConsumer

        return SimpleConsumer(self._reactor, *self._place, **self._settings)

    def _run(self) -> None:
        self._reactor.run(installSignalHandlers=False)
        release_reactor(self._reactor)

    def _stop(self) -> None:
        self._reactor.callFromThread(self._reactor.stop)

    def _wait(self, awaited: Coroutine[Any, Any, Any]) -> Any:
        done: Future[Any] = Future()

        def finish(outcome: Any) -> None:
            if isinstance(outcome, Failure):
                assert outcome.value is not None
                done.set_exception(outcome.value)
            else:
                done.set_result(outcome)

        self._reactor.callFromThread(lambda: Deferred.fromCoroutine(awaited).addBoth(finish))
        return done.result(120)


DRIVERS: Final[Mapping[str, type[Driver]]] = {
    "blocking": Blocking,
    "asyncio": Asyncio,
    "twisted": OnTwisted,
}
