"""The store of a registry in a cluster: reads from its own copy, writes here or at the leader.

A write is decided at once where this one leads. Otherwise a thread of a pool looks for whoever
leads, for as long as a new one may take to be found, and forwards the call there. What became of a
call may stay unknown; then it is decided once more, unless it would do more than it was meant to.
"""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final

from hermes.registry.election import Election
from hermes.registry.errors import FAILED, UNAVAILABLE, RegistryError, unavailable
from hermes.registry.forwarding import Forwarder
from hermes.registry.lookups import LATEST_VERSION
from hermes.registry.mutations import DeleteVersion
from hermes.registry.registration import RegisterSchema
from hermes.registry.rest_messages import RestRequest, RestResponse, json_response
from hermes.registry.state import RegistryState
from hermes.registry.store import then
from hermes.registry.topic_log import PATIENCE_SECONDS, TopicLog
from hermes.registry.writer import Mutation
from hermes.security import PLAIN, ClientSecurity

_THREADS: Final = 32
#: How long a write waits for a leader: a new one is elected when the session of the old expires.
_PATIENCE_SECONDS: Final = 10.0
#: How long a leader's answer may take.
_FORWARD_SECONDS: Final = 20.0
_REFRESH_SECONDS: Final = 3.0
_LOOK_SECONDS: Final = 0.5


class TopicStore:
    """See `RegistryStore`. Thread-safe. `clock`: monotonic, in seconds.

    `security`: how to connect to the leader; may block, and raise HermesError.
    """

    def __init__(
        self,
        log: TopicLog,
        election: Election,
        clock: Callable[[], float] = time.monotonic,
        security: Callable[[], ClientSecurity] = lambda: PLAIN,
    ) -> None:
        self.log = log
        self.election = election
        self._clock = clock
        self._pool = ThreadPoolExecutor(_THREADS, "hermes-registry-writes")
        self._is_closed = False
        self.forwarder = Forwarder(_FORWARD_SECONDS, security)

    def start(self) -> None:
        self.log.start()
        self.election.start(self.log.may_lead, self._elected)

    def close(self) -> None:
        """Let another lead, and stop; blocks. Idempotent."""
        self._is_closed = True
        self.election.stop()
        self.forwarder.close()
        self.log.stop()
        self._pool.shutdown()

    def _elected(self) -> None:
        """Something about the election may have changed; called in any thread."""
        leader = self.election.leader
        if leader is not None:
            self.forwarder.abandon_others(leader.url)
        self.log.notify()

    @contextmanager
    def reading(self) -> Iterator[RegistryState]:
        log = self.log
        if not (log.is_readable or log.is_lost or self._is_closed):  # right after a start
            with log.changed:
                log.changed.wait_for(
                    lambda: log.is_readable or log.is_lost or self._is_closed, PATIENCE_SECONDS
                )
        if not log.is_readable:
            raise unavailable(f"nothing can be answered yet: {self._problem()}")
        with self.log.replica.reading() as state:
            yield state

    def refresh(self) -> "Future[bool]":
        return self._in_pool(self.log.refresh, _REFRESH_SECONDS)

    def write(self, change: Mutation, request: RestRequest) -> "Future[RestResponse]":
        until = self._clock() + _PATIENCE_SECONDS
        decided = self._decide(change)
        if decided is None:
            return self._in_pool(self._write_patiently, change, request, until)
        answered: Future[RestResponse] = Future()

        def done(first: "Future[RestResponse]") -> None:
            error = first.exception()
            if error is None:
                answered.set_result(first.result())
            elif _is_tried_again(change, error) and self._clock() < until:
                again = self._in_pool(self._write_patiently, change, request, until)
                again.add_done_callback(lambda last: _copy(last, answered))
            else:
                answered.set_exception(error)

        decided.add_done_callback(done)
        return answered

    def describe(self) -> dict[str, Any]:
        mark, leader = self.log.replica.mark, self.election.leader
        leads = self.election.is_leading
        return {
            "role": "leader" if leads else "follower" if leader is not None else "none",
            "leader": leader.url if leader is not None else None,
            "home": str(self.log.home) if self.log.home is not None else None,
            "position": mark.position,
            "events": mark.events,
            "void": self.log.replica.void,
            "problem": self._problem(),
        }

    # -- writing --------------------------------------------------------------------------------

    def _in_pool(self, function: Callable[..., Any], *args: Any) -> "Future[Any]":
        try:
            return self._pool.submit(function, *args)
        except RuntimeError:  # the pool is shut down
            failed: Future[Any] = Future()
            failed.set_exception(unavailable("the registry is being stopped"))
            return failed

    def _decide(self, change: Mutation) -> "Future[RestResponse] | None":
        writer = self.log.writer
        if writer is None or not self.election.is_leading:
            return None
        return then(writer.write(change), lambda written: json_response(written.result()))

    def _write_patiently(
        self, change: Mutation, request: RestRequest, until: float
    ) -> RestResponse:
        reason = ""
        while not self._is_closed:
            try:
                decided = self._decide(change)
                if decided is not None:
                    return decided.result()
                leader = self.election.leader
                if leader is not None and not self.election.is_leading:
                    return self._forward(leader.url, request)
            except RegistryError as error:
                if not _is_tried_again(change, error):
                    raise
                reason = str(error)
            now = self._clock()
            if now >= until or self.log.is_lost:
                break
            with self.log.changed:
                self.log.changed.wait(min(until - now, _LOOK_SECONDS))
        known = self._known_answer(change)
        if known is not None:
            return known
        problem = self._problem() or reason or "no registry leads at the moment; try again"
        raise unavailable(f"nothing can be changed now: {problem}")

    def _known_answer(self, change: Mutation) -> RestResponse | None:
        """The response to a registration that needn't write anything, when nobody can."""
        if not (isinstance(change, RegisterSchema) and self.log.is_readable):
            return None
        try:
            decision = change.decide(self.log.replica.copy())
        except RegistryError:  # a leader, which knows more, may take it
            return None
        return json_response(decision.answer) if decision.event is None else None

    def _forward(self, url: str, request: RestRequest) -> RestResponse:
        if request.was_forwarded:
            raise unavailable(f"this registry does not lead; {url} does, as far as it knows")
        answer = self.forwarder.send(url, request)
        if answer.status >= 500:
            raise _error_of(answer)
        if answer.status < 300:
            self.log.refresh(_REFRESH_SECONDS)  # who writes here reads here what was written
        return answer

    def _problem(self) -> str:
        return self.log.problem or self.election.problem


def _error_of(answer: RestResponse) -> RegistryError:
    try:
        found = json.loads(answer.body)
        return RegistryError(int(found["error_code"]), str(found["message"]))
    except (ValueError, RecursionError, KeyError, TypeError):
        return RegistryError(FAILED, f"the leading registry answered with status {answer.status}")


def _is_tried_again(change: Mutation, error: BaseException) -> bool:
    # Whoever has deleted the latest version, and doesn't know it, would delete the one before.
    is_of_the_latest = isinstance(change, DeleteVersion) and change.version == LATEST_VERSION
    is_unavailable = isinstance(error, RegistryError) and error.code == UNAVAILABLE
    return is_unavailable and not is_of_the_latest


def _copy(first: "Future[Any]", second: "Future[Any]") -> None:
    error = first.exception()
    if error is None:
        second.set_result(first.result())
    else:
        second.set_exception(error)
