"""Which of a client's beliefs about a partition's leader are refused."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.kafka.epochs import check_epoch
from hermes.kafka.errors import Code, KafkaError


@pytest.mark.parametrize(
    ("epoch", "code"),
    [
        (-1, None),
        (0, None),  # what other brokers tell
        (1, Code.FENCED_LEADER_EPOCH),
        (3, None),
        (4, Code.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_a_log_that_has_seen_leaders_before(epoch: int, code: Code | None) -> None:
    log: Any = SimpleNamespace(leader_epoch=3)
    if code is None:
        check_epoch(log, epoch)
        return
    with pytest.raises(KafkaError) as refused:
        check_epoch(log, epoch)
    assert refused.value.code == code
