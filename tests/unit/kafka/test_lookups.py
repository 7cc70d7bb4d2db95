"""Times that stand for something else are known from a version on; other negative ones never."""

from pathlib import Path

import pytest
from kafka_bench import KafkaBench
from kafka_raw import parts


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
