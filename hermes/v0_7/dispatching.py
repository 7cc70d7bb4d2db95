"""Which module carries out which request of 0.7's protocol, and of Hermes' own beside it.

`Broker.serve` takes a request value and returns its `Outcome` (outcomes.py). `append_run` is the
short way for runs of plain produce requests, where a broker's time goes.

Everything here runs in the reactor's thread and never waits: checks that expand compressed data,
and whatever has to read from a disk, run in worker threads.

Source of the outcomes: Kafka 0.7.2 as recorded in tests/vectors; docs/wire-protocol.md for the
requests that are Hermes' own.
"""

from collections.abc import Callable
from typing import Any

from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.coordination.listeners import ListenerNode
from hermes.protocol import (
    AcknowledgedProduceRequest,
    AlterTopicRequest,
    AppendTimesRequest,
    AuthenticateRequest,
    BoundaryRequest,
    ClusterBrokersRequest,
    ClusterIdRequest,
    CoordinationRequest,
    CreateTopicRequest,
    DeleteTopicRequest,
    DescribePartitionsRequest,
    DescribeSettingsRequest,
    ErrorCode,
    FetchRequest,
    LongProduce,
    LongRequest,
    MetadataRequest,
    MirroredProduceRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    PlainAcknowledgedProduce,
    ProduceRequest,
    ProduceRun,
    RecentLogLinesRequest,
    RecordFetchRequest,
    RecordProduceRequest,
    ReloadConfigRequest,
    SourcePositionsRequest,
    UnsupportedRequest,
    WaitingFetchRequest,
    encode_cluster_brokers_response,
    encode_coordination_response,
    encode_error_response,
    encode_refusal,
)
from hermes.server.clients import UNKNOWN_CLIENT, Client
from hermes.server.metrics import RequestKind
from hermes.server.outcomes import DeferredResponse, Outcome, as_result
from hermes.v0_7.describing import Descriptions
from hermes.v0_7.fetching import Fetches
from hermes.v0_7.long_polls import LongPolls
from hermes.v0_7.lookups import Lookups
from hermes.v0_7.mirroring import Mirroring
from hermes.v0_7.producing import Produces
from hermes.v0_7.record_produces import RecordProduces
from hermes.v0_7.topic_requests import TopicRequests

#: Of requests that move messages the type, as `KINDS` has it. A long fetch counts as other.
_KINDS: dict[type, str] = {
    ProduceRequest: "produce",
    MultiProduceRequest: "multiproduce",
    LongProduce: "multiproduce",
    AcknowledgedProduceRequest: "acknowledged_produce",
    PlainAcknowledgedProduce: "acknowledged_produce",
    MirroredProduceRequest: "mirrored_produce",
    FetchRequest: "fetch",
    MultiFetchRequest: "multifetch",
    WaitingFetchRequest: "waiting_fetch",
    RecordFetchRequest: "waiting_fetch",
    RecordProduceRequest: "acknowledged_produce",
}


def _tell_nobody(_: ListenerNode) -> bytes:
    return encode_cluster_brokers_response([])


