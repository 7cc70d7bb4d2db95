"""Requests of Kafka's protocol as bytes, made beforehand with `kio`."""

import socket
from datetime import timedelta
from io import BytesIO
from typing import Any

from hermes.protocol.kio_messages import import_messages
from hermes.protocol.records import Record, encode_batch

__all__ = [
    "ask",
    "commit_frame",
    "consumer_heartbeat_frame",
    "consumer_join",
    "exchange",
    "fetch_error_at",
    "fetch_frame",
    "heartbeat_frame",
    "join",
    "metadata_frame",
    "produce_error_at",
    "produce_frame",
    "receive",
    "session_of",
]

_CLIENT = "bench"
_CORRELATION = 7
_TIMEOUT_MS = 30_000


def _milliseconds(value: int) -> Any:
    from kio.static.primitive import i32Timedelta

    return i32Timedelta.parse(timedelta(milliseconds=value))


def _encode(message: Any, *, kind: Any) -> bytes:
    from kio.serial import entity_writer

    buffer, header = BytesIO(), kind.__header_schema__
    values = {
        "request_api_key": kind.__api_key__,
        "request_api_version": kind.__version__,
        "correlation_id": _CORRELATION,
        "client_id": _CLIENT,
    }
    entity_writer(header)(buffer, header(**values))
    entity_writer(kind)(buffer, message)
    body = buffer.getvalue()
    return len(body).to_bytes(4) + body


def produce_frame(
    topic: str, values: list[bytes], *, acks: int, partition: int = 0, timestamp_ms: int = 0
) -> bytes:
    """Produce, version 9: one batch."""
    made, _ = import_messages("Produce", 9)
    records = [Record(number, timestamp_ms, None, value) for number, value in enumerate(values)]
    data = made.PartitionProduceData(index=partition, records=encode_batch(records))
    request = made.ProduceRequest(
        acks=acks,
        timeout=_milliseconds(_TIMEOUT_MS),
        transactional_id=None,
        topic_data=(made.TopicProduceData(name=topic, partition_data=(data,)),),
    )
    return _encode(request, kind=made.ProduceRequest)


def produce_error_at(topic: str) -> int:
    """Where the response to `produce_frame` has its error code, counted from its size on.

    Before it: sizes (4), correlation (4), tags (1), counts (1 and 1), the topic's length (1) and
    name, the partition (4). Behind it: the base offset (8).
    """
    return 16 + len(topic)


def fetch_error_at(topic: str) -> int:
    """Likewise of `fetch_frame`; it has throttle time, error and session id (10) besides."""
    return 26 + len(topic)


def fetch_frame(
    topic: str, *offsets: int, max_wait_ms: int, session: int = 0, epoch: int = -1
) -> bytes:
    """Fetch, version 12: at least one byte, up to a megabyte of each of the first partitions."""
    made, _ = import_messages("Fetch", 12)
    partitions = [
        made.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        for number, offset in enumerate(offsets)
    ]
    request = made.FetchRequest(
        max_wait=_milliseconds(max_wait_ms),
        min_bytes=1,
        session_id=session,
        session_epoch=epoch,
        topics=(made.FetchTopic(topic=topic, partitions=tuple(partitions)),) if partitions else (),
        forgotten_topics_data=(),
    )
    return _encode(request, kind=made.FetchRequest)


def session_of(answer: bytes) -> int:
    """The session that a Fetch response, version 12, belongs to."""
    return int.from_bytes(answer[11:15])


