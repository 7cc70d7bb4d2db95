"""One source: who of the group reads what, where its brokers are, what its topics are.

A source with coordination is shared out among all processes of a mirror, as topics are among the
members of a group. One without is read by a single process, and so is one by Kafka's protocol.
"""

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.membership import GroupMember
from hermes.client.simple_consumer import SimpleConsumer
from hermes.config.kinds import FORMAT_KAFKA
from hermes.config.mirror import MirrorClusterAddress
from hermes.coordination.cluster_view import read_brokers, read_partition_counts, read_partitions
from hermes.coordination.layout import (
    BrokerPartition,
    GroupPaths,
    Subscription,
    make_consumer_id,
    parse_partition,
)
from hermes.coordination.origins import TreeOrigins
from hermes.coordination.sessions import Session
from hermes.coordination.topic_filters import TopicFilter
from hermes.errors import BrokerUnavailableError, HermesError, InvalidNodeError
from hermes.mirror.fetchers import SourceFetcher
from hermes.mirror.figures import Problems
from hermes.mirror.kafka_cluster import KafkaCluster
from hermes.mirror.kafka_fetchers import KafkaFetcher
from hermes.mirror.kafka_origins import KafkaOrigins
from hermes.mirror.kafka_reader import KafkaReader
from hermes.mirror.loop_guard import Origins
from hermes.mirror.sole_reader import SoleReader
from hermes.mirror.source_claim import ClaimContext, SourceClaim
from hermes.mirror.source_stream import SourceStream
from hermes.mirror.target_cluster import cluster_id_of, coordination_of
from hermes.mirror.throttle import BandwidthLimit
from hermes.mirror.whole_source import Reading, WholeSource
from hermes.protocol import DescribeSettingsRequest

_log = logging.getLogger(__name__)

_TIMEOUT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 1.0
_DRAIN_SECONDS: Final = 5.0
_FETCH_BYTES: Final = 1 << 20


