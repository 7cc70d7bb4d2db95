"""A thread per broker of a source, which fetches raw message sets for all claims on it.

It differs from an application's fetchers where a mirror must: nothing is decoded, what retention
took is reported with its range, and nothing ever ends a claim: every failure is tried again.
"""

import time
from typing import Any, Final

from hermes.client.fetching import FetchResult
from hermes.client.groups.fetchers import FetchThread
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

_SHORT_PAUSE_SECONDS: Final = 0.5
# A broker of Kafka 0.7 has no long polls. A fetch that finds nothing costs it little.
_POLL_INTERVAL_MS: Final = 5


class SourceFetcher(FetchThread):
    """Fetches from one broker; `arguments` are those of `FetchThread`."""

    _poll_interval_ms = _POLL_INTERVAL_MS

    def __init__(
        self,
        source: str,
        problems: Problems,
        throttle: BandwidthLimit,
        broker_id: int,
        *arguments: Any,
    ) -> None:
        self._what = f"source {source}, broker {broker_id}"
        self._problems = problems
        self._throttle = throttle
        super().__init__(broker_id, *arguments)

    def join(self) -> None:
        super().join()
        self._problems.forget(self._what)

    def _thread_name(self) -> str:
        return f"hermes-{self._what}"

    def _succeeded(self) -> None:
        self._problems.end(self._what)

    def _failed(self, error: Exception) -> None:
        known = isinstance(error, HermesError)
        self._problems.begin(self._what, str(error) if known else repr(error))

    def _fetch_once(self) -> bool:
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
        results = self._fetch(requests, wait_ms)
        size = 0
        for (claim, epoch), result in zip(asked, results, strict=True):
            size += len(result.messages)
            self._deliver_alone(claim, epoch, result)
        pause = self._throttle.take(size)
        if not size:  # a broker that answers an empty fetch at once is not asked again at once
            pause = max(pause, began + wait_ms / 1000 - time.monotonic())
        if pause > 0:
            self._rest(pause)
        return True

    def _deliver_alone(self, claim: SourceClaim, epoch: int, result: FetchResult) -> None:
        """Deliver what was fetched; what goes wrong holds up none of those behind it."""
        try:
            self._deliver(claim, epoch, result)
        except HermesError as error:
            if not self._stopped.is_set() and epoch == claim.epoch:
                claim.pause(str(error), _SHORT_PAUSE_SECONDS)
        except Exception as error:  # nobody knows what it has sent
            claim.restart(epoch, BrokerError(repr(error)))

    def _deliver(self, claim: SourceClaim, epoch: int, result: FetchResult) -> None:
        error, offset = result.error, result.request.offset
        if epoch != claim.epoch:
            return
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
            claim.pause(str(error), _SHORT_PAUSE_SECONDS)
        else:
            claim.pause(str(error))

    def _out_of_range(self, claim: SourceClaim, epoch: int, offset: int) -> None:
        earliest, latest = (self._find_offset(claim, each) for each in (EARLIEST, LATEST))
        if offset < earliest:
            self._problems.note(
                f"{claim}: lost {earliest - offset} bytes, from {offset} to {earliest}: the "
                "source's retention took them before they were read"
            )
            claim.skip(offset, earliest, "lost", epoch)
        elif offset > latest:
            if not self._commit(claim, earliest):
                return  # somebody else has it
            self._problems.note(
                f"{claim}: the source's log ends at {latest}, before {offset}, where it was "
                f"mirrored up to: it was created anew; starting over at {earliest}"
            )
            claim.start_over_at = earliest
            claim.restart(epoch, None)
