"""Failures on demand: what a broker in a test does wrong, for as many requests as the test says.

An application meets these rarely and tests them never: a leader that moved, a coordinator that
is loading, an answer that was lost although the request was carried out.
"""

import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater

from hermes.errors import ConfigError
from hermes.kafka.apis import API_VERSIONS, APIS
from hermes.kafka.dispatching import Call
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.testing.error_responses import error_response

__all__ = ["Faults"]

_NAMES = {api.name.lower(): api.name for api in APIS.values() if api.key != API_VERSIONS}


@dataclass(slots=True)
class _Fault:
    request: str | None  # None: any
    left: int | None  # None: until it is cleared
    code: Any = None
    seconds: float | None = None  # of a delay
    cuts_before: bool = False
    cuts_after: bool = False


class Faults:
    """What goes wrong, and for how many requests. Thread-safe.

    Requests are named as in Kafka's documentation: `Produce`, `Fetch`, `Metadata`,
    `FindCoordinator`, `JoinGroup`, `OffsetCommit`... What was asked for first happens first; delays
    add up to whatever else happens to a request. ApiVersions, with which clients begin, always
    succeeds.

    Example:
        kafka.faults.fail("Produce", "NOT_LEADER_OR_FOLLOWER", times=3)
        kafka.faults.delay("Fetch", seconds=0.5)
        kafka.faults.cut("OffsetCommit", after=True)
        kafka.faults.clear()
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: list[_Fault] = []
        self._counts: dict[str, int] = {}
        self._delays: set[Deferred[Any]] = set()  # of requests that wait now
        self._is_over = False

    def fail(self, request: str, error: str | int, *, times: int | None = 1) -> None:
        """Answer the next requests of a kind with an error; they aren't carried out.

        Args:
            request: for instance `Produce`.
            error: Kafka's name for it, for instance `NOT_LEADER_OR_FOLLOWER`, or its code.
            times: how many requests; None: all, until `clear`.

        Raises:
            ConfigError: there is no such request or error.
        """
        self._add(_Fault(_named(request), times, code=_code(error)))

    def delay(self, request: str | None, *, seconds: float, times: int | None = None) -> None:
        """Let the next requests of a kind wait before they are carried out.

        The connection waits, too: its next request is served after this one.

        Args:
            request: for instance `Fetch`; None for any.
            seconds: how long, 0 or more; other clients don't notice.
            times: how many requests; None: all, until `clear`.

        Raises:
            ConfigError: there is no such request, or no such time.
        """
        if seconds < 0:
            raise ConfigError("seconds", f"{seconds} is less than 0")
        self._add(_Fault(_named(request), times, seconds=seconds))

    def cut(self, request: str | None, *, after: bool = False, times: int | None = 1) -> None:
        """Close the connection instead of answering the next requests of a kind.

        Args:
            request: for instance `Produce`; None for any.
            after: whether the request is carried out first, so that only its answer is lost.
            times: how many requests; None: all, until `clear`.

        Raises:
            ConfigError: there is no such request.
        """
        self._add(_Fault(_named(request), times, cuts_before=not after, cuts_after=after))

    def clear(self) -> None:
        """Let everything work again from the next request on."""
        with self._lock:
            self._faults.clear()

    def count(self, request: str) -> int:
        """How many requests of a kind have come in, whatever became of them.

        Raises:
            ConfigError: there is no such request.
        """
        with self._lock:
            return self._counts.get(_named(request) or "", 0)

    async def around(
        self, carry_out: Callable[[], Any], decoded: Callable[[], Any], call: Call
    ) -> Any:
        """Wrap a handler; a `Dispatcher` calls this in the reactor's thread.

        Args:
            carry_out: calls the handler.
            decoded: gives the decoded request.
            call: the request being served.

        Raises:
            CloseConnection: the connection is cut.
        """
        name = call.api.name
        due = self._due(name)
        for each in due:
            if each.seconds:
                await self._pass_time(call, each.seconds)
        fault = next((each for each in due if each.seconds is None), None)
        if fault is None:
            return await _awaited(carry_out())
        if fault.cuts_before:
            raise CloseConnection(f"the test wants no answer to {name}", "kafka", "test")
        if fault.cuts_after:
            await _awaited(carry_out())
            raise CloseConnection(f"the test wants the answer to {name} lost", "kafka", "test")
        if name == "Metadata":  # clients need the brokers in any case
            return _with_topic_errors(await _awaited(carry_out()), fault.code)
        request = decoded()
        if name == "Produce" and request.acks == 0:
            return None
        return error_response(name, request, fault.code)

    def end_delays(self) -> None:
        """Cut what waits now; in the reactor's thread, when its broker is about to stop."""
        self._is_over = True
        for each in list(self._delays):
            each.cancel()

    async def _pass_time(self, call: Call, seconds: float) -> None:
        delay: Deferred[None] = deferLater(call.server.shared.clock, seconds)
        self._delays.add(delay)
        try:
            await delay
        except CancelledError:
            if not self._is_over:
                raise
            raise CloseConnection("the test has ended", "kafka", "test") from None
        finally:
            self._delays.discard(delay)

    def _add(self, fault: _Fault) -> None:
        if fault.left is not None and fault.left < 1:
            raise ConfigError("times", f"{fault.left} is less than 1")
        with self._lock:
            self._faults.append(fault)

    def _due(self, name: str) -> list[_Fault]:
        """What happens to this request: all delays, and the first of what else there is."""
        with self._lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            due: list[_Fault] = []
            for each in self._faults:
                if each.request not in (None, name):
                    continue
                is_delay = each.seconds is not None
                if is_delay or all(other.seconds is not None for other in due):
                    due.append(each)
                    if each.left is not None:
                        each.left -= 1
            self._faults = [each for each in self._faults if each.left != 0]
            return due


def _named(request: str | None) -> str | None:
    if request is None:
        return None
    name = _NAMES.get(request.lower())
    if name is None:
        known = ", ".join(_NAMES.values())
        raise ConfigError("request", f"there is no {request!r}; expected one of {known}")
    return name


def _code(error: str | int) -> Any:
    from kio.schema.errors import ErrorCode  # a tenth of a second for those who need it

    try:
        return ErrorCode(error) if isinstance(error, int) else ErrorCode[error.lower()]
    except (KeyError, ValueError):
        raise ConfigError(
            "error", f"Kafka has no {error!r}; expected a name such as NOT_LEADER_OR_FOLLOWER"
        ) from None


async def _awaited(answer: Any) -> Any:
    if isinstance(answer, DeferredResponse):
        return await answer.to_deferred()
    return await answer if isinstance(answer, Awaitable) else answer


def _with_topic_errors(response: Any, code: Any) -> Any:
    topics = tuple(replace(each, error_code=code, partitions=()) for each in response.topics)
    return replace(response, topics=topics)
