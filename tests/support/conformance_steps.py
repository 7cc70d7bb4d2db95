"""What scenes of conformance are made of: steps of a conversation, batches, comparable answers."""

import time
from collections.abc import Callable, Set
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from typing import Any
from uuid import UUID

from kafka_bench import messages
from kafka_raw import KafkaConversation, parts

from hermes.protocol.record_batches import HEADER_BYTES, decode_header, with_crc
from hermes.protocol.record_compression import RecordCodec
from hermes.protocol.records import Record, encode_batch, iterate_records

__all__ = [
    "DEFAULT_RETENTION_MS",
    "NOWHERE",
    "NOW_MS",
    "PATIENCE_SECONDS",
    "Scene",
    "batch",
    "comparable",
    "fetch",
    "list_offsets",
    "lying",
    "named_fields",
    "produce",
]

NOWHERE = UUID(int=7)
NOW_MS = 1_790_000_000_000  # not beyond an hour from now, and not too old to keep
DEFAULT_RETENTION_MS = "604800000"  # as a broker's setting has it

# How long a broker may think; Kafka doesn't answer some requests at all.
PATIENCE_SECONDS = 30

# What differs between any two brokers, by the names of fields.
_HIDDEN: Set[str] = {
    *("throttle_time", "cluster_id", "controller_id", "host", "port", "node_id", "leader_id"),
    *("topic_id", "producer_id", "member_id", "leader", "log_append_time", "error_message"),
    *(
        "brokers",
        "leader_epoch",
        "current_leader",
        "node_endpoints",
        "offset_lag",
        "partition_size",
    ),
    *("log_dir", "total_bytes", "usable_bytes", "replica_nodes", "isr_nodes", "broker_id"),
    *("client_host", "authorized_operations", "topic_authorized_operations", "session_id"),
    *("cluster_authorized_operations", "topic_config_error_code", "is_future_key", "protocol_data"),
    *("auth_bytes", "last_timestamp"),
    # None or nothing: Kafka isn't of one mind. And texts for people.
    *("aborted_transactions", "batch_index_error_message"),
}

# What a broker lists in any order: by the names of fields, and of kinds of parts where other
# answers have a field of that name whose order matters.
_UNORDERED = {
    *("mechanisms", "members", "results", "isr_nodes"),
    *("resources", "acls", "matching_acls", "entries", "values", "credential_infos"),
}
_UNORDERED_PARTS = {
    *("DescribeLogDirsTopic", "DescribeLogDirsPartition"),
    *("AddPartitionsToTxnTopicResult", "AddPartitionsToTxnPartitionResult"),
    *("WritableTxnMarkerTopicResult", "TopicData"),
}


