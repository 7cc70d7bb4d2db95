"""Leaders' terms of office, which Kafka numbers.

Here a partition has one leader for ever. A log that a Kafka has written may have seen several.
"""

from typing import Final

from hermes.kafka.errors import Code, KafkaError
from hermes.storage import Log

#: The number of a leader's term where there is no log to ask.
LEADER_EPOCH: Final = 0


def check_epoch(log: Log, epoch: int) -> None:
    """Refuse a client that knows another leader of a partition than there is.

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
    if epoch < log.leader_epoch:
        raise KafkaError(Code.FENCED_LEADER_EPOCH)
