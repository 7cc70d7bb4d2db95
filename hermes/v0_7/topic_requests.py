"""Requests of Hermes' own clients that change topics and settings: asked of the cluster."""

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.cluster.cluster import Cluster
from hermes.errors import HermesError
from hermes.protocol import (
    AlterTopicRequest,
    ConfigChange,
    CreateTopicRequest,
    DeleteTopicRequest,
    ErrorCode,
    ReloadConfigRequest,
    code_for,
    encode_error_response,
    encode_refusal,
    encode_reload_response,
)
from hermes.server.clients import Client
from hermes.server.outcomes import DeferredResponse


class TopicRequests:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def create(self, request: CreateTopicRequest, client: Client) -> DeferredResponse:
        settings = dict(request.settings)
        return _answered(self._cluster.create_topic(request.topic, settings, client))

    def alter(self, request: AlterTopicRequest, client: Client) -> DeferredResponse:
        return _answered(self._cluster.alter_topic(request, client))

    def reload(self, _: ReloadConfigRequest, client: Client) -> DeferredResponse:
        reloaded = self._cluster.changes.reload(str(client))
        return _answered(
            reloaded,
            lambda changes: encode_reload_response([ConfigChange(*each) for each in changes]),
        )

    def delete(self, request: DeleteTopicRequest, client: Client) -> DeferredResponse:
        def refused(failure: Failure) -> bytes:
            return encode_error_response(code_for(_error_of(failure)))

        none = encode_error_response(ErrorCode.NONE)
        deleted = self._cluster.delete_topic(request.topic, client)
        return DeferredResponse(deleted.addCallbacks(lambda _: none, refused))


def _answered(
    made: "Deferred[Any]",
    answer: Callable[[Any], bytes] = lambda _: encode_refusal(ErrorCode.NONE),
) -> DeferredResponse:
    def refused(failure: Failure) -> bytes:
        error = _error_of(failure)
        return encode_refusal(code_for(error), str(error))

    return DeferredResponse(made.addCallbacks(answer, refused))


def _error_of(failure: Failure) -> HermesError:
    failure.trap(HermesError)  # type: ignore[no-untyped-call]
    error = failure.value
    assert isinstance(error, HermesError)
    return error