class MirrorSource:
    """One source of a mirror. Its queries raise HermesError while they can't be answered.

    Args:
        make_claim: makes a claim: called as `SourceClaim` without its first three arguments.

    Attributes:
        stream: holds the claims.
        session: with its coordination; None without, and before it is connected.
        kafka: the cluster, where it is read by Kafka's protocol.
    """

    def __init__(
        self,
        address: MirrorClusterAddress,
        group: str,
        topics: TopicFilter,
        buffer_bytes: int,
        context: ClaimContext,
        make_claim: Callable[..., SourceClaim],
        problems: Problems,
        throttle: BandwidthLimit,
    ) -> None:
        self.address = address
        self.name = address.name
        self.stream = SourceStream(address.name, context)
        self.session: Session | None = None
        self._group = group
        self._topics = topics
        self._buffer_bytes = buffer_bytes
        self._make_claim = make_claim
        self._problems = problems
        self._throttle = throttle
        self._reader: GroupMember | WholeSource[Any] | None = None
        self.kafka = KafkaCluster(address.kafka, address.security) if address.kafka else None
        self._cluster_id = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"hermes-source-{self.name}", daemon=True
        )

    def start(self) -> None:
        self._thread.start()

    def drain(self) -> None:
        """Fetch nothing more, and let what is on its way arrive, for a while."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join()
        deadline = time.monotonic() + _DRAIN_SECONDS
        claims = self.stream.claims()
        for claim in claims:
            claim.is_ending = True
        for claim in claims:
            if claim.plan is not None:
                self.stream.wait_until_finished(claim, deadline)

    def stop(self) -> None:
        if self._reader is not None:
            self._reader.stop()
        if self.session is not None:
            self.session.stop()
        if self.kafka is not None:
            self.kafka.close()
        self._problems.forget(f"source {self.name}")

    def wake_fetchers(self) -> None:
        reader = self._reader
        if reader is not None:
            reader.wake_fetchers()

    def cluster_id(self) -> str:
        if not self._cluster_id and self.kafka is not None:
            self._cluster_id = self.kafka.cluster_id()
        elif not self._cluster_id:
            self._cluster_id = cluster_id_of(self.session, self.address)
        return self._cluster_id

    def origins(self) -> Origins | None:
        """Where its topics come from; None where nobody keeps that."""
        if self.kafka is not None:
            return KafkaOrigins(self.kafka)
        return None if self.session is None else TreeOrigins(self.session)

    @property
    def keeps_offsets(self) -> bool:
        """Whether the source knows how far this mirror is, where the target doesn't."""
        return self.session is not None or self.kafka is not None

    def partitions(self, topic: str) -> set[BrokerPartition]:
        """The partitions of a topic, also those of brokers that are away."""
        if isinstance(self._reader, WholeSource):
            return self._reader.partitions(topic)
        assert self.session is not None
        found = read_partitions(self.session, topic, _ignore)
        known = {BrokerPartition(b, n) for b, numbers in found.items() for n in numbers}
        parent = GroupPaths(self._group).offsets(topic)
        for name in self.session.children(parent):
            try:
                known.add(parse_partition(f"{parent}/{name}", name))
            except InvalidNodeError as fault:
                _ignore(fault)
        return known

    def holds_records(self, topic: str, broker_id: int) -> bool:
        """Whether a topic is of Kafka's format, of which nothing can be mirrored."""
        if self.session is not None:  # where such a topic isn't, beside those of Kafka 0.7
            old = read_partition_counts(self.session, topic, _ignore)
            return not old and bool(read_partitions(self.session, topic, _ignore))
        settings = self.address.security.settings()
        with SimpleConsumer(
            *self._address(broker_id), timeout_seconds=_TIMEOUT_SECONDS, **settings
        ) as consumer:
            if not consumer.supports(DescribeSettingsRequest.TYPE):
                return False
            described = {each.name: each.value for each in consumer.describe_settings(topic)}
        return described.get("format") == FORMAT_KAFKA

    def is_compacted(self, topic: str) -> bool:
        """Whether compaction may have taken messages of a topic of Kafka's format."""
        assert self.kafka is not None
        try:
            settings = self.kafka.topic_settings(topic)
        except HermesError as error:
            _log.warning("%s: can't tell whether %r is compacted: %s", self.name, topic, error)
            return True
        return any(e.name == "cleanup.policy" and e.value != "delete" for e in settings)

    def offset(self, claim: SourceClaim, time_ms: int) -> int:
        if isinstance(self._reader, KafkaReader):
            return self._reader.offset(claim.topic, claim.partition.partition, time_ms)
        address = self._address(claim.partition.broker_id)
        settings = self.address.security.settings()
        with SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS, **settings) as consumer:
            found = consumer.get_offsets_before(claim.topic, claim.partition.partition, time_ms)
        return found[0] if found else 0

    # -- inside ---------------------------------------------------------------------------------

    def _address(self, broker_id: int) -> tuple[str, int]:
        if isinstance(self._reader, SoleReader):
            return self._reader.addresses[broker_id]
        assert self.session is not None
        brokers = read_brokers(self.session, _ignore)
        node = brokers.get(broker_id)
        if node is None:
            raise BrokerUnavailableError(
                f"broker {broker_id} of source {self.name} is not registered"
            )
        return node.host, node.port

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._join()
            except HermesError as error:
                self._problems.begin(f"source {self.name}", str(error))
                self._stopped.wait(_RETRY_SECONDS)
            else:
                self._problems.end(f"source {self.name}")
                return

    def _join(self) -> None:
        connect = ""
        if self.kafka is None:
            connect = self.address.zookeeper or coordination_of(self.address)
        config = ConsumerConfig(
            group=self._group,
            zookeeper_connect=connect or "none",
            prefetch_bytes=self._buffer_bytes,
            fetch_bytes=_FETCH_BYTES,
            fetch_wait="500ms",
            release_wait=f"{_DRAIN_SECONDS:g}s",
            **self.address.security.settings(),
        )
        kind = SourceFetcher if self.kafka is None else KafkaFetcher
        make_fetcher = partial(kind, self.name, self._problems, self._throttle)
        if not connect:
            reading = Reading(
                self._topics,
                config,
                self.stream,
                self._make_claim,
                make_fetcher,
                self._problems,
            )
            if self.kafka is not None:
                reader: WholeSource[Any] = KafkaReader(self.name, self._group, self.kafka, reading)
            else:
                reader = SoleReader(self.name, self.address.brokers, reading)
            self._reader = reader
            reader.start()
            return
        session = Session(connect, on_change=self._changed, security=self.address.security)
        session.start()
        self.session = session
        now_ms, token = time.time_ns() // 1_000_000, uuid.uuid4().hex[:8]
        membership = GroupMember(
            config,
            make_consumer_id(self._group, socket.gethostname(), now_ms, token),
            session,
            _nothing,
            _nothing,
            make_claim=self._make_claim,
            make_fetcher=make_fetcher,
        )
        self._reader = membership
        try:
            membership.start(Subscription({}, self._topics, 1), [self.stream])
        except HermesError as error:  # it keeps trying
            self._problems.note(f"source {self.name}: {error}")

    def _changed(self) -> None:
        reader = self._reader
        if isinstance(reader, GroupMember):
            reader.wake()


def _nothing(_partitions: Sequence[tuple[str, BrokerPartition]]) -> None:
    pass


def _ignore(fault: InvalidNodeError) -> None:
    _log.debug("%s", fault)
