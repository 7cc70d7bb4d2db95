"""What a broker says of itself: metadata, settings in force, the last lines of its log.

Metadata is made a quantum at a time and within a bound: a topic takes microseconds, and so does
each of its partitions; but there may be ten thousand of both, and a request may name what doesn't
exist 32,767 times.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes._version import __version__
from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.replica_placing import copies_of
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import TopicRegistry, size_of
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.origins import settings_in_force
from hermes.errors import AnswerTooLargeError, HermesError, InvalidTopicError, LocalProtocolError
from hermes.protocol import (
    LONG_ENTRIES,
    REQUEST_VERSIONS,
    BrokerMetadata,
    DescribeSettingsRequest,
    ErrorCode,
    LogLine,
    LogLines,
    MetadataRequest,
    PartitionLeader,
    PartitionMetadata,
    RecentLogLinesRequest,
    SettingDescription,
    check_topic_name,
    code_for,
    encode_copies,
    encode_error_response,
    encode_leaders,
    encode_log_lines_response,
    encode_partitions_metadata,
    encode_refusal,
    encode_settings_response,
    encode_topic_metadata,
    frame,
    metadata_response_header,
)
from hermes.security import Operation, Resource
from hermes.server.clients import UNKNOWN_CLIENT, Client
from hermes.server.fairness import cooperatively
from hermes.server.outcomes import Outcome, cancellable, then
from hermes.storage import Log

#: The largest response: half a million partitions, or sixty thousand topics of the longest names.
MAX_RESPONSE_BYTES = 16 * 1024 * 1024

#: How many partitions are described at a time.
_CHUNK = 256

_PARTITION_BYTES = 28
_LEADER_BYTES = 20


class Descriptions:
    """Lives in the reactor's thread."""

    def __init__(self, shared: Shared, topics: ClusterTopics) -> None:
        self._shared = shared
        self._cluster_topics = topics
        self._directory = shared.directory
        self._topics = shared.topics
        self._scheduler = shared.scheduler
        self._large_responses = shared.large_responses

    def metadata(self, request: MetadataRequest, client: Client) -> Outcome:
        if self._is_large(request):
            return cancellable(self._large_responses.make(self.describe, request, client))
        return cancellable(self.describe(request, client))

    def settings(self, request: DescribeSettingsRequest) -> bytes:
        topic = request.topic
        if topic and not self._topics.exists(topic):
            return encode_refusal(ErrorCode.UNKNOWN_TOPIC)
        log_format = self._topics.format(topic) if topic else ""
        described = settings_in_force(self._shared.config, topic, log_format)
        return encode_settings_response([SettingDescription(*each) for each in described])

    def log_lines(self, request: RecentLogLinesRequest) -> Outcome:
        return cancellable(self._large_responses.make(self._log_lines, request))

    def _log_lines(self, request: RecentLogLinesRequest) -> bytes:
        recent = self._shared.recent_lines
        if recent is None:
            return encode_log_lines_response(LogLines(0, ()))
        first, lines = recent.lines(request.first, request.max_lines)
        return encode_log_lines_response(LogLines(first, tuple(LogLine(*each) for each in lines)))

    def _is_large(self, request: MetadataRequest) -> bool:
        names, topics = request.topics, self._topics
        if names is None:
            return len(self._directory.logs) > LONG_ENTRIES
        return len(names) > LONG_ENTRIES or sum(map(topics.written_count, names)) > LONG_ENTRIES

    def _broker(self) -> BrokerMetadata:
        config = self._shared.config
        return BrokerMetadata(
            broker_id=config.broker_id,
            version=__version__,
            max_request_bytes=config.max_request_bytes,
            max_message_bytes=config.max_message_bytes,
            default_partitions=config.num_partitions,
            request_versions=REQUEST_VERSIONS,
            topics=(),
        )

    def describe(
        self, request: MetadataRequest, client: Client = UNKNOWN_CLIENT
    ) -> "bytes | Deferred[bytes]":
        """Make the response, whether or not there is room for it.

        What the client may not describe is left out; or answered with a code, if it is named.
        """
        names = self._topics.names() if request.topics is None else request.topics
        unique = list(dict.fromkeys(names))
        description = _Description(
            self._topics,
            self._cluster_topics.get,
            self._shared.partitions.led,
            self._shared.config.max_topic_name_length,
        )
        if self._shared.refusals.is_on:
            describe = Operation.DESCRIBE
            refusals, is_named = self._shared.refusals, request.topics is not None

            def is_shown(name: str) -> bool:
                is_permitted = refusals.permits_topic(client, describe, name)
                if is_named and not is_permitted:
                    refusals.of(client, describe, Resource.topic(name), "other")
                return is_permitted

            description.is_shown, description.names_hidden = is_shown, is_named

        def fill(_: object) -> "list[None] | Deferred[list[None]]":
            return cooperatively(self._scheduler, description.chunks, description.fill)

        def finish(_: object) -> bytes:
            return frame(
                metadata_response_header(self._broker(), description.count),
                *description.parts,
                encode_copies(description.copies),
                encode_leaders(description.leaders),
            )

        try:
            added = cooperatively(self._scheduler, unique, description.add)
            response: bytes | Deferred[bytes] = then(then(added, fill), finish)
        except HermesError as error:
            return _refusal(error)
        if isinstance(response, Deferred):
            response.addErrback(_refused)
        return response


