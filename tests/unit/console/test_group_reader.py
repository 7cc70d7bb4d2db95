"""What pages say of groups' partitions; the cluster is the test's own."""

from collections.abc import Sequence

from hermes.config.addresses import BrokerAddress
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import BrokerState
from hermes.console.group_reader import GroupReader
from hermes.console.group_views import Ends
from hermes.coordination.layout import BrokerPartition
from hermes.protocol import BrokerMetadata, ErrorCode, PartitionMetadata, TopicMetadata


class Cluster:
    """One broker, which has `orders` and not `gone`."""

    def read(self, _: Sequence[str]) -> list[BrokerState]:
        topics = (
            TopicMetadata("orders", ErrorCode.NONE, 2, (PartitionMetadata(0, 5, 9, 100),)),
            TopicMetadata("gone", ErrorCode.UNKNOWN_TOPIC, 1, ()),
        )
        metadata = BrokerMetadata(0, "", 1, 1, 1, (), topics)
        return [BrokerState(0, BrokerAddress("broker", 9092), metadata)]


def test_a_topic_that_was_deleted_does_not_end_at_its_beginning() -> None:
    """Else what a group has stored of it is said to be beyond the end, and to need attention."""
    reader = GroupReader(Cluster(), ReadCache())  # type: ignore[arg-type]
    ends, errors = reader.ends(["gone", "orders"])
    assert errors == []
    assert ends == {
        ("orders", BrokerPartition(0, 0)): Ends(5, 9, False, True),
        ("orders", BrokerPartition(0, 1)): Ends(0, 0, False, True),
    }