class Broker:
    """Decides what requests do.

    Args:
        coordination_address: tells where clients find it; see `Coordination.address_for_clients`.
        tell_brokers: answers who asks for the brokers of the cluster; see `Neighbours.tell`.

    Attributes:
        append_run: `Produces.append_run`; another function while there are access rules, which a
            reload may change.
    """

    def __init__(
        self,
        shared: Shared,
        cluster: Cluster,
        coordination_address: Callable[[], str] = lambda: "",
        tell_brokers: Callable[[ListenerNode], Outcome] = _tell_nobody,
    ) -> None:
        self._shared = shared
        self.topics = shared.topics
        self.metrics = shared.metrics
        self.scheduler = shared.scheduler
        self.large_responses = shared.large_responses
        self._coordination_address = coordination_address
        self._tell_brokers = tell_brokers
        self.produces = Produces(shared, cluster)
        self.record_produces = RecordProduces(shared, cluster)
        self._settings_changed()
        shared.settings.on_change(self._settings_changed)
        self.fetches = Fetches(shared)
        self.waiting = shared.waiting
        self._descriptions = Descriptions(shared, cluster.topics)
        lookups = Lookups(shared)
        self.mirroring = Mirroring(shared, self.produces, self.record_produces, cluster.cluster_id)
        produces, changes = self.produces, TopicRequests(cluster)
        polls = LongPolls(shared, self.fetches)
        # What may have to say who asks.
        self._serve_client: dict[type, Callable[[Any, Client], Outcome]] = {
            ProduceRun: self._append_run,
            ProduceRequest: lambda request, who: produces.unacknowledged((request,), who),
            MultiProduceRequest: lambda request, who: produces.unacknowledged(
                request.produces, who
            ),
            AcknowledgedProduceRequest: produces.acknowledged,
            PlainAcknowledgedProduce: produces.plain,
            LongProduce: produces.long,
            MirroredProduceRequest: self.mirroring.produce,
            CreateTopicRequest: changes.create,
            AlterTopicRequest: changes.alter,
            ReloadConfigRequest: changes.reload,
            DeleteTopicRequest: changes.delete,
            ClusterBrokersRequest: lambda _, who: self._tell_brokers(who.listener),
            FetchRequest: self.fetches.fetch,
            MultiFetchRequest: self.fetches.multifetch,
            WaitingFetchRequest: polls.fetch,
            RecordFetchRequest: polls.fetch,
            RecordProduceRequest: self.record_produces.acknowledged,
            MetadataRequest: self._descriptions.metadata,
            LongRequest: self._long,
        }
        self._serve: dict[type, Callable[[Any], Outcome]] = {
            OffsetsRequest: lookups.offsets,
            BoundaryRequest: lookups.boundary,
            AppendTimesRequest: lookups.append_times,
            DescribePartitionsRequest: lookups.partitions,
            DescribeSettingsRequest: self._descriptions.settings,
            RecentLogLinesRequest: self._descriptions.log_lines,
            SourcePositionsRequest: self.mirroring.positions,
            ClusterIdRequest: self.mirroring.tell_cluster_id,
            CoordinationRequest: self._coordination,
            AuthenticateRequest: self._take_no_user,
            UnsupportedRequest: lambda _: encode_error_response(ErrorCode.UNSUPPORTED_VERSION),
        }

    def kind_of(self, request: Any) -> RequestKind:
        name = _KINDS.get(type(request), "other")
        if name == "multiproduce" and getattr(request, "acks", None) is not None:
            name = "acknowledged_produce"
        return self.metrics.requests[name]

    def serve(self, request: Any, client: Client = UNKNOWN_CLIENT) -> Outcome:
        """Do what a request asks; the response, None when there is none, or a `DeferredResponse`.

        Raises CloseConnection: close the connection without a response; nothing more was done.
        """
        if self._refuses:
            refused = self._shared.refusals.answer_to(request, client)
            if refused is not None:
                return refused
        kind = type(request)
        serve = self._serve_client.get(kind)
        return self._serve[kind](request) if serve is None else serve(request, client)

    def _settings_changed(self) -> None:
        self._refuses = self._shared.refusals.is_on
        produces = self.produces
        self.append_run = produces.append_permitted_run if self._refuses else produces.append_run

    def _take_no_user(self, _: AuthenticateRequest) -> bytes:
        """Whoever gets here need not say who it is, or has done so."""
        reason = "this listener takes no users with passwords, or knows already who asks"
        return encode_refusal(ErrorCode.UNSUPPORTED_VERSION, reason)

    def _append_run(self, run: ProduceRun, client: Client) -> None:
        self.append_run(run, client)

    def _coordination(self, _: CoordinationRequest) -> bytes:
        return encode_coordination_response(self._coordination_address())

    def _long(self, request: LongRequest, client: Client) -> DeferredResponse:
        """Serve a request of very many entries that appends nothing."""
        # Decoded it holds twenty times what its bytes do, and its response is large: so it is
        # decoded (in a thread) when there is room, and answered before the next one is decoded.

        def serve(decoded: Any) -> Any:
            if isinstance(decoded, MultiFetchRequest):
                return self.fetches.respond_to_multifetch(decoded, client)
            if isinstance(decoded, MetadataRequest):
                return self._descriptions.describe(decoded, client)
            return self.serve(decoded, client)  # a fetch that waits does not keep others waiting

        compute, in_thread = self.large_responses.compute, self._shared.in_thread
        served = self.large_responses.make(
            lambda: compute(in_thread, request.decode).addCallback(serve)
        ).addCallback(as_result)
        return DeferredResponse(served, cancellable=True, request_bytes=len(request.frame))
