"""Which transactions a log holds parts of that nothing has been decided about yet.

A producer's transaction begins in a log with its first batch there, and ends with a marker. Up to
where the first one begins that hasn't ended all is decided: the *last stable offset*, which who
wants only what was committed reads up to. A marker counts once it is committed itself: until then
a new leader may lack it.

Rules: Kafka 4 (`ProducerStateManager`).
"""

from collections.abc import Iterable, Mapping
from typing import Final

from hermes.protocol.record_batches import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader

#: Instead of an offset: no transaction is open.
ALL_DECIDED: Final = 2**63 - 1


class Transactions:
    """What is open in one log. The log's lock guards it, but for `first_open`.

    Attributes:
        first_open: where the earliest transaction begins that hasn't ended, or whose end isn't
            committed; `ALL_DECIDED` without any.
    """

    __slots__ = ("_ended", "_open", "first_open")

    def __init__(self) -> None:
        # By the producer, where its transaction begins; the earliest is the first.
        self._open: dict[int, int] = {}
        # (where it begins, where its marker is) of those that have ended, until that is committed.
        self._ended: list[tuple[int, int]] = []
        self.first_open = ALL_DECIDED

    @property
    def open(self) -> Mapping[int, int]:
        """Where each transaction begins that hasn't ended, by its producer's id."""
        return self._open

    def begin(self, producer_id: int, offset: int) -> bool:
        """A batch is about to be appended; whether a transaction begins with it."""
        if producer_id in self._open:
            return False
        self._open[producer_id] = offset
        self.first_open = min(self.first_open, offset)
        return True

    def undo(self, producer_id: int) -> None:
        """The batch was not appended that was to begin a producer's transaction."""
        del self._open[producer_id]
        self._look()

    def follow(self, header: BatchHeader) -> None:
        """A batch was appended that may be part of a transaction, or end one."""
        if header.attributes & CONTROL_BIT:
            begun = self._open.pop(header.producer_id, None)
            if begun is not None:
                self._ended.append((begun, header.last_offset))
        elif header.attributes & TRANSACTIONAL_BIT:
            self.begin(header.producer_id, header.base_offset)

    def commit(self, high_watermark: int) -> int:
        """So much is committed: where the first transaction begins now that isn't decided."""
        if self._ended:
            self._ended = [each for each in self._ended if each[1] >= high_watermark]
            self._look()
        return self.first_open

    def replace(self, begun: Mapping[int, int], ended: Iterable[tuple[int, int]]) -> None:
        """Know this from now on, and nothing else: the log was opened, or cut."""
        self._open = dict(sorted(begun.items(), key=lambda each: each[1]))
        self._ended = list(ended)
        self._look()

    def _look(self) -> None:
        first = next(iter(self._open.values()), ALL_DECIDED)
        self.first_open = min((begun for begun, _ in self._ended), default=first)
        self.first_open = min(self.first_open, first)

    def stable_without(self, producer_id: int, marker_offset: int) -> int:
        """The last stable offset once this producer's transaction has ended with a marker."""
        others = (begun for each, begun in self._open.items() if each != producer_id)
        return next(others, marker_offset + 1)
