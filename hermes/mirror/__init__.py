"""The mirror: reads topics of other clusters as a group of consumers does, and writes them here.

In the order of a reading:

    pipeline        a mirror
    planning, answers
                    where a claim's messages go and where it begins, and what is asked for that
    sources, alone, fetchers
                    who of the group reads what, or who reads all without one; a thread for each
                    broker that is read
    claims, source_stream
                    one partition of a source, from the fetch to the commit; all of one source
    batches, routing
                    fetched bytes as stretches, and which partition gets what; pure
    targets, senders, links
                    the target's brokers, a thread for each, and how each kind of broker is written
    loops           refuses what would make messages go round
    state, throttle what is counted, and how fast it may go
    life            the process: signals, the broker that runs it; telling: its state in the
                    target's coordination; serving: over HTTP; families: its metrics;
                    embedding: in broker.yaml;
                    auditing: its part in the audit

docs/mirror.md is the guide.
"""

from hermes.mirror.pipeline import Mirror
from hermes.mirror.state import PartitionFigures

__all__ = ["Mirror", "PartitionFigures"]
