"""The worst request of each kind leaves nothing to a collection of garbage.

The broker puts collections off, so that they stop nobody for long: what they would have to find
stays for minutes, and a client can repeat its request.
"""

import gc
from collections import Counter
from pathlib import Path

from kafka_bench import KafkaBench
from worst_kafka_requests import kafka_kinds
from worst_requests import Kind

MOST_FRAMES = 5

#: Of requests that can't be read a Failure and its frames are left, whatever their size.
MOST_LEFT = 150

#: Of a new topic settings are read, which takes long: see `test_reading_leaves_no_garbage`.
CREATING = {"metadata, 40,000 new topics", "40,000 topics created"}


def test_no_request_leaves_garbage_for_each_of_its_entries(tmp_path: Path) -> None:
    settings = {"format": "kafka", "partitions": 100}
    topics = {"kafka-wide": settings, "kafka-data": settings}
    bench = KafkaBench(tmp_path, topics=topics, max_topics=150)
    for name in topics:
        bench.shared.topics.create_declared(name)
    left = Counter[str]()
    gc.disable()
    try:
        for kind in kafka_kinds():
            if kind.name not in CREATING:
                gc.freeze()  # else each collection looks at all there is
                carry_out(bench, kind)
                left[kind.name] = gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
        bench.close()
    assert {name: count for name, count in left.items() if count > MOST_LEFT} == {}


def carry_out(bench: KafkaBench, kind: Kind) -> None:
    """Send the first frames; it may be refused."""
    connection, transport = bench.connect_kafka()
    position = 0
    for _ in range(MOST_FRAMES):
        end = position + 4 + int.from_bytes(kind.data[position : position + 4])
        connection.dataReceived(kind.data[position:end])
        while bench.turns(transport):
            bench.clock.advance(0.01)
        position = end
    connection.connectionLost()
    bench.turns()
    transport.clear()
