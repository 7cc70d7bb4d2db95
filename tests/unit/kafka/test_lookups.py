"""ListOffsets: which times stand for something else, and how many are looked up at a time."""

from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench, encode_request
from kafka_raw import parts
from twisted.internet.defer import Deferred

from hermes.partition.log_reader import CONCURRENT_LOOKUPS


@pytest.mark.parametrize(
    ("time_ms", "version", "code"),
    [
        *((-1, 1, 0), (-2, 1, 0), (0, 1, 0)),
        *((-3, 6, 35), (-3, 7, 0), (-4, 7, 35), (-4, 8, 0)),
        *((-5, 8, 35), (-5, 9, 0), (-6, 10, 35), (-6, 11, 0)),
        *((-7, 11, 35), (-(2**63), 11, 35)),
    ],
)
def test_each_version_knows_its_times(
    tmp_path: Path, time_ms: int, version: int, code: int
) -> None:
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    make = parts("ListOffsets", version)
    wanted = make.ListOffsetsPartition(
        partition_index=0, timestamp=time_ms, current_leader_epoch=-1
    )
    topics = (make.ListOffsetsTopic(name="new", partitions=(wanted,)),)
    more = {"isolation_level": 0} if version >= 2 else {}
    more |= {"timeout": make.timeout(1000)} if version >= 10 else {}
    answer = bench.ask("ListOffsets", version, replica_id=-1, topics=topics, **more)
    (found,) = answer.topics[0].partitions
    assert found.error_code == code
    bench.close()


def test_clients_that_leave_get_no_more_looked_up_at_a_time(tmp_path: Path) -> None:
    """What a thread looks up goes on, though nobody waits for it."""
    bench = KafkaBench(tmp_path, topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    make = parts("ListOffsets", 7)
    wanted = make.ListOffsetsPartition(partition_index=0, timestamp=5, current_leader_epoch=-1)
    topics = (make.ListOffsetsTopic(name="new", partitions=(wanted,)),)
    asked = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    bench.ask("ListOffsets", 7, **asked)  # which loads what carries it out
    begun: list[Deferred[Any]] = []

    def in_thread(*_: Any) -> "Deferred[Any]":
        begun.append(Deferred())
        return begun[-1]

    bench.server.in_thread = in_thread
    for _ in range(3 * CONCURRENT_LOOKUPS):
        connection, _ = bench.connect_kafka()
        connection.dataReceived(encode_request("ListOffsets", 7, **asked))
        connection.connectionLost()
        assert connection not in bench.connections._unfinished
    assert len(begun) == CONCURRENT_LOOKUPS
    connection, transport = bench.connect_kafka()
    connection.dataReceived(encode_request("ListOffsets", 7, **asked))
    for each in begun[:CONCURRENT_LOOKUPS]:
        each.callback(None)
    assert len(begun) == CONCURRENT_LOOKUPS + 1
    begun[-1].callback(None)
    bench.turns(transport)
    assert transport.value()
    bench.close()
