"""Leaders' terms of office, which Kafka numbers.

Here a partition has one leader for ever. A log that a Kafka has written may have seen several: only
its broker knows how many, and others tell of the first one.
"""

from typing import Final

from hermes.kafka.errors import Code, KafkaError
from hermes.storage import Log

#: The first leader's term, by which a partition begins; told where there is no log to ask.
FIRST_EPOCH: Final = 0


def check_epoch(log: Log, epoch: int) -> None:
    """Refuse a client that knows another leader of a partition than there is, or may have been.

    Args:
        log: the partition's.
        epoch: what the client knows; -1 if it doesn't say.

    Raises:
        KafkaError: it does.
    """
    if epoch < 0:
        return
    if epoch > log.leader_epoch:
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH)
    if FIRST_EPOCH < epoch < log.leader_epoch:
        raise KafkaError(Code.FENCED_LEADER_EPOCH)
