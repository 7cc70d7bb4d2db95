"""A thread per broker of a source, which fetches raw message sets for all claims on it.

It is to mirrors what `hermes.client.groups.fetchers` is to applications, and differs where a mirror
must not do as an application does: nothing is decoded, what retention took is told with its range,
and nothing ever ends a claim: every failure is tried again.
"""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from hermes.client.fetching import FetchResult
from hermes.client.groups.claims import Claim
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.ownership import Ownership
from hermes.client.metrics import ConsumerCounters
from hermes.client.simple_consumer import SimpleConsumer
from hermes.errors import (
    BrokerError,
    HermesError,
    InvalidMessageError,
    OffsetOutOfRangeBrokerError,
)
from hermes.mirror.figures import Problems
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.throttle import BandwidthLimit
from hermes.protocol import EARLIEST, LATEST, FetchRequest

# How long a fetch may wait for new messages of some partitions while others have no room, and
# while others rest.
_SHORT_WAIT_MS: Final = 10
_LONGER_WAIT_MS: Final = 100
_IDLE_SECONDS: Final = 0.5
_SHORT_REST_SECONDS: Final = 0.5
# A broker of Kafka 0.7 has no long polls. A fetch that finds nothing costs it little.
_POLL_INTERVAL_MS: Final = 5


class SourceFetcher:
    """Fetches from one broker.

    Args:
        source: the source's name.
        troubles: hears of failures of the broker.
        throttle: how fast it may read.
        broker_id, address, config, ownership, claims, counters: see `BrokerFetcher`.
    """

    def __init__(
        self,
        source: str,
        troubles: Problems,
        throttle: BandwidthLimit,
        broker_id: int,
        address: tuple[str, int],
        config: ConsumerConfig,
        ownership: Ownership | None,
        claims: Callable[[int], tuple[Sequence[Claim], int]],
        counters: ConsumerCounters,
    ) -> None:
        self.address = address
        self._what = f"source {source}, broker {broker_id}"
        self._troubles = troubles
        self._throttle = throttle
        self._broker_id = broker_id
        self._config = config
        self._ownership = ownership
        self._claims = claims
        self._wait_ms = round(config.seconds("fetch_wait") * 1000)
        self._consumer = SimpleConsumer(
            *address,
            timeout_seconds=config.seconds("timeout"),
            connect_timeout_seconds=config.seconds("connect_timeout"),
            max_fetch_bytes=config.max_fetch_bytes,
            supports_hermes_requests=config.supports_hermes_requests,
            poll_interval_ms=_POLL_INTERVAL_MS,
            **config.security.settings(),
        )
        self._consumer.counters = counters
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"hermes-{self._what}", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """See `PartitionFetcher`."""
        self._wake.set()

    def stop(self) -> None:
        """See `PartitionFetcher`."""
        self._stopped.set()
        self._wake.set()
        self._consumer.close()

    def join(self) -> None:
        """See `PartitionFetcher`."""
        self._thread.join()
        self._troubles.forget(self._what)

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                is_busy = self._fetch_once()
                self._troubles.end(self._what)
            except Exception as error:
                if self._stopped.is_set():
                    return
                known = isinstance(error, HermesError)
                self._troubles.begin(self._what, str(error) if known else repr(error))
                self._stopped.wait(self._config.seconds("fetch_backoff"))
                continue
            if not is_busy:
                self._wake.wait(_IDLE_SECONDS)
                self._wake.clear()

    def _fetch_once(self) -> bool:
        """Fetch for all claims that have room; returns whether there were any."""
        claims, share = self._claims(self._broker_id)
        largest = self._throttle.largest_fetch(self._config.fetch_bytes)
        asked: list[tuple[SourceClaim, int]] = []
        requests = []
        wait_ms = self._wait_ms
        for claim in claims:
            assert isinstance(claim, SourceClaim)
            with claim.lock:
                size = claim.wants_bytes(share, largest)
                offset, epoch = claim.fetch_offset, claim.epoch
            if size and offset is not None:
                asked.append((claim, epoch))
                requests.append(FetchRequest(claim.topic, claim.partition.partition, offset, size))
        if not requests:
            return False
        began = time.monotonic()
        results = self._consumer.fetch_waiting(requests, wait_ms)
        size = 0
        for (claim, epoch), result in zip(asked, results, strict=True):
            size += self._deliver(claim, epoch, result)
        pause = self._throttle.take(size)
        if not size:  # a broker that answers an empty fetch at once is not asked again at once
            pause = max(pause, began + wait_ms / 1000 - time.monotonic())
        if pause > 0:
            self._stopped.wait(pause)
        return True

    def _deliver(self, claim: SourceClaim, epoch: int, result: FetchResult) -> int:
        """Deliver a result; returns how many bytes it brought."""
        error, offset = result.error, result.request.offset
        if epoch != claim.epoch:
            return 0
        if result.high_watermark is not None and result.high_watermark >= 0:
            claim.figures.end = result.high_watermark
        if error is None:
            claim.add(result.messages, epoch)
            if result.high_watermark is None:
                claim.figures.end = max(claim.figures.end or 0, claim.fetch_offset or 0)
        elif isinstance(error, OffsetOutOfRangeBrokerError):
            self._out_of_range(claim, epoch, offset)
        elif isinstance(error, InvalidMessageError) and error.next_offset is not None:
            claim.skip(offset, error.next_offset, "damaged", epoch)
        elif isinstance(error, BrokerError):
            claim.rest(str(error), _SHORT_REST_SECONDS)
        else:
            claim.rest(str(error))
        return len(result.messages)

    def _out_of_range(self, claim: SourceClaim, epoch: int, offset: int) -> None:
        """Find out what became of the place where a claim wanted to go on."""
        earliest, latest = (self._offset(claim, each) for each in (EARLIEST, LATEST))
        if offset < earliest:
            self._troubles.note(
                f"{claim}: lost {earliest - offset} bytes, from {offset} to {earliest}: the "
                "source's retention took them before they were read"
            )
            claim.skip(offset, earliest, "lost", epoch)
        elif offset > latest:
            if self._ownership is not None and not self._ownership.commit(claim, earliest):
                return  # somebody else has it
            self._troubles.note(
                f"{claim}: the source's log ends at {latest}, before {offset}, where it was "
                f"mirrored up to: it was created anew; starting over at {earliest}"
            )
            claim.anew = earliest
            claim.restart(epoch, None)

    def _offset(self, claim: SourceClaim, time_ms: int) -> int:
        number = claim.partition.partition
        offsets = self._consumer.get_offsets_before(claim.topic, number, time_ms)
        return offsets[0] if offsets else 0
