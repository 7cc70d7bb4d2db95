"""The mirror: reads topics of other clusters as a group of consumers does, and writes them here.

In the order of a reading:

    pipeline        a mirror
    planning, planning_queries
                    where a claim's messages go and where it begins, and what is asked for that
    mirror_source, whole_source, sole_reader, fetchers
                    who of the group reads what, or who reads all without one; a thread for each
                    broker that is read
    source_claim, source_stream
                    one partition of a source, from the fetch to the commit; all of one source
    stretches, routing
                    fetched bytes as stretches, and which partition gets what; pure
    target_cluster, senders, links
                    the target's brokers, a thread for each, and how each kind of broker is written
    loop_guard      refuses what would make messages go round
    kafka_cluster, kafka_reader, kafka_fetchers, kafka_target, kafka_link, kafka_origins
                    a source or a target that is reached by Kafka's protocol; record_stretches:
                    fetched batches as stretches, ready for another cluster
    in_step         partitions and settings of such topics as the source has them
    group_carrier   offsets of groups, of topics of both formats
    figures, throttle
                    what is counted, and how fast it may go
    process         signals, the broker that runs it; status: published in the target's
                    coordination; serving: over HTTP; mirror_metrics; embedding: in broker.yaml;
                    mirror_counter: its part in the audit

docs/mirror.md is the guide.
"""

from hermes.mirror.figures import PartitionFigures
from hermes.mirror.pipeline import Mirror

__all__ = ["Mirror", "PartitionFigures"]
