"""How a request ends: with a response, now or later, without one, or by closing its connection.

What serves a request returns its response, or a Deferred of it where something is waited for; the
functions here join the two kinds. At the top it becomes an `Outcome`: what may happen meanwhile.
"""

from collections.abc import Callable, Coroutine
from typing import Any, Protocol, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.server.metrics import RequestKind
from hermes.server.sends import FileSend

#: Bytes, or a send that reads from segments; None where nothing is answered.
Response: TypeAlias = bytes | FileSend | None


class CloseConnection(Exception):  # noqa: N818 - it is an outcome, not an error of ours
    """The request ends as in 0.7: the connection is closed without a response.

    `text` is for the log; `request` (its type) and `reason` (a word or two) are for metrics.
    """

    def __init__(self, text: str, request: str = "other", reason: str = "invalid") -> None:
        super().__init__(text)
        self.request = request
        self.reason = reason


class ResponseWatcher(Protocol):
    """Told what becomes of a response that is awaited; in the reactor's thread."""

    def response_known(self, awaited: "DeferredResponse") -> None: ...

    def response_failed(self, awaited: "DeferredResponse", failure: Failure) -> None: ...

    def response_passed(self, awaited: "DeferredResponse") -> None: ...

    def request_released(self, awaited: "DeferredResponse") -> None: ...


class DeferredResponse:
    """A response that isn't known yet; whoever made it calls `resolve` or `fail`, once.

    Args:
        source: see `follow`; None where whoever made it does without a Deferred.

    Attributes:
        ordered: whether further requests of the connection must wait for it. False for produces
            that were appended and wait for their flush: more may be appended meanwhile.
        cancellable: whether it may be cancelled when the connection is lost. Never for produces,
            which are carried out all the same.
        request_bytes: how much memory the request holds until then, where that is much.
        is_known: whether `response` is the response.
        kind, began: where the time that it takes is counted, and since when.
    """

    __slots__ = (
        "_failure",
        "_waits_for",
        "_watcher",
        "began",
        "cancellable",
        "is_known",
        "kind",
        "ordered",
        "request_bytes",
        "response",
    )

    def __init__(
        self,
        source: "Deferred[Any] | None" = None,
        ordered: bool = True,
        *,
        cancellable: bool = False,
        request_bytes: int = 0,
    ) -> None:
        self.ordered = ordered
        self.cancellable = cancellable
        self.request_bytes = request_bytes
        self.is_known = False
        self.response: Response = None
        self.kind: RequestKind | None = None
        self.began = 0.0
        self._failure: Failure | None = None
        self._waits_for: Deferred[Any] | None = None
        self._watcher: ResponseWatcher | None = None
        if source is not None:
            self.follow(source)

    @classmethod
    def known(cls, response: Response) -> "DeferredResponse":
        place = cls()
        place.resolve(response)
        return place

    # -- for whoever makes it -------------------------------------------------------------------

    def follow(self, source: "Deferred[Any]") -> None:
        """Take the response from a Deferred, or a failure as `fail` does; `cancel` cancels it."""
        self._waits_for = source
        source.addCallbacks(self.resolve, self.fail)

    def resolve(self, response: Response) -> None:
        self.response, self.is_known = response, True
        if self._watcher is not None:
            self._watcher.response_known(self)

    def fail(self, failure: Failure) -> None:
        """Close the connection; CloseConnection and HermesError say why, others are faults."""
        if self._watcher is None:
            self._failure = failure
        else:
            self._watcher.response_failed(self, failure)

    def let_pass(self) -> None:
        if self.ordered:
            self.ordered = False
            if self._watcher is not None:
                self._watcher.response_passed(self)

    def release(self) -> None:
        self.request_bytes = 0
        if self._watcher is not None:
            self._watcher.request_released(self)

    # -- for whoever waits ----------------------------------------------------------------------

    def watch(self, watcher: ResponseWatcher) -> None:
        """Have one object told of all that becomes of it, perhaps at once."""
        self._watcher = watcher
        failure, self._failure = self._failure, None
        if self.is_known:
            watcher.response_known(self)
        elif failure is not None:
            watcher.response_failed(self, failure)

    def cancel(self) -> None:
        if self._waits_for is not None:
            self._waits_for.cancel()

    def to_deferred(self) -> "Deferred[Any]":
        """Wait in another way than by `watch`."""
        return _Waiter(self).fires


class _Waiter:
    def __init__(self, awaited: DeferredResponse) -> None:
        self.fires: Deferred[Any] = Deferred(lambda _: awaited.cancel())
        awaited.watch(self)

    def response_known(self, awaited: DeferredResponse) -> None:
        self.fires.callback(awaited.response)

    def response_failed(self, awaited: DeferredResponse, failure: Failure) -> None:
        self.fires.errback(failure)

    def response_passed(self, awaited: DeferredResponse) -> None:
        """The response is all that is awaited."""

    def request_released(self, awaited: DeferredResponse) -> None:
        """Likewise."""


class _CarriedOut(DeferredResponse):
    """What a coroutine returns that has begun to wait."""

    __slots__ = ("_coroutine",)

    def __init__(self, coroutine: "Coroutine[Any, Any, Response]", waits_for: Any) -> None:
        super().__init__()
        self._coroutine = coroutine
        self._wait(waits_for)

    def _wait(self, waits_for: "Deferred[Any]") -> None:
        self._waits_for = waits_for
        waits_for.addBoth(self._go_on)

    def _go_on(self, result: Any) -> None:
        try:
            if isinstance(result, Failure):
                throw = result.throwExceptionIntoGenerator
                waits_for = throw(self._coroutine)  # type: ignore[no-untyped-call]
            else:
                waits_for = self._coroutine.send(result)
        except StopIteration as end:
            self._waits_for = None
            self.resolve(end.value)
        except BaseException:
            self._waits_for = None
            self.fail(Failure())  # type: ignore[no-untyped-call]
        else:
            self._wait(waits_for)


Outcome: TypeAlias = Response | DeferredResponse


def cancellable(response: Any) -> Outcome:
    """The outcome of a request that changes nothing: it may be cancelled if deferred."""
    deferred = isinstance(response, Deferred)
    return DeferredResponse(response, cancellable=True) if deferred else response


def as_result(outcome: Any) -> Any:
    """What a callback of a Deferred returns for an outcome."""
    return outcome.to_deferred() if isinstance(outcome, DeferredResponse) else outcome


def then(found: Any, function: Callable[[Any], Any]) -> Any:
    """Call `function` with a value, or with a Deferred's result."""
    return found.addCallback(function) if isinstance(found, Deferred) else function(found)


def carry_out(coroutine: "Coroutine[Any, Any, Response]") -> Outcome:
    """Run a coroutine until it is done, or else to where it first waits."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as end:
        response: Response = end.value
        return response
    return _CarriedOut(coroutine, waits_for)


async def settled(found: Any) -> Any:
    """Wait for a Deferred; return any other value as it is."""
    return await found.addErrback(_forget_frames) if isinstance(found, Deferred) else found


def _forget_frames(failure: Failure) -> Failure:
    """Drop a refusal's frames, which would keep the decoded request in memory."""
    if isinstance(failure.value, CloseConnection):
        failure.cleanFailure()  # type: ignore[no-untyped-call]
    return failure
