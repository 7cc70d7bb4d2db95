"""What groups have committed of a topic that is deleted while nobody coordinates them."""

from pathlib import Path
from typing import Any

from kafka_bench import KafkaBench, messages

TOPIC = "new"
DECLARED = {TOPIC: {"format": "kafka", "partitions": 1}}


def commit(bench: KafkaBench, offset: int) -> int:
    kinds = messages("OffsetCommit", 8, "request")
    partition = kinds.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=offset, committed_metadata=None
    )
    answer = bench.ask(
        "OffsetCommit",
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=(kinds.OffsetCommitRequestTopic(name=TOPIC, partitions=(partition,)),),
    )
    return int(answer.topics[0].partitions[0].error_code)


def committed(bench: KafkaBench) -> int:
    kinds = messages("OffsetFetch", 7, "request")
    topic = kinds.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=(0,))
    asked: dict[str, Any] = {"group_id": "g", "topics": (topic,), "require_stable": False}
    answer = bench.ask("OffsetFetch", 7, **asked)
    return int(answer.topics[0].partitions[0].committed_offset)


def test_a_new_topic_of_the_name_begins_without_them(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, topics=DECLARED)
    bench.shared.topics.create_declared(TOPIC)
    assert commit(bench, 5) == 0
    assert committed(bench) == 5
    bench.close()
    bench = KafkaBench(tmp_path, topics=DECLARED)
    assert committed(bench) == 5
    bench.close()

    # Somebody deletes it who knows nothing of groups, and the next life creates another one.
    other = KafkaBench(tmp_path, topics=DECLARED)
    other.directory.delete_topic(TOPIC)
    other.close()
    bench = KafkaBench(tmp_path, topics=DECLARED)
    bench.shared.topics.create_declared(TOPIC)
    assert committed(bench) == -1
    assert commit(bench, 1) == 0
    assert committed(bench) == 1
    bench.close()
