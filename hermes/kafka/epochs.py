"""Leaders' terms of office, which Kafka numbers.

Here a partition has one leader for ever. A log that a Kafka has written may have seen several, and
clients turn down what names an older leader than they have heard of. A Kafka that stops tells them
of a term later than its last one, in which nobody leads; when it starts again it takes the second
after that, or a later one. So the term that is told here is the one in between: one later than the
last that the log knows, in which its batches are appended. Only a log's own broker knows that;
others tell of a new log's.
"""

from typing import Final

from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.storage import Log

#: What is told of a new log, and where there is no log to ask.
FIRST_EPOCH: Final = 1


def told_epoch(log: Log | None) -> int:
    """The epoch that clients are told; `log` is None where another broker has it."""
    return FIRST_EPOCH if log is None else log.leader_epoch + 1


def check_epoch(log: Log, epoch: int) -> None:
    """Refuse (KafkaError) a client that knows another leader than there is, or may have been.

    `epoch` is what the client knows; -1 if it doesn't say.
    """
    if epoch < 0:
        return
    if epoch > told_epoch(log):
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH)
    if FIRST_EPOCH < epoch < told_epoch(log):
        raise KafkaError(Code.FENCED_LEADER_EPOCH)


def end_of_epoch(log: Log, epoch: int) -> tuple[int, int]:
    """Find where an epoch ends, of those that clients are told; see `LeaderEpochs.end_of`."""
    if epoch == told_epoch(log):
        return epoch, log.high_watermark
    return log.end_of_epoch(epoch)
