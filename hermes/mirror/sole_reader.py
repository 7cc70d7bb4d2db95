"""Reads a source without coordination: one process reads all, and only the target knows how far.

It takes the place of the group's membership. Brokers say what topics they have; those of Kafka 0.7
don't, so that they need their ZooKeeper.
"""

import math
import threading
from collections.abc import Callable, Sequence
from typing import Final

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import FetchThread, MakeFetcher
from hermes.client.groups.streams import Claim
from hermes.client.metrics import ConsumerCounters
from hermes.client.simple_consumer import SimpleConsumer
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.coordination.topic_filters import TopicFilter
from hermes.errors import ConfigError, HermesError
from hermes.mirror.figures import Problems
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.source_stream import SourceStream
from hermes.protocol import MetadataRequest

_LOOK_SECONDS: Final = 5.0
_TIMEOUT_SECONDS: Final = 10.0

_Address = tuple[str, int]


class SoleReader:
    """Claims every partition of the brokers that are given.

    Args:
        brokers: all of the source.
        make_claim: called as `SourceClaim` without its first three arguments.

    Attributes:
        addresses: where the brokers are that have answered, by id.
    """

    def __init__(
        self,
        source: str,
        brokers: Sequence[_Address],
        topics: TopicFilter,
        config: ConsumerConfig,
        stream: SourceStream,
        make_claim: Callable[..., SourceClaim],
        make_fetcher: MakeFetcher,
        problems: Problems,
    ) -> None:
        self.addresses: dict[int, _Address] = {}
        self._what = f"source {source}"
        self._brokers = brokers
        self._topics = topics
        self._config = config
        self._stream = stream
        self._make_claim = make_claim
        self._make_fetcher = make_fetcher
        self._problems = problems
        self._lease = Lease(0)
        self._lease.until = math.inf
        self._claims: dict[tuple[str, BrokerPartition], SourceClaim] = {}
        self._fetchers: dict[int, FetchThread] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hermes-{self._what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake_fetchers(self) -> None:
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def partitions(self, topic: str) -> set[BrokerPartition]:
        return {partition for name, partition in list(self._claims) if name == topic}

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        claims = list(self._claims.values())
        self._stream.revoke(claims, lost=True)
        self._stream.replace_claims(remove=claims)
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for fetcher in self._fetchers.values():
            fetcher.join()

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            for address in self._brokers:
                what = "{}, {}:{}".format(self._what, *address)
                try:
                    self._look(address)
                    self._problems.end(what)
                except HermesError as error:
                    self._problems.begin(what, str(error))
            self._stopped.wait(_LOOK_SECONDS)

    def _look(self, address: _Address) -> None:
        settings = self._config.security.settings()
        with SimpleConsumer(*address, timeout_seconds=_TIMEOUT_SECONDS, **settings) as consumer:
            if not consumer.supports(MetadataRequest.TYPE):
                raise ConfigError(
                    "sources",
                    f"{consumer.address} is a Kafka 0.7, which tells neither its topics nor its "
                    "partitions: give zookeeper instead of brokers",
                )
            metadata = consumer.metadata()
        broker_id = metadata.broker_id
        found = [
            (each.topic, BrokerPartition(broker_id, number))
            for each in metadata.topics
            if self._topics.allows(each.topic)
            for number in range(each.partition_count)
        ]
        self.addresses[broker_id] = address
        new = {place: self._claim(place) for place in found if place not in self._claims}
        gone = [
            claim
            for place, claim in self._claims.items()
            if place[1].broker_id == broker_id and place not in found
        ]
        self._claims.update(new)
        for claim in gone:  # the topic was deleted
            del self._claims[claim.topic, claim.partition]
        self._stream.revoke(gone, lost=True)
        self._stream.replace_claims(list(new.values()), gone)
        if broker_id not in self._fetchers:
            self._fetchers[broker_id] = self._make_fetcher(
                broker_id, address, self._config, _commit, self._claims_of, ConsumerCounters()
            )

    def _claim(self, place: tuple[str, BrokerPartition]) -> SourceClaim:
        return self._make_claim(*place, "", self._stream.lock, self._lease)

    def _claims_of(self, broker_id: int) -> tuple[Sequence[Claim], int]:
        claims = list(self._claims.values())
        share = max(1, self._config.prefetch_bytes // max(1, len(claims)))
        return [each for each in claims if each.partition.broker_id == broker_id], share


def _commit(_claim: Claim, _offset: int) -> bool:
    """There is nowhere to store an offset, and nobody else to have the partition."""
    return True
