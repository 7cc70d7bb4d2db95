"""Where a driver finds partitions while they change hands."""

import pytest

from hermes.errors import NotLeaderError
from hermes.protocol import NOBODY
from hermes.spark.cluster_reader import ClusterReader
from hermes.spark.offsets import TopicPartition
from hermes.spark.options import ConnectionOptions, RetryOptions

_PARTITION = TopicPartition("clicks", 0, 3)


class _Cluster(ClusterReader):
    """Two brokers, of which the second is found late; who leads changes from look to look."""

    def __init__(self, *leaders: int) -> None:
        super().__init__(ConnectionOptions(bootstrap=(("a", 1),)), RetryOptions(1, 0.0))
        self._known = {0: ("a", 1)}
        self._next = iter(leaders)

    def _listed(self) -> dict[int, tuple[str, int]]:
        return {0: ("a", 1), 1: ("b", 2)}

    def _read_leaders(self, topic: str) -> dict[TopicPartition, int]:
        return {_PARTITION: next(self._next)}


@pytest.mark.parametrize("leaders", [(1,), (NOBODY, 1)])
def test_a_partition_is_read_where_its_next_leader_is(leaders: tuple[int, ...]) -> None:
    assert _Cluster(*leaders).address(_PARTITION) == ("b", 2)


def test_a_partition_that_nobody_leads_is_an_error() -> None:
    with pytest.raises(NotLeaderError, match="nobody leads"):
        _Cluster(NOBODY, NOBODY).address(_PARTITION)
