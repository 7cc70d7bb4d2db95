"""Operations on a broker as generators that yield requests and receive responses: sans-I/O.

Knows no socket, no clock and no thread: a driver performs each step (blocking in `connection`,
awaiting in `hermes.aio`) and sends the outcome in, so that all kinds of clients share one
implementation. A step is an `Exchange` (send a request, decode its response) or a `Pause`. An
exception of a step is thrown in; most conversations let it propagate.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, NamedTuple, ParamSpec, TypeAlias, TypeVar

from hermes.client.arguments import (
    check_number,
    check_partition,
    check_time,
    check_topic,
    check_topics,
)
from hermes.config.kinds import MAX_PARTITIONS
from hermes.errors import (
    BrokerError,
    BrokerNotReachedError,
    BrokerUnavailableError,
    HermesError,
    NotAuthenticatedError,
    NotAuthorizedError,
    RemoteProtocolError,
    UnsupportedRequestVersionError,
)
from hermes.protocol import (
    LATEST,
    REQUEST_VERSIONS,
    BoundaryRequest,
    BrokerMetadata,
    Buffer,
    ClusterBroker,
    ClusterBrokersRequest,
    ClusterIdRequest,
    CoordinationRequest,
    DeleteTopicRequest,
    ErrorCode,
    MetadataRequest,
    OffsetsRequest,
    decode_boundary_response,
    decode_cluster_brokers_response,
    decode_cluster_id_response,
    decode_coordination_response,
    decode_error_response,
    decode_metadata_response,
    decode_offsets_response,
    error_for,
)
from hermes.protocol.protocol_detection import (
    KAFKA_PROBE,
    ZOOKEEPER_PROBE,
    Spoken,
    is_kafka_answer,
    not_a_broker,
)
from hermes.security import PLAIN, ClientSecurity

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")

#: The request types of Kafka 0.7 with the version of each.
KAFKA_07_REQUESTS: Final[Mapping[int, int]] = dict.fromkeys(range(5), 0)

#: How long whoever hangs up may take to say who it is.
PROBE_SECONDS: Final = 2.0

# A topic to ask about when any answer will do. Asking creates nothing.
_PROBE_TOPIC: Final = "hermes-probe"


@dataclass(frozen=True, slots=True)
class Exchange(Generic[T]):
    """One request and its answer.

    Attributes:
        request: the encoded request, size prefix included.
        decode: turns the response's body into the conversation's value, which holds no view of it.
        repeatable: whether a driver may send it again over a new connection when the old one
            breaks: true for whatever changes nothing on the broker.
        extra_seconds: how long the broker may wait on purpose, on top of the driver's timeout.
        changes: whether it changes something, so that nothing may overtake it, not even when its
            answer is late.
    """

    request: bytes
    decode: Callable[[Buffer], T]
    repeatable: bool = True
    extra_seconds: float = 0.0
    changes: bool = False


@dataclass(frozen=True, slots=True)
class Pause:
    """Do nothing for so many seconds, above 0."""

    seconds: float


Step: TypeAlias = Exchange[Any] | Pause
Conversation: TypeAlias = Generator[Step, Any, R]


@dataclass(frozen=True, slots=True)
class Question(Generic[P, R]):
    """Begins conversations that need a request which not every broker knows.

    `Channel.ask` requires that first. Whoever calls a question, and runs what it returns, decides
    for itself whether the broker can answer.
    """

    request_type: int
    purpose: str
    begin: Callable[P, Conversation[R]]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Conversation[R]:
        return self.begin(*args, **kwargs)


def needs(
    request_type: int, purpose: str
) -> Callable[[Callable[P, Conversation[R]]], Question[P, R]]:
    """Make a conversation a `Question`; see `BrokerVersions.require`."""

    def decorate(begin: Callable[P, Conversation[R]]) -> Question[P, R]:
        return Question(request_type, purpose, begin)

    return decorate


def named(topic: str, partition: int) -> str:
    """As errors show it: the topic alone where the broker was to choose a partition."""
    return f"topic {topic!r}" + (f" partition {partition}" if partition >= 0 else "")


class Refused(NamedTuple):
    """Explains a broker's refusals: a code on the wire says neither where nor who."""

    address: str = "the broker"
    security: ClientSecurity = PLAIN

    def explain(self, error: HermesError) -> HermesError:
        return self.explain_code(error) if isinstance(error, BrokerError) else error

    def explain_code(self, error: BrokerError) -> BrokerError:
        whom = self.security.whom
        if type(error) is NotAuthorizedError:
            return NotAuthorizedError(
                f"{error}. {self.address} takes this client for {whom}; ask who keeps its rules "
                "(access in broker.yaml)"
            )
        if type(error) is NotAuthenticatedError and self.security.user is None:
            return NotAuthenticatedError(
                f"{error}. To {self.address} this client is {whom}: set user and password"
            )
        return error


