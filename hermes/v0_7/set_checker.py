"""Checks the message sets of produce requests: in the reactor's thread if that is quick, else not.

Plain sets are read once, at about 3 us per KiB. Others (compressed, old, damaged) may expand to far
more than what was received, so those that are large, or turn out to be, go to a worker thread.
"""

from collections.abc import Callable, Sequence
from threading import Lock
from typing import Any, TypeAlias

from twisted.internet.defer import Deferred, DeferredSemaphore

from hermes.errors import ExpandedTooLargeError, HermesError, MessageTooLargeError, ProtocolError
from hermes.protocol import (
    LONG_ENTRIES,
    ProduceRequest,
    SetCheck,
    check_message_set,
    check_plain_set,
)
from hermes.server.settings import Settings

#: Plain sets up to this size are checked in the reactor's thread: about 3 ms of CRCs.
INLINE_PLAIN_BYTES = 1024 * 1024

#: So are others (compressed, old or damaged ones) up to this size, as long as they expand to no
#: more than the second number; beyond that a worker thread takes over.
INLINE_UNUSUAL_BYTES = 8 * 1024
INLINE_EXPANDED_BYTES = 64 * 1024

#: How many requests are checked in worker threads at a time; others need the threads, too.
CONCURRENT_CHECKS = 2

#: A set that expands to more than this is checked only while no other such set is.
CONCURRENT_EXPANDED_BYTES = 8 * 1024 * 1024

#: What was found of a set, or why it is refused.
CheckResult: TypeAlias = SetCheck | HermesError


class SetChecker:
    def __init__(self, settings: Settings, in_thread: Callable[..., "Deferred[Any]"]) -> None:
        self._settings = settings
        self._in_thread = in_thread
        self._checking = DeferredSemaphore(CONCURRENT_CHECKS)
        self._expanding_far = Lock()

    def check(
        self, produces: Sequence[ProduceRequest]
    ) -> "list[CheckResult] | Deferred[list[CheckResult]]":
        """What was found of each set, in order; a Deferred of it when a thread looks at them."""
        checks = self._check_inline(produces)
        if checks is not None:
            return checks
        checked: Deferred[list[CheckResult]] = self._checking.run(
            self._in_thread, self._check_all, produces
        )
        return checked

    def _check_inline(self, produces: Sequence[ProduceRequest]) -> list[CheckResult] | None:
        """None when that could take long for the reactor's thread."""
        if len(produces) > LONG_ENTRIES or size_of(produces) > INLINE_PLAIN_BYTES:
            return None
        plain = [self._check_plain(produce) for produce in produces]
        unusual = [n for n, check in enumerate(plain) if check is None]
        if sum(len(produces[n].message_set) for n in unusual) > INLINE_UNUSUAL_BYTES:
            return None
        limit = min(INLINE_EXPANDED_BYTES, self._settings.config.max_expanded_bytes)
        checks: list[CheckResult] = []
        for produce, check in zip(produces, plain, strict=True):
            checks.append(check or self._check(produce, limit))
            if isinstance(checks[-1], ExpandedTooLargeError):
                return None
        return checks

    def _check_plain(self, produce: ProduceRequest) -> CheckResult | None:
        """None for a set that isn't just plain, whole messages."""
        try:
            return check_plain_set(
                produce.message_set, max_message_bytes=self._settings.config.max_message_bytes
            )
        except MessageTooLargeError as error:
            return error.with_traceback(None)  # its frames hold the set

    def _check_all(self, produces: Sequence[ProduceRequest]) -> list[CheckResult]:
        return [self._check_in_thread(produce) for produce in produces]

    def _check_in_thread(self, produce: ProduceRequest) -> CheckResult:
        """Check a set; at any time only one that takes much memory."""
        limit = min(CONCURRENT_EXPANDED_BYTES, self._settings.config.max_expanded_bytes)
        check = self._check(produce, limit)
        if (
            isinstance(check, ExpandedTooLargeError)
            and limit < self._settings.config.max_expanded_bytes
        ):
            with self._expanding_far:
                check = self._check(produce, self._settings.config.max_expanded_bytes)
        return check

    def _check(self, produce: ProduceRequest, max_expanded_bytes: int) -> CheckResult:
        """Any thread may call it."""
        try:
            return check_message_set(
                produce.message_set,
                max_message_bytes=self._settings.config.max_message_bytes,
                max_expanded_bytes=max_expanded_bytes,
            )
        except ProtocolError as error:
            return error.with_traceback(None)  # its frames hold what the set expanded to


def size_of(produces: Sequence[ProduceRequest]) -> int:
    return sum(len(produce.message_set) for produce in produces)