def metadata_frame(topic: str) -> bytes:
    """Metadata, version 12, of one topic."""
    made, _ = import_messages("Metadata", 12)
    request = made.MetadataRequest(
        topics=(made.MetadataRequestTopic(name=topic, topic_id=None),),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    return _encode(request, kind=made.MetadataRequest)


def join(connection: socket.socket, group: str) -> tuple[str, int]:
    """Become the one member of a classic group.

    Returns:
        The member's id, and the group's generation.
    """
    made, _ = import_messages("JoinGroup", 5)
    asked = {
        "group_id": group,
        "session_timeout": _milliseconds(1_800_000),
        "rebalance_timeout": _milliseconds(60_000),
        "protocol_type": "consumer",
        "protocols": (made.JoinGroupRequestProtocol(name="range", metadata=b""),),
    }
    member = ask(connection, made.JoinGroupRequest(member_id="", **asked)).member_id
    joined = ask(connection, made.JoinGroupRequest(member_id=member, **asked))
    sync, _ = import_messages("SyncGroup", 5)
    share = sync.SyncGroupRequestAssignment(member_id=member, assignment=b"")
    answer = ask(
        connection,
        sync.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=member,
            protocol_type="consumer",
            protocol_name="range",
            assignments=(share,),
        ),
    )
    if answer.error_code:
        raise ConnectionError(f"the broker answered SyncGroup with {answer.error_code!r}")
    return member, joined.generation_id


def heartbeat_frame(group: str, member: str, generation: int) -> bytes:
    """Heartbeat, version 4."""
    made, _ = import_messages("Heartbeat", 4)
    request = made.HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
    return _encode(request, kind=made.HeartbeatRequest)


def consumer_join(connection: socket.socket, topic: str) -> tuple[str, int]:
    """Become the one member of the consumer group (KIP-848) with the topic's name, and have it all.

    Returns:
        The member's id and epoch.
    """
    made, _ = import_messages("ConsumerGroupHeartbeat", 1)
    asked = {
        "group_id": topic,
        "member_id": "bench-member",
        "rebalance_timeout": _milliseconds(60_000),
        "subscribed_topic_regex": None,
    }
    kind = made.ConsumerGroupHeartbeatRequest
    joins = kind(member_epoch=0, subscribed_topic_names=(topic,), topic_partitions=(), **asked)
    answer = ask(connection, joins)
    if answer.error_code:
        raise ConnectionError(f"the broker answered a heartbeat with {answer.error_code!r}")
    owned = tuple(
        made.TopicPartitions(topic_id=each.topic_id, partitions=each.partitions)
        for each in answer.assignment.topic_partitions
    )
    has = kind(member_epoch=answer.member_epoch, topic_partitions=owned, **asked)
    return answer.member_id, ask(connection, has).member_epoch


def consumer_heartbeat_frame(group: str, member: str, epoch: int) -> bytes:
    """ConsumerGroupHeartbeat, version 1, of a member with nothing to tell."""
    made, _ = import_messages("ConsumerGroupHeartbeat", 1)
    request = made.ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        subscribed_topic_names=None,
        subscribed_topic_regex=None,
        topic_partitions=None,
    )
    return _encode(request, kind=made.ConsumerGroupHeartbeatRequest)


def commit_frame(topic: str, member: str, generation: int) -> bytes:
    """OffsetCommit, version 8, of partition 0, for the group with the topic's name."""
    made, _ = import_messages("OffsetCommit", 8)
    partition = made.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = made.OffsetCommitRequest(
        group_id=topic,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=(made.OffsetCommitRequestTopic(name=topic, partitions=(partition,)),),
    )
    return _encode(request, kind=made.OffsetCommitRequest)


def ask(connection: socket.socket, message: Any) -> Any:
    """Send a request of kio's, and decode the response."""
    from kio.serial import entity_reader

    kind = type(message)
    name = kind.__name__.removesuffix("Request")
    _, made = import_messages(name, kind.__version__)
    response = getattr(made, f"{name}Response")
    answer = exchange(connection, _encode(message, kind=kind))
    _, position = entity_reader(response.__header_schema__)(answer, 0)
    entity, _ = entity_reader(response)(answer, position)
    return entity


def exchange(connection: socket.socket, frame: bytes) -> bytes:
    """Send a request, and wait for its response, without its size."""
    connection.sendall(frame)
    return receive(connection)


def receive(connection: socket.socket) -> bytes:
    """Wait for a response; without its size."""
    data = bytearray()
    while len(data) < 4 or len(data) < 4 + int.from_bytes(data[:4]):
        received = connection.recv(1 << 16)
        if not received:
            raise ConnectionError("the server closed the connection")
        data += received
    return bytes(data[4:])
