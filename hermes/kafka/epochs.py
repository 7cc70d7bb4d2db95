"""Leaders' terms of office, which Kafka numbers: here there is one leader for ever."""

from typing import Final

from hermes.kafka.errors import Code, KafkaError

#: The one term's number.
LEADER_EPOCH: Final = 0


def check_epoch(epoch: int) -> None:
    """Refuse a client that knows another leader than there is.

    Raises:
        KafkaError: it does.
    """
    if epoch > LEADER_EPOCH:
        raise KafkaError(Code.UNKNOWN_LEADER_EPOCH)
    if -1 < epoch < LEADER_EPOCH:
        raise KafkaError(Code.FENCED_LEADER_EPOCH)
