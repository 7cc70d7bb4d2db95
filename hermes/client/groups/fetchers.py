"""A thread for each broker, which fetches ahead for all claims on it, and never gives up.

Whatever goes wrong with a broker is tried again after a pause. What trying again can't mend (a
message larger than the largest fetch, an offset out of range with `auto_offset_reset="fail"`)
fails the claim, and so reaches the application from its stream.
"""

import logging
import threading
from collections.abc import Callable, Sequence

from hermes.client.fetching import FetchResult
from hermes.client.groups.claims import Claim
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.ownership import Ownership
from hermes.client.simple_consumer import SimpleConsumer
from hermes.errors import (
    BrokerError,
    HermesError,
    InvalidMessageError,
    MessageLargerThanFetchError,
    OffsetOutOfRangeBrokerError,
    OffsetResetError,
)
from hermes.protocol import EARLIEST, LATEST, FetchRequest

__all__ = ["BrokerFetcher"]

_log = logging.getLogger(__name__)

# How long a fetch may wait for news of some partitions while others wait to be taken.
_SHORT_WAIT_MS = 20
_IDLE_SECONDS = 0.5


class BrokerFetcher:
    """Fetches from one broker.

    Args:
        broker_id: the broker.
        address: its host and port.
        config: the consumer's settings.
        ownership: stores where a group starts.
        claims: gives the claims of this broker, and how much each may hold in bytes.
    """

    def __init__(
        self,
        broker_id: int,
        address: tuple[str, int],
        config: ConsumerConfig,
        ownership: Ownership,
        claims: Callable[[int], tuple[Sequence[Claim], int]],
    ) -> None:
        self.address = address
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
            on_corrupt=config.on_corrupt,
            supports_hermes_requests=config.supports_hermes_requests,
        )
        self._wake = threading.Event()
        self._stopped = False
        self._problem = ""
        self._thread = threading.Thread(
            target=self._run, name=f"hermes-fetcher-{broker_id}", daemon=True
        )
        self._thread.start()

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def stop(self) -> None:
        """Fetch nothing more; returns at once, `join` waits."""
        self._stopped = True
        self._wake.set()
        self._consumer.close()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    # -- inside ---------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._stopped:
            try:
                busy = self._fetch_once()
                self._problem = ""
            except Exception as error:
                if self._stopped:
                    return
                self._report(error)
                self._pause(self._config.seconds("fetch_backoff"))
                continue
            if not busy:
                self._pause(_IDLE_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _report(self, error: Exception) -> None:
        text = str(error)
        if text != self._problem:  # once, not five times a second
            self._problem = text
            unexpected = None if isinstance(error, HermesError) else error
            _log.warning(
                "fetching from broker %d goes on after a pause: %s",
                self._broker_id,
                error,
                exc_info=unexpected,
            )

    def _fetch_once(self) -> bool:
        """Fetch for all claims that have room; returns whether there were any."""
        claims, share = self._claims(self._broker_id)
        asked: list[tuple[Claim, int]] = []
        requests = []
        for claim in claims:
            with claim.lock:
                size = claim.wants_bytes(share, self._config.fetch_bytes)
                offset, epoch = claim.fetch_offset, claim.epoch
            if size and offset is None:
                self._find_start(claim, None)
            elif size and offset is not None:
                asked.append((claim, epoch))
                topic, partition = claim.topic, claim.partition.partition
                requests.append(FetchRequest(topic, partition, offset, size))
        if not requests:
            return False
        all_asked = len(requests) == len(claims)
        wait_ms = self._wait_ms if all_asked else min(_SHORT_WAIT_MS, self._wait_ms)
        results = self._consumer.fetch_waiting(requests, wait_ms)
        failure: Exception | None = None
        for (claim, epoch), result in zip(asked, results, strict=True):
            failure = self._deliver(claim, epoch, result) or failure
        if failure is not None:
            raise failure
        return True

    def _deliver(self, claim: Claim, epoch: int, result: FetchResult) -> Exception | None:
        """Hand a result on; returns an error that another try may mend."""
        error = result.error
        if epoch != claim.epoch:
            return None  # there was a seek meanwhile
        if error is None:
            claim.add(result.messages, epoch)
        elif isinstance(error, OffsetOutOfRangeBrokerError):
            self._find_start(claim, result.request.offset)
        elif isinstance(error, MessageLargerThanFetchError | InvalidMessageError):
            claim.fail(error)
        elif isinstance(error, BrokerError):
            return error
        else:
            claim.fail(error)
        return None

    def _find_start(self, claim: Claim, out_of_range: int | None) -> None:
        """Find where to go on without an offset, or with one that is out of range.

        What is found is stored before a message is handed out, so that the offset has a version
        for commits to be fenced by, and a group starts in one place only.
        """
        policy = self._config.auto_offset_reset
        why = "no offset is stored" if out_of_range is None else f"{out_of_range} is out of range"
        if policy == "fail":
            claim.fail(OffsetResetError(f"{claim}: {why}, and auto_offset_reset is 'fail'"))
            return
        time = EARLIEST if policy == "smallest" else LATEST
        offsets = self._consumer.get_offsets_before(claim.topic, claim.partition.partition, time)
        start = offsets[0] if offsets else 0
        _log.log(
            logging.INFO if out_of_range is None else logging.WARNING,
            "%s: %s; going on from the %s offset, %d",
            claim,
            why,
            policy,
            start,
        )
        if claim.is_held() and self._ownership.commit(claim, start):
            claim.start_at(start)
