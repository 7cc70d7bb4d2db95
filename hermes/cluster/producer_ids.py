"""Ids for producers that number what they send: unique in a cluster, and over restarts.

Ids are taken a block at a time. What a stop or a crash leaves of a block is never given out.
"""

from collections.abc import Callable
from typing import Any, Final

from twisted.internet.defer import Deferred

from hermes.announcement import Announcement

#: As many as Kafka's brokers take at a time.
BLOCK_IDS: Final = 1000


class ProducerIds:
    """Lives in the reactor's thread.

    `claim`: takes so many ids that nobody has had, and returns the first one; blocks.
    """

    def __init__(
        self, claim: Callable[[int], int], in_thread: "Callable[..., Deferred[Any]]"
    ) -> None:
        self._claim = claim
        self._in_thread = in_thread
        self._next = self._end = 0
        self._taken = Announcement[None]()  # the next block

    async def take(self) -> int:
        """Give out an id; HermesError when none can be had now."""
        while self._next == self._end:
            block = self._taken.wait()
            if len(self._taken) == 1:
                claimed = self._in_thread(self._claim, BLOCK_IDS)
                claimed.addCallback(self._begin).addBoth(self._taken.tell)
            await block
        taken = self._next
        self._next += 1
        return taken

    def _begin(self, first: int) -> None:
        self._next, self._end = first, first + BLOCK_IDS
