"""What each request needs permission for, and how a refusal is told: answer, log line, metric.

Requests of many entries are judged entry by entry, where they are served; the others here, before.
A 0.7 client hears nothing of codes that it doesn't know: fetches are answered as for a partition
that doesn't exist. Nothing in an answer says whether what was asked for exists.

Source of the needs: docs/security.md has them as a table.
"""

from collections.abc import Callable
from typing import Any, Final

from hermes.errors import NotAuthorizedError
from hermes.limited_log import LimitedLog
from hermes.protocol import (
    AlterTopicRequest,
    AppendTimesRequest,
    BoundaryRequest,
    ClusterBrokersRequest,
    ClusterIdRequest,
    CoordinationRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    ErrorCode,
    OffsetsRequest,
    RecentLogLinesRequest,
    ReloadConfigRequest,
    SourcePositionsRequest,
    encode_boundary_response,
    encode_error_response,
    encode_offsets_refusal,
    encode_refusal,
)
from hermes.quoting import quoted
from hermes.security import CLUSTER, Operation, Resource, action_text
from hermes.server.authorization import Authorization
from hermes.server.clients import Client
from hermes.server.metrics import Metrics, reason_of

_Need = tuple[Operation, Resource]

# Looking a member of an enumeration up takes as long as finding out what it may do.
_PRODUCE: Final = Operation.PRODUCE


def _on_topic(operation: Operation) -> Callable[[Any], _Need]:
    return lambda request: (operation, Resource.topic(request.topic))


def _on_cluster(operation: Operation) -> Callable[[Any], _Need]:
    return lambda request: (operation, CLUSTER)


def _settings(request: DescribeSettingsRequest) -> _Need:
    if request.topic:
        return Operation.DESCRIBE, Resource.topic(request.topic)
    return Operation.ADMIN, CLUSTER


def _code(client: Client, error: NotAuthorizedError) -> bytes:
    return encode_error_response(ErrorCode.NOT_AUTHORIZED)


def _code_and_reason(client: Client, error: NotAuthorizedError) -> bytes:
    return encode_refusal(ErrorCode.NOT_AUTHORIZED, str(error))


def _boundary(client: Client, error: NotAuthorizedError) -> bytes:
    return encode_boundary_response(ErrorCode.NOT_AUTHORIZED, -1)


def _offsets(client: Client, error: NotAuthorizedError) -> bytes:
    return encode_offsets_refusal(fetch_code(client))


#: Requests that are refused as a whole: what each needs, and the answer.
_NEEDS: Final[
    dict[type, tuple[Callable[[Any], _Need], Callable[[Client, NotAuthorizedError], bytes]]]
] = {
    OffsetsRequest: (_on_topic(Operation.DESCRIBE), _offsets),
    BoundaryRequest: (_on_topic(Operation.DESCRIBE), _boundary),
    AppendTimesRequest: (_on_topic(Operation.DESCRIBE), _code),
    SourcePositionsRequest: (_on_topic(Operation.DESCRIBE), _code),
    DescribePartitionsRequest: (_on_topic(Operation.DESCRIBE), _code_and_reason),
    DescribeSettingsRequest: (_settings, _code_and_reason),
    CreateTopicRequest: (_on_topic(Operation.CREATE), _code_and_reason),
    AlterTopicRequest: (_on_topic(Operation.ADMIN), _code_and_reason),
    DeleteTopicRequest: (_on_topic(Operation.DELETE), _code),
    ReloadConfigRequest: (_on_cluster(Operation.ADMIN), _code_and_reason),
    RecentLogLinesRequest: (_on_cluster(Operation.ADMIN), _code_and_reason),
}


#: Requests for clients that any rule allows anything.
_FOR_MEMBERS: Final = (ClusterBrokersRequest, ClusterIdRequest, CoordinationRequest)


def fetch_code(client: Client) -> ErrorCode:
    """The code of a refused 0.7 request."""
    return ErrorCode.NOT_AUTHORIZED if client.knows_own_codes else ErrorCode.WRONG_PARTITION


class Refusals:
    """Refuses what isn't permitted. Lives in the reactor's thread."""

    def __init__(self, authorization: Authorization, lines: LimitedLog, metrics: Metrics) -> None:
        self.authorization = authorization
        self._log = lines
        self._metrics = metrics
        self.permits = authorization.permits
        self.permits_topic = authorization.permits_topic
        self.stamp = authorization.stamp

    @property
    def is_on(self) -> bool:
        return self.authorization.is_on

    def answer_to(self, request: Any, client: Client) -> bytes | None:
        """Judge a request that is refused as a whole; None: it may be served."""
        found = _NEEDS.get(type(request))
        if found is None:
            return self._answer_to_stranger(client) if type(request) in _FOR_MEMBERS else None
        need, answer = found
        operation, resource = need(request)
        error = self.of(client, operation, resource, "other")
        return None if error is None else answer(client, error)

    def _answer_to_stranger(self, client: Client) -> bytes | None:
        if self.authorization.belongs(client):
            return None
        error = NotAuthorizedError(f"no rule allows {quoted(client.principal)} anything")
        self.report(client, error, "other")
        return encode_error_response(ErrorCode.NOT_AUTHORIZED)

    def of(
        self, client: Client, operation: Operation, resource: Resource, kind: str
    ) -> NotAuthorizedError | None:
        """Log, count (as `kind`) and return the error of what isn't permitted; None if it is."""
        error = self.error_of(client, operation, resource)
        if error is not None:
            self.report(client, error, kind)
        return error

    def error_of(
        self, client: Client, operation: Operation, resource: Resource
    ) -> NotAuthorizedError | None:
        """The same for callers that report it themselves."""
        if self.permits(client, operation, resource):
            return None
        return NotAuthorizedError(
            f"{quoted(client.principal)} may not {action_text(operation, resource)}"
        )

    def produce_error(self, client: Client, topic: str, exists: bool) -> NotAuthorizedError | None:
        """The same for producing to a topic, which creates one that doesn't exist."""
        if not self.permits_topic(client, _PRODUCE, topic):
            return self.error_of(client, _PRODUCE, Resource.topic(topic))
        return None if exists else self.create_error(client, topic)

    def create_error(self, client: Client, topic: str) -> NotAuthorizedError | None:
        return self.error_of(client, Operation.CREATE, Resource.topic(topic))

    def report(self, client: Client, error: NotAuthorizedError, kind: str) -> None:
        """Count a refusal that is answered, and log it within limits."""
        self._metrics.refuse(kind, reason_of(error))
        self._log.warn("not authorized", "refused {client}: {error}", client=client, error=error)
