"""Whether, how long and how often to try again. No I/O, no sleeping."""

import random
import time
from collections.abc import Callable
from typing import Final, NamedTuple

from hermes.backoff import growing_pause
from hermes.errors import (
    BrokerError,
    BrokerNotTrustedError,
    BrokerTimeoutError,
    BrokerUnavailableError,
    ConfigError,
    CoordinationUnavailableError,
    NotAuthenticatedError,
    NotAuthorizedError,
)

# Pauses double up to this, so that a broker that is back is found within about a second; a longer
# first pause stays as it is.
_LONGEST_PAUSE_SECONDS: Final = 1.0
# Not even a pause of 0 may become a loop that does nothing but fail.
_SHORTEST_PAUSE_SECONDS: Final = 0.001


def is_retriable(error: BaseException | None) -> bool:
    """Whether trying the same again may succeed: a broker restarts, say, or has moved."""
    if isinstance(error, BrokerError):
        return error.retriable
    if isinstance(error, BrokerNotTrustedError):
        return False
    return isinstance(
        error, BrokerUnavailableError | BrokerTimeoutError | CoordinationUnavailableError
    )


def is_refusal(error: BaseException | None) -> bool:
    """Whether somebody was refused, or a broker was: until settings or rules change, for good."""
    return isinstance(
        error, NotAuthenticatedError | NotAuthorizedError | BrokerNotTrustedError | ConfigError
    )


class RetryRules(NamedTuple):
    """What bounds the tries of one delivery.

    Attributes:
        delivery_seconds: how long all tries may take together, above 0.
        first_pause_seconds: the pause before the second try, 0 or more; each further one is twice
            as long, up to a second.
        max_retries: how many tries there are after the first, 0 or more; None for as many as the
            time allows.
    """

    delivery_seconds: float
    first_pause_seconds: float
    max_retries: int | None = None


class Retries:
    """The tries of one delivery. The first one begins now.

    Example:
        retries = Retries(RetryRules(120.0, 0.1))
        while not attempt(timeout_seconds=retries.seconds_left):
            pause = retries.next_pause()
            if pause is None:
                raise
            time.sleep(pause)

    Args:
        rules: what bounds them.
        clock: monotonic seconds.
        chance: a number from 0 up to 1, which lengthens a pause by up to a half, so that producers
            that failed together don't come back together.
    """

    def __init__(
        self,
        rules: RetryRules,
        clock: Callable[[], float] = time.monotonic,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self.count = 0
        self._rules = rules
        self._clock = clock
        self._chance = chance
        self._deadline = clock() + rules.delivery_seconds

    @property
    def seconds_left(self) -> float:
        """How long the try that begins now may take; 0 or less when the time is over."""
        return self._deadline - self._clock()

    def next_pause(self) -> float | None:
        """The seconds to wait before the next try; None when there is to be none."""
        if self._rules.max_retries is not None and self.count >= self._rules.max_retries:
            return None
        first = max(self._rules.first_pause_seconds, _SHORTEST_PAUSE_SECONDS)
        plain = growing_pause(first, self.count, max(first, _LONGEST_PAUSE_SECONDS))
        pause = plain * (1 + self._chance() / 2)
        if pause >= self.seconds_left:
            return None
        self.count += 1
        return pause
