"""Which of a client's beliefs about a partition's leader are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.kafka.epochs import check_epoch, end_of_epoch, told_epoch
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.storage.checkpoints import LeaderEpochs


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (0, None),
        (1, None),  # what other brokers tell
        (2, Code.FENCED_LEADER_EPOCH),
        (3, Code.FENCED_LEADER_EPOCH),  # the last Kafka's
        (4, None),
        (5, Code.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_log_that_has_seen_leaders_before(epoch: int, code: Code | None) -> None:
    only: Any = SimpleNamespace(log=SimpleNamespace(leader_epoch=3), leadership=None)
    if code is None:
        check_epoch(only, epoch)
        return
    with pytest.raises(KafkaError) as refused:
        check_epoch(only, epoch)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(-1, None), (0, Code.FENCED_LEADER_EPOCH), (1, None), (2, Code.UNKNOWN_LEADER_EPOCH)],
)
def test_a_partition_with_copies_has_its_epoch_from_coordination(
    epoch: int, code: Code | None
) -> None:
    copied: Any = SimpleNamespace(
        log=SimpleNamespace(leader_epoch=0), leadership=SimpleNamespace(epoch=1)
    )
    if code is None:
        check_epoch(copied, epoch)
        return
    with pytest.raises(KafkaError) as refused:
        check_epoch(copied, epoch)
    assert refused.value.code == code


def test_clients_hear_of_a_later_leader_than_the_logs_last() -> None:
    """Kafka tells them of one when it stops, and comes back with a later one still."""
    log: Any = SimpleNamespace(leader_epoch=3)
    assert told_epoch(log) == 4
    new: Any = SimpleNamespace(leader_epoch=0)
    assert told_epoch(new) == told_epoch(None), "all brokers tell the same of what Hermes has made"


def test_an_epoch_whose_messages_are_deleted_ends_where_the_log_begins() -> None:
    epochs = LeaderEpochs("", [(3, 0), (5, 2), (8, 4)])
    epochs.settle((), start=4, end=4)
    log: Any = SimpleNamespace(
        high_watermark=4,
        sidecar=SimpleNamespace(epochs=epochs),
        end_of_epoch=lambda epoch: epochs.end_of(epoch, 4),
    )
    partition: Any = SimpleNamespace(log=log, leadership=SimpleNamespace(epoch=9))
    ends = {epoch: end_of_epoch(partition, epoch) for epoch in (-1, 3, 5, 8, 9, 10)}
    unknown = (-1, -1)
    assert ends == {-1: unknown, 3: (3, 4), 5: (5, 4), 8: (8, 4), 9: (9, 4), 10: unknown}
