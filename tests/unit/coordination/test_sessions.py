"""Sessions, without a server."""

import gc
import threading
import weakref

from kazoo.exceptions import NoNodeError
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from hermes.coordination.sessions import Session


class _StoppingClient:
    """As kazoo's: of two stops the second returns while the first is under way.

    The first one ends when the other thread has ended, or stands still for a moment.
    """

    def __init__(self) -> None:
        self.other = threading.Thread()
        self._is_stopping = False
        self._is_stopped = False

    def stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self.other.start()
        self.other.join(0.2)
        self._is_stopped = True

    def close(self) -> None:
        if not self._is_stopped:
            raise Exception("Cannot close connection until it is stopped")


def test_two_threads_may_stop_a_session_at_once() -> None:
    session = Session("localhost:1")
    client = session._client = _StoppingClient()
    failures: list[Exception] = []

    def stop() -> None:
        try:
            session.stop()
        except Exception as error:
            failures.append(error)

    client.other = threading.Thread(target=stop)
    session.stop()
    client.other.join()
    assert failures == []


class _EmptyClient:
    """As kazoo's, with a server that has no node."""

    client_id = None

    def __init__(self) -> None:
        self.results: list[weakref.ref[AsyncResult]] = []

    def get_async(self, path: str) -> AsyncResult:
        result = AsyncResult(SequentialThreadingHandler())
        result.set_exception(NoNodeError(path))
        self.results.append(weakref.ref(result))
        return result


def test_reads_of_what_is_not_there_leave_no_garbage() -> None:
    """A broker reads thousands at once; collecting them would hold it up."""
    session = Session("localhost:1")
    client = session._client = _EmptyClient()
    gc.disable()
    try:
        assert session.get_all(["/a", "/b"]) == [None, None]
        assert [result() for result in client.results] == [None, None]
    finally:
        gc.enable()
