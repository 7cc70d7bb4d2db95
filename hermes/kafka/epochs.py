"""Leaders' terms of office, which Kafka numbers.

A partition with copies has its epochs from coordination, and those are told. Any other one has one
leader for ever. A log that a Kafka has written may have seen several, and
clients turn down what names an older leader than they have heard of. A Kafka that stops tells them
of a term later than its last one, in which nobody leads; when it starts again it takes the second
after that, or a later one. So the term that is told here is the one in between: one later than the
last that the log knows, in which its batches are appended. Only a log's own broker knows that;
others tell of a new log's.
"""

from typing import Final

from hermes.partition.partition import Partition
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.storage import Log

#: What is told of a new log, and where there is no log to ask.
FIRST_EPOCH: Final = 1


def told_epoch(log: Log | None) -> int:
    """The epoch that clients are told; `log` is None where another broker has it."""
    return FIRST_EPOCH if log is None else log.leader_epoch + 1


def check_epoch(partition: Partition, epoch: int) -> None:
    """Refuse (KafkaError) a client that knows another leader than there is, or may have been.

    `epoch` is what the client knows; -1 if it doesn't say.
    """
    if epoch < 0:
        return
    told = _told(partition)
    if epoch > told:
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH)
    if epoch < told and (epoch > FIRST_EPOCH or partition.leadership is not None):
        raise KafkaError(Code.FENCED_LEADER_EPOCH)


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """Find where an epoch ends, of those that clients are told; see `LeaderEpochs.end_of`.

    One whose messages are deleted ends where the log begins: a consumer whose last message was of
    it isn't to believe that the log was cut.
    """
    log = partition.log
    if epoch == _told(partition):
        return epoch, log.high_watermark
    for first, start in log.sidecar.epochs.entries[:1]:
        if 0 <= epoch < first:
            return epoch, start
    return log.end_of_epoch(epoch)


def _told(partition: Partition) -> int:
    leadership = partition.leadership
    return told_epoch(partition.log) if leadership is None else leadership.epoch