class Scene:
    """One conversation.

    Args:
        address: of the broker, `host:port`.
        topic: a topic of its own, with two partitions.
        shown: names of fields that are compared all the same, of what differs between brokers.

    Attributes:
        answers: what was answered, by the steps' labels.
    """

    def __init__(self, address: str, topic: str, shown: Set[str] = frozenset()) -> None:
        self.address = address
        self._hidden = _HIDDEN - shown
        self.client = KafkaConversation(address, PATIENCE_SECONDS)
        self.topic = topic
        self.answers: dict[str, Any] = {}

    def ask(self, label: str, name: str, version: int, **given: Any) -> Any:
        """Ask, and note the answer; a closed connection is one, too."""
        assert label not in self.answers, label
        known = named_fields(name, version, given)
        try:
            answer = self.client.ask(name, version, **known)
        except (ConnectionError, TimeoutError) as error:
            self.client.close()
            self.client = KafkaConversation(self.address, PATIENCE_SECONDS)
            self.answers[label] = "no answer" if isinstance(error, TimeoutError) else "closed"
            return None
        self.answers[label] = comparable(answer, hidden=self._hidden)
        return answer

    def create(self, topic: str, partitions: int = 2) -> None:
        """Create a topic, and note nothing."""
        make = parts("CreateTopics", 7)
        wanted = make.CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=1, assignments=(), configs=()
        )
        timeout = make.timeout(30_000)
        answer = self.client.ask(
            "CreateTopics", 7, topics=(wanted,), timeout=timeout, validate_only=False
        )
        assert answer.topics[0].error_code.value == 0, answer

    def settle(self, topic: str = "", partitions: int = 2) -> None:
        """Wait until all is there that Kafka prepares only when it is asked for it.

        That is what all groups and producers need, and the partitions of a topic, which a Kafka's
        broker hears of after its controller has answered.
        """
        make = parts("ListOffsets", 8)
        wanted = tuple(
            make.ListOffsetsPartition(partition_index=each, timestamp=-1, current_leader_epoch=-1)
            for each in range(partitions)
        )
        topics = (make.ListOffsetsTopic(name=topic or self.topic, partitions=wanted),)
        ids = {"transactional_id": None, "producer_id": -1, "producer_epoch": -1}
        timeout = make.timeout(60_000)
        group = {"group_id": "settling", "group_instance_id": None, "member_id": "m"}

        def is_there() -> bool:
            found = [
                *self.client.ask("ListOffsets", 8, replica_id=-1, isolation_level=0, topics=topics)
                .topics[0]
                .partitions,
                self.client.ask("InitProducerId", 4, transaction_timeout=timeout, **ids),
                *self.client.ask(
                    "FindCoordinator", 4, key_type=0, coordinator_keys=("settling",)
                ).coordinators,
                self.client.ask("Heartbeat", 4, generation_id=1, **group),
            ]
            return {each.error_code.name for each in found} <= {"none", "unknown_member_id"}

        self.wait_until(is_there, "the broker does not get ready")

    def settle_setting(self, topic: str, name: str, value: str) -> None:
        """Wait until a topic has a setting, which a Kafka's broker hears of as of a topic."""
        make = parts("DescribeConfigs", 4)
        wanted = make.DescribeConfigsResource(
            resource_type=2, resource_name=topic, configuration_keys=(name,)
        )
        given = {"include_synonyms": False, "include_documentation": False}

        def is_set() -> bool:
            answer = self.client.ask("DescribeConfigs", 4, resources=(wanted,), **given)
            return [each.value for each in answer.results[0].configs] == [value]

        self.wait_until(is_set, f"{name} of {topic} does not become {value}")

    def wait_until(self, is_so: Callable[[], bool], otherwise: str | Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS * 10
        while not is_so():
            why = otherwise if isinstance(otherwise, str) else otherwise()
            assert time.monotonic() < deadline, why
            time.sleep(0.05)  # between two looks; there is nothing that could tell

    def topic_id(self) -> UUID:
        """The UUID of the scene's topic."""
        make = parts("Metadata", 12)
        asked = (make.MetadataRequestTopic(name=self.topic, topic_id=None),)
        found = self.client.ask(
            "Metadata",
            12,
            topics=asked,
            allow_auto_topic_creation=False,
            include_topic_authorized_operations=False,
        ).topics[0]
        assert found.topic_id is not None
        return UUID(int=found.topic_id.int)


def named_fields(name: str, version: int, given: dict[str, Any]) -> dict[str, Any]:
    """Of what is given, the fields that a request has in a version."""
    kind = getattr(messages(name, version, "request"), f"{name}Request")
    known = {each.name for each in fields(kind)}
    return {key: value for key, value in given.items() if key in known}


def comparable(part: Any, name: str = "", hidden: Set[str] = _HIDDEN) -> Any:
    """An answer as plain values, of which equal ones mean the same."""
    if name in hidden:
        return "..."
    if is_dataclass(part):
        unknown = (
            {"log_start_offset"}
            if getattr(getattr(part, "error_code", None), "value", 0)
            else set()
        )
        shown = {
            each.name: comparable(getattr(part, each.name), each.name, hidden)
            for each in fields(part)
        }
        return {key: value for key, value in shown.items() if value != "..." and key not in unknown}
    if isinstance(part, tuple):
        shown_parts = [comparable(each, hidden=hidden) for each in part]
        kinds = {type(each).__name__ for each in part}
        is_unordered = name in _UNORDERED or not kinds.isdisjoint(_UNORDERED_PARTS)
        return sorted(shown_parts, key=repr) if is_unordered else shown_parts
    if isinstance(part, Enum):
        return part.name
    if isinstance(part, bytes):
        return shown_records(part) if name == "records" else part.hex()
    if isinstance(part, datetime):
        return "a time"
    if isinstance(part, timedelta):
        return part.total_seconds() * 1000
    return str(part) if isinstance(part, UUID) else part


def shown_records(data: bytes) -> list[Any]:
    """The records of all batches, and what the batches say of themselves."""
    shown: list[Any] = []
    position = 0
    while position < len(data):
        header = decode_header(data, position)
        records = [
            [
                each.offset,
                each.timestamp_ms,
                each.key and each.key.hex(),
                each.value and each.value.hex(),
            ]
            for each in iterate_records(data, header, position)
        ]
        shown.append({"attributes": header.attributes, "records": records})
        position += header.size_bytes
    return shown


def batch(
    *values: bytes, codec: RecordCodec = RecordCodec.NONE, time_ms: int = NOW_MS, **more: int
) -> bytes:
    """A batch of these values."""
    records = [Record(number, time_ms + number, b"k", each) for number, each in enumerate(values)]
    return encode_batch(records, codec, **more)


def lying(good: bytes, **changed: int) -> bytes:
    """A batch that says something else of itself, with the right CRC."""
    header, body = decode_header(good), good[HEADER_BYTES:]
    return with_crc(header._replace(**changed), body) + body


def produce(scene: Scene, label: str, records: bytes | None, **more: Any) -> Any:
    """Produce to partition 0 of the scene's topic, unless `more` says otherwise."""
    version = more.pop("version", 9)
    make = parts("Produce", version)
    topic, partition = more.pop("topic", scene.topic), more.pop("partition", 0)
    data = make.PartitionProduceData(index=partition, records=records)
    named = {"topic_id": topic} if version >= 13 else {"name": topic}
    given = {
        "acks": -1,
        "timeout": make.timeout(30_000),
        "transactional_id": None,
        "topic_data": (make.TopicProduceData(**named, partition_data=(data,)),),
        **more,
    }
    return scene.ask(label, "Produce", version, **given)


def fetch(scene: Scene, label: str, offset: int = 0, **more: Any) -> Any:
    """Fetch from partition 0 of the scene's topic, unless `more` says otherwise."""
    version = more.pop("version", 12)
    make = parts("Fetch", version)
    topic, partition = more.pop("topic", scene.topic), more.pop("partition", 0)
    wanted = make.FetchPartition(
        partition=partition,
        fetch_offset=offset,
        partition_max_bytes=more.pop("partition_max_bytes", 1 << 20),
        **{
            key: more.pop(key)
            for key in ("current_leader_epoch", "last_fetched_epoch")
            if key in more
        },
    )
    named = {"topic_id": topic} if version >= 13 else {"topic": topic}
    given = {
        "max_wait": make.timeout(0),
        "min_bytes": 0,
        "topics": (make.FetchTopic(**named, partitions=(wanted,)),),
        "forgotten_topics_data": (),
        **more,
    }
    return scene.ask(label, "Fetch", version, **given)


def list_offsets(scene: Scene, label: str, time_ms: int, **more: Any) -> None:
    """Look up an offset in partition 0 of the scene's topic."""
    version = more.pop("version", 8)
    make = parts("ListOffsets", version)
    topic, partition = more.pop("topic", scene.topic), more.pop("partition", 0)
    wanted = make.ListOffsetsPartition(
        partition_index=partition, timestamp=time_ms, current_leader_epoch=more.pop("epoch", -1)
    )
    scene.ask(
        label,
        "ListOffsets",
        version,
        replica_id=-1,
        isolation_level=0,
        timeout=make.timeout(30_000),
        topics=(make.ListOffsetsTopic(name=topic, partitions=(wanted,)),),
        **more,
    )
