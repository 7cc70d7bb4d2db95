"""The batches that idempotent producers were told to send again: nothing later goes before them.

Clients have several batches of a partition under way. One refused, a later one not, they conclude:

- librdkafka takes OUT_OF_ORDER_SEQUENCE_NUMBER for leave to number everything anew, also what it
  was told may be stored. What is stored would be stored twice.
- A log that doesn't know a producer takes any batch for its first one. librdkafka takes the
  acknowledgement of a later batch for that of the one before, too: that would be lost.

So a batch after one that is to be sent again is refused in the same way, until that one has come.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from hermes.errors import EarlierBatchAwaitedError
from hermes.protocol.record_batches import BatchHeader
from hermes.storage.producer_states import ProducerState

#: A producer in a partition: the topic as its requests name it, the partition, the producer's id.
_Key = tuple[str | UUID, int, int]

#: How many batches are awaited at most, those of long ago are forgotten first: about 4 MB.
MOST_AWAITED: Final = 10_000

#: How long a batch is awaited. What was under way when it was refused came long ago then, and who
#: doesn't repeat it by then never does.
AWAITED_SECONDS: Final = 300.0

#: The same where another broker may lead by now, to which they are sent again.
AWAITED_COPY_SECONDS: Final = 5.0

_NOBODY: Final[Mapping[int, ProducerState]] = {}

_HALF_OF_THE_SEQUENCES: Final = 1 << 30
_LAST_SEQUENCE: Final = 2**31 - 1


class _Awaited(NamedTuple):
    """The first batch of a producer that is to come again, by its first message's number.

    Attributes:
        until: when it is awaited no longer.
        behind: the first that was refused after it, and until when; that is awaited then.
    """

    epoch: int
    sequence: int
    until: float
    behind: tuple[int, float] | None = None

    def with_later(self, sequence: int, until: float) -> "_Awaited":
        """Note that one after it was refused: it isn't awaited for any longer by that."""
        first = sequence if self.behind is None else self.behind[0]
        if self._replace(sequence=sequence).is_before(self.epoch, first):
            first = sequence
        return self._replace(behind=(first, until))

    def is_before(self, epoch: int, sequence: int) -> bool:
        """Whether it comes before what begins with that number, in that epoch."""
        ahead = (sequence - self.sequence) & _LAST_SEQUENCE
        return epoch == self.epoch and 0 < ahead < _HALF_OF_THE_SEQUENCES


class AwaitedBatches:
    """Lives in the reactor's thread.

    Args:
        seconds: a clock that never goes back.

    Attributes:
        batches: the first of each producer; nearly always there is none, and nothing to be asked.
    """

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self.batches: dict[_Key, _Awaited] = {}

    def expect(
        self,
        topic: str | UUID,
        partition: int,
        headers: Iterable[BatchHeader],
        seconds: float = AWAITED_SECONDS,
    ) -> None:
        """Batches were answered with an error for which clients send them again, by then."""
        until = self._seconds() + seconds
        for header in headers:
            if not header.has_producer:
                continue
            key = topic, partition, header.producer_id
            epoch, sequence = header.producer_epoch, header.base_sequence
            made = _Awaited(epoch, sequence, until)
            known = self.batches.pop(key, None)
            if known is not None and known.epoch >= epoch:
                if known.epoch > epoch:  # what is of an older epoch never comes again
                    made = known
                elif known.is_before(epoch, sequence):
                    made = known.with_later(sequence, until)
                elif known.sequence == sequence:
                    made = made._replace(behind=known.behind)
                else:
                    made = made._replace(behind=(known.sequence, known.until))
            self.batches[key] = made
            if len(self.batches) > MOST_AWAITED:
                del self.batches[next(iter(self.batches))]

    def check(
        self,
        topic: str | UUID,
        partition: int,
        headers: Iterable[BatchHeader],
        copied: Mapping[int, ProducerState] = _NOBODY,
    ) -> None:
        """Let no batch go before one that is to come again: EarlierBatchAwaitedError.

        `copied`: what a log has by now that may have got it from another broker, who led meanwhile.
        """
        for header in headers:
            key = topic, partition, header.producer_id
            epoch, sequence = header.producer_epoch, header.base_sequence
            known, has = self._now(key), copied.get(header.producer_id)
            if known is None or not known.is_before(epoch, sequence):
                continue
            if has and has.batches and known.is_before(has.epoch, has.last_sequence + 1):
                del self.batches[key]
                continue
            raise EarlierBatchAwaitedError(
                f"producer {header.producer_id}: its batch that begins with sequence number "
                f"{known.sequence} was refused; send it again before that with {sequence}"
            )

    def _now(self, key: _Key) -> _Awaited | None:
        """What is awaited, once what was awaited for too long is given up."""
        known = self.batches.get(key)
        while known is not None and self._seconds() >= known.until:
            del self.batches[key]
            if known.behind is None:
                return None
            known = self.batches[key] = _Awaited(known.epoch, *known.behind)
        return known

    def arrived(self, topic: str | UUID, partition: int, headers: Iterable[BatchHeader]) -> None:
        for header in headers:
            key = topic, partition, header.producer_id
            known = self.batches.get(key)
            if known is None or header.producer_epoch < known.epoch:
                continue
            if header.producer_epoch > known.epoch or _has(header, known.sequence):
                del self.batches[key]


def _has(header: BatchHeader, sequence: int) -> bool:
    return (sequence - header.base_sequence) & _LAST_SEQUENCE <= header.last_offset_delta
