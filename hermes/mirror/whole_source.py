"""Reads a source as one process that claims all of it, in place of a group's membership.

What there is to claim, and how far it was read, a `KafkaReader` or a `SoleReader` finds out.
"""

import math
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import FetchThread, MakeFetcher
from hermes.client.groups.streams import Claim
from hermes.client.metrics import ConsumerCounters
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.coordination.topic_filters import TopicFilter
from hermes.mirror.figures import Problems
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.source_stream import SourceStream

#: How a reader names a partition.
Place = TypeVar("Place", bound=Hashable)


class Reading(NamedTuple):
    """How a source is read, and who gets it.

    Attributes:
        make_claim: called as `SourceClaim` without its first three arguments.
    """

    topics: TopicFilter
    config: ConsumerConfig
    stream: SourceStream
    make_claim: Callable[..., SourceClaim]
    make_fetcher: MakeFetcher
    problems: Problems


class WholeSource(Generic[Place]):
    """Claims every partition of the topics that are chosen, from a thread of its own."""

    def __init__(self, source: str, reading: Reading) -> None:
        self._what = f"source {source}"
        self._topics = reading.topics
        self._config = reading.config
        self._stream = reading.stream
        self._make_claim = reading.make_claim
        self._make_fetcher = reading.make_fetcher
        self._problems = reading.problems
        self._lease = Lease(0)
        self._lease.until = math.inf
        self._claims: dict[Place, SourceClaim] = {}
        self._fetchers: dict[int, FetchThread] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hermes-{self._what}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wake_fetchers(self) -> None:
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def partitions(self, topic: str) -> set[BrokerPartition]:
        """The partitions of a topic; empty where it isn't known (yet)."""
        raise NotImplementedError

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        self._ended()
        claims = list(self._claims.values())
        self._stream.revoke(claims, lost=True)
        self._stream.replace_claims(remove=claims)
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for fetcher in self._fetchers.values():
            fetcher.join()

    # -- for those that know what there is ------------------------------------------------------

    def _run(self) -> None:
        """In the thread, until `_stopped`: keep claims and fetchers up to date."""
        raise NotImplementedError

    def _ended(self) -> None:
        """The thread has ended, and the claims are held still."""

    def _has(self, claim: Claim, broker_id: int) -> bool:
        """Whether a broker is to be asked for a partition."""
        raise NotImplementedError

    def _commit_claim(self, _claim: Claim, _offset: int) -> bool:
        """Nobody else has the partition, and how far it is, the target decides."""
        return True

    def _claim(self, topic: str, partition: BrokerPartition) -> SourceClaim:
        return self._make_claim(topic, partition, "", self._stream.lock, self._lease)

    def _fetch_from(self, broker_id: int, address: tuple[str, int], **more: Any) -> None:
        self._fetchers[broker_id] = self._make_fetcher(
            broker_id,
            address,
            self._config,
            self._commit_claim,
            self._claims_of,
            ConsumerCounters(),
            **more,
        )

    def _stop_fetcher(self, broker_id: int) -> None:
        fetcher = self._fetchers.pop(broker_id)
        fetcher.stop()
        fetcher.join()

    def _claims_of(self, broker_id: int) -> tuple[Sequence[Claim], int]:
        claims = list(self._claims.values())
        share = max(1, self._config.prefetch_bytes // max(1, len(claims)))
        return [each for each in claims if self._has(each, broker_id)], share
