"""How a request ends: with a response, now or later, without one, or by closing its connection.

What serves a request returns its response, or a Deferred of it where something is waited for; the
functions here join the two kinds. At the top it becomes an `Outcome`: what may happen meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

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


@dataclass(slots=True, eq=False)
class DeferredResponse:
    """A response that is not known yet.

    Attributes:
        response: fires with a `Response`; fails with CloseConnection to close.
        ordered: whether further requests of the connection must wait for it. False for produces
            that were appended and wait for their flush: more may be appended meanwhile.
        appended: fires if they need wait no longer before the response; never fails.
        cancellable: whether it may be cancelled when the connection is lost. Never for produces,
            which are carried out all the same.
        request_bytes: how much memory the request holds until then, where that is much.
        released: fires if it is freed before the response; never fails.
    """

    response: "Deferred[Any]"
    ordered: bool = True
    appended: "Deferred[None] | None" = None
    cancellable: bool = False
    request_bytes: int = 0
    released: "Deferred[None] | None" = None


Outcome: TypeAlias = Response | DeferredResponse


def cancellable(response: Any) -> Outcome:
    """The outcome of a request that changes nothing: it may be cancelled if deferred."""
    deferred = isinstance(response, Deferred)
    return DeferredResponse(response, cancellable=True) if deferred else response


def then(found: Any, function: Callable[[Any], Any]) -> Any:
    """Call `function` with a value, or with a Deferred's result."""
    return found.addCallback(function) if isinstance(found, Deferred) else function(found)


async def settled(found: Any) -> Any:
    """Wait for a Deferred; return any other value as it is."""
    return await found.addErrback(_forget_frames) if isinstance(found, Deferred) else found


def _forget_frames(failure: Failure) -> Failure:
    """Drop a refusal's frames, which would keep the decoded request in memory."""
    if isinstance(failure.value, CloseConnection):
        failure.cleanFailure()  # type: ignore[no-untyped-call]
    return failure