@dataclass(slots=True)
class _Description:
    """The parts of a response: every topic's beginning, and room for its partitions.

    Attributes:
        is_shown: whether a topic is described; None: all are.
        names_hidden: whether the others are there, with an error.
    """

    topics: TopicRegistry
    in_cluster: Callable[[str], ClusterTopic | None]
    led: Callable[[Sequence[Log]], Sequence[Log]]
    max_name_length: int
    is_shown: Callable[[str], bool] | None = None
    names_hidden: bool = False
    count: int = 0
    parts: list[bytes] = field(default_factory=list)
    copies: list[int] = field(default_factory=list)
    leaders: list[Sequence[PartitionLeader]] = field(default_factory=list)
    #: Which part, and of which logs.
    chunks: list[tuple[int, Sequence[Log]]] = field(default_factory=list)
    size_bytes: int = 0

    def add(self, name: str) -> None:
        if self.is_shown is None or self.is_shown(name):
            found = self.in_cluster(name)
            code, count, logs = self._look_up(name, found)
        elif self.names_hidden:
            found, code, count, logs = None, ErrorCode.NOT_AUTHORIZED, 0, ()
        else:
            return
        leaders = _leaders(found)
        is_of_kafka = code == ErrorCode.NONE and (
            bool(leaders) or self.topics.format(name) == FORMAT_KAFKA
        )
        copies = 1 if found is None else min(copies_of(found), default=1)
        self.copies.append(copies if is_of_kafka else 0)
        self.leaders.append(leaders)
        self.count += 1
        beginning = encode_topic_metadata(name, code, count, len(logs))
        self.size_bytes += len(beginning) + 1
        self.size_bytes += _PARTITION_BYTES * len(logs) + _LEADER_BYTES * len(leaders)
        if self.size_bytes > MAX_RESPONSE_BYTES:
            raise AnswerTooLargeError(f"it would be larger than {MAX_RESPONSE_BYTES} bytes")
        self.parts.append(beginning)
        for first in range(0, len(logs), _CHUNK):
            self.chunks.append((len(self.parts), logs[first : first + _CHUNK]))
            self.parts.append(b"")

    def fill(self, chunk: tuple[int, Sequence[Log]]) -> None:
        part, logs = chunk
        self.parts[part] = encode_partitions_metadata(
            [
                PartitionMetadata(log.partition, log.earliest, log.stable_end, size_of(log))
                for log in logs
            ]
        )

    def _look_up(
        self, name: str, found: ClusterTopic | None
    ) -> tuple[ErrorCode, int, Sequence[Log]]:
        try:
            check_topic_name(name, self.max_name_length)
        except InvalidTopicError:
            return ErrorCode.INVALID_TOPIC, 0, ()
        if found is not None and found.copies:  # this broker need not have any
            return ErrorCode.NONE, len(found.partitions), self.led(self.topics.partitions(name))
        code = ErrorCode.NONE if self.topics.exists(name) else ErrorCode.UNKNOWN_TOPIC
        return code, self.topics.partition_count(name), self.topics.partitions(name)


def _leaders(found: ClusterTopic | None) -> list[PartitionLeader]:
    if found is None:
        return []
    return [
        PartitionLeader(number, place.broker_id, state.leader, state.epoch)
        for number, (place, state) in enumerate(zip(found.partitions, found.copies, strict=False))
        if state is not None
    ]


def _refused(failure: Failure) -> bytes:
    failure.trap(HermesError)  # type: ignore[no-untyped-call]
    return _refusal(failure.value)


def _refusal(error: Any) -> bytes:
    if isinstance(error, LocalProtocolError):  # a name that is too long once it is encoded
        return encode_error_response(ErrorCode.INVALID_TOPIC)
    return encode_error_response(code_for(error))