class BrokerVersions:
    """Which requests one broker answers: asked for when that first matters, then remembered."""

    def __init__(self, supports_hermes_requests: bool | None) -> None:
        self.has_answered = False  # or was asked who it is
        self._known: Mapping[int, int] | None = None
        if supports_hermes_requests is not None:
            known = dict(REQUEST_VERSIONS)
            self._known = known if supports_hermes_requests else KAFKA_07_REQUESTS

    def learn(self) -> Conversation[Mapping[int, int]]:
        """Learn the highest version of each request, by its type.

        A broker of Kafka 0.7 closes the connection on a type that it doesn't know. So does any that
        is being stopped: only one that closes twice and answers in between counts as a 0.7.
        """
        if self._known is None:
            self._known = yield from _ask_versions()
        return self._known

    def require(self, request_type: int, purpose: str) -> Conversation[None]:
        """Refuse with UnsupportedRequestVersionError what the broker can't do, before asking it."""
        versions = yield from self.learn()
        if request_type not in versions:
            raise UnsupportedRequestVersionError(
                f"{purpose} is beyond this broker: it does not know the request "
                f"(type {request_type}), as none of Kafka 0.7 does"
            )

    def who_is_it(
        self, address: str, step: Step | None, error: HermesError
    ) -> Sequence[Exchange[None]]:
        """What to ask whoever hangs up and has never answered; once, and after no change.

        Each may raise a RemoteProtocolError that says whose port this is; nothing else counts.
        """
        if self.has_answered or type(error) is not BrokerUnavailableError:
            return ()
        if not (error.closes_upon_all or (isinstance(step, Exchange) and step.repeatable)):
            return ()
        self.has_answered = True

        def decode_kafka(body: Buffer) -> None:
            if is_kafka_answer(body):
                raise RemoteProtocolError(f"{address} {not_a_broker(Spoken.KAFKA)}")

        return (
            Exchange(KAFKA_PROBE, decode_kafka, repeatable=False),
            Exchange(ZOOKEEPER_PROBE, lambda _: None, repeatable=False),
        )


def _ask_versions() -> Conversation[Mapping[int, int]]:
    ask: Exchange[BrokerMetadata] = Exchange(
        MetadataRequest(()).encode(), _decode_known, repeatable=False
    )
    try:
        answer = yield ask
    except BrokerUnavailableError:
        try:
            yield from barrier()
        except BrokerNotReachedError:
            raise
        except BrokerUnavailableError as error:
            refusal = BrokerUnavailableError(
                f"{error}. It closes whatever is asked: does this port want TLS (tls_ca) or a user?"
            )
            refusal.closes_upon_all = True
            raise refusal from error
        try:
            answer = yield ask
        except BrokerUnavailableError:
            return KAFKA_07_REQUESTS
    return dict(answer.request_versions)


def barrier() -> Conversation[None]:
    """Get a response, which proves that everything sent before was read.

    Works with every broker: requests of a connection are carried out in order, and 0.7 answers
    this one too. Not repeatable, since on a new connection it would prove nothing.
    """
    request = OffsetsRequest(_PROBE_TOPIC, 0, LATEST, 0)
    yield Exchange(request.encode(), decode_offsets_response, repeatable=False)


def offsets_before(
    topic: str, partition: int, time_ms: int, max_offsets: int
) -> Conversation[list[int]]:
    check_partition(topic, partition)
    check_time(time_ms)
    check_number("max_offsets", max_offsets)
    request = OffsetsRequest(topic, partition, time_ms, max_offsets)
    decode = partial(decode_offsets_response, detail=named(topic, partition))
    offsets: list[int] = yield Exchange(request.encode(), decode)
    return offsets


@needs(MetadataRequest.TYPE, "metadata")
def metadata(topics: Sequence[str] | None) -> Conversation[BrokerMetadata]:
    check_topics(topics)
    request = MetadataRequest(None if topics is None else tuple(topics))
    decode = partial(_decode_metadata, request)
    answer: BrokerMetadata = yield Exchange(request.encode(), decode)
    return answer


def _decode_known(body: Buffer) -> BrokerMetadata:
    """Decode metadata, but not the mere list of requests that strangers are told."""
    answer = decode_metadata_response(body)
    if answer.broker_id < 0:
        raise error_for(ErrorCode.NOT_AUTHENTICATED)
    return answer


def _decode_metadata(request: MetadataRequest, body: Buffer) -> BrokerMetadata:
    answer = _decode_known(body)
    described = [each.topic for each in answer.topics]
    if request.topics is not None and set(described) != set(request.topics):
        raise RemoteProtocolError(
            f"asked for {len(request.topics)} topics, the broker described {len(described)} others"
        )
    for topic in answer.topics:
        if topic.partition_count > MAX_PARTITIONS:
            raise RemoteProtocolError(
                f"the broker claims {topic.partition_count} partitions of topic {topic.topic!r}; "
                f"up to {MAX_PARTITIONS} are believed"
            )
    return answer


@needs(BoundaryRequest.TYPE, "finding a boundary between messages")
def boundary_before(topic: str, partition: int, offset: int) -> Conversation[int]:
    check_partition(topic, partition)
    check_number("offset", offset)
    request = BoundaryRequest(topic, partition, offset)
    decode = partial(decode_boundary_response, detail=named(topic, partition))
    boundary: int = yield Exchange(request.encode(), decode)
    return boundary


@needs(CoordinationRequest.TYPE, "telling where coordination is")
def coordination() -> Conversation[str]:
    connect: str = yield Exchange(CoordinationRequest().encode(), decode_coordination_response)
    return connect


@needs(ClusterIdRequest.TYPE, "telling the cluster's id")
def cluster_id() -> Conversation[str]:
    answer: str = yield Exchange(ClusterIdRequest().encode(), decode_cluster_id_response)
    return answer


@needs(ClusterBrokersRequest.TYPE, "telling the cluster's brokers")
def cluster_brokers() -> Conversation[list[ClusterBroker]]:
    answer: list[ClusterBroker] = yield Exchange(
        ClusterBrokersRequest().encode(), decode_cluster_brokers_response
    )
    return answer


@needs(DeleteTopicRequest.TYPE, "deleting a topic")
def delete_topic(topic: str) -> Conversation[None]:
    """Not repeated: the second time it is unknown."""
    check_topic(topic)
    decode = partial(decode_error_response, detail=f"topic {topic!r}")
    yield Exchange(DeleteTopicRequest(topic).encode(), decode, repeatable=False)
