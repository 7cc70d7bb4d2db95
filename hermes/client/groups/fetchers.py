"""A thread per broker, which fetches ahead for all partitions owned there, and never gives up.

A failure of a broker is retried after a pause; one of a partition after a pause of that partition
alone, which grows as long as the retries fail. What retrying can't fix (a message larger than the
largest fetch, an offset out of range with `auto_offset_reset="fail"`, a refusal of the user, the
certificate or the right to read) fails the claim, and so reaches the application from its stream.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from hermes.backoff import growing_pause
from hermes.client.connection import DEFAULT_MAX_RESPONSE_BYTES, BrokerConnection, Channel
from hermes.client.conversations import offsets_before
from hermes.client.fetching import FetchResult, FetchRules, counted, waiting_fetch
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.streams import Claim
from hermes.client.metrics import ConsumerCounters
from hermes.errors import (
    BrokerError,
    CoordinationError,
    HermesError,
    OffsetOutOfRangeBrokerError,
    OffsetResetError,
    is_refusal,
)
from hermes.protocol import EARLIEST, LATEST, FetchRequest

_log = logging.getLogger(__name__)

# How long a fetch may wait for new messages of some partitions while others have no room.
_SHORT_WAIT_MS = 20
_IDLE_SECONDS = 0.5
# How far the pause of a partition grows, in times of `fetch_backoff`.
_LONGEST_PAUSE = 25


@dataclass(slots=True)
class _Setback:
    """The failures of a partition since its last successful fetch.

    `until` is by the monotonic clock, `problem` what was logged last.
    """

    count: int = 0
    until: float = 0.0
    problem: str = ""


class FetchThread:
    """A connection to one broker, and a thread that fetches over it again and again.

    Args:
        commit: stores where a group starts; returns whether the partition is still ours.
        claims: returns the claims on this broker, and how many bytes each may buffer.
    """

    # How often a broker without long polls is polled.
    _poll_interval_ms = 100

    def __init__(
        self,
        broker_id: int,
        address: tuple[str, int],
        config: ConsumerConfig,
        commit: Callable[[Claim, int], bool],
        claims: Callable[[int], tuple[Sequence[Claim], int]],
        counters: ConsumerCounters,
    ) -> None:
        self.address = address
        self._broker_id = broker_id
        self._config = config
        self._commit = commit
        self._claims = claims
        self._counters = counters
        self._wait_ms = round(config.seconds("fetch_wait") * 1000)
        self._channel = Channel(
            BrokerConnection(
                *address,
                timeout_seconds=config.seconds("timeout"),
                connect_timeout_seconds=config.seconds("connect_timeout"),
                max_response_bytes=max(2 * config.max_fetch_bytes, DEFAULT_MAX_RESPONSE_BYTES),
                security=config.security,
            ),
            supports_hermes_requests=config.supports_hermes_requests,
        )
        self._rules = FetchRules(
            config.max_fetch_bytes,
            config.on_corrupt,
            count_skipped=counters.count_skipped,
            refused=self._channel.refused,
            versions=self._channel.broker_versions,
        )
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self._thread_name(), daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def stop(self) -> None:
        self._stopped.set()
        self._wake.set()
        self._channel.close()

    def join(self) -> None:
        self._thread.join()

    # -- inside ---------------------------------------------------------------------------------

    def _thread_name(self) -> str:
        return f"hermes-fetcher-{self._broker_id}"

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                busy = self._fetch_once()
                self._succeeded()
            except Exception as error:
                if self._stopped.is_set():
                    return
                self._failed(error)
                self._rest(self._config.seconds("fetch_backoff"))
                continue
            if not busy:
                self._idle(_IDLE_SECONDS)

    def _fetch_once(self) -> bool:
        raise NotImplementedError

    def _succeeded(self) -> None:
        raise NotImplementedError

    def _failed(self, error: Exception) -> None:
        raise NotImplementedError

    def _fetch(self, requests: Sequence[FetchRequest], wait_ms: int) -> list[FetchResult]:
        self._channel.versions()  # a failure of this is none of a fetch
        fetching = waiting_fetch(requests, wait_ms, 1, self._rules, self._poll_interval_ms)
        return self._channel.run(counted(fetching, self._counters))

    def _find_offset(self, claim: Claim, time_ms: int) -> int:
        number = claim.partition.partition
        offsets = self._channel.run(offsets_before(claim.topic, number, time_ms, 1))
        return offsets[0] if offsets else 0

    def _idle(self, seconds: float) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _rest(self, seconds: float) -> None:
        """Wait; only `stop` shortens it."""
        self._stopped.wait(seconds)


class BrokerFetcher(FetchThread):
    def __init__(self, *arguments: Any) -> None:
        self._problem = ""
        self._setbacks: dict[Claim, _Setback] = {}
        super().__init__(*arguments)

    def _succeeded(self) -> None:
        self._problem = ""

    def _failed(self, error: Exception) -> None:
        if is_refusal(error):
            self._give_up(error)
        else:
            self._report(error)

    def _report(self, error: Exception) -> None:
        text = str(error)
        if text != self._problem:  # once, not five times a second
            self._problem = text
            unexpected = None if isinstance(error, HermesError) else error
            _log.warning(
                "fetching from broker %d is retried after a pause: %s",
                self._broker_id,
                error,
                exc_info=unexpected,
            )

    def _give_up(self, error: Exception) -> None:
        """Fail what is fetched from here: the broker was refused, or refuses whoever this is."""
        claims, _ = self._claims(self._broker_id)
        _log.error("broker %d is not fetched from any more: %s", self._broker_id, error)
        for claim in claims:
            if claim.failure is None:
                claim.fail(error)

    def _fetch_once(self) -> bool:
        claims, share = self._claims(self._broker_id)
        now = time.monotonic()
        resting = self._resting(claims, now)
        asked: list[tuple[Claim, int]] = []
        requests = []
        for claim in claims:
            if claim in resting:
                continue
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
        results = self._fetch(requests, wait_ms)
        brought = False
        for (claim, epoch), result in zip(asked, results, strict=True):
            brought = self._deliver(claim, epoch, result) or brought
        if not brought:  # a broker that answers an empty fetch at once is not asked again at once
            self._rest(now + wait_ms / 1000 - time.monotonic())
        return True

    def _resting(self, claims: Sequence[Claim], now: float) -> set[Claim]:
        if self._setbacks:
            self._setbacks = {c: self._setbacks[c] for c in claims if c in self._setbacks}
        return {claim for claim, setback in self._setbacks.items() if setback.until > now}

    def _deliver(self, claim: Claim, epoch: int, result: FetchResult) -> bool:
        error = result.error
        if epoch != claim.epoch:
            return True  # there was a seek meanwhile
        if error is None:
            if len(result.messages):
                claim.add(result.messages, epoch)
                self._setbacks.pop(claim, None)
                return True
            return False
        if isinstance(error, OffsetOutOfRangeBrokerError):
            # A reset drops what was fetched, and commits an offset behind or before it.
            if not claim.waits_for_reader():
                self._find_start(claim, result.request.offset)
        elif isinstance(error, BrokerError) and not is_refusal(error):
            self._set_back(claim, error)
        else:
            claim.fail(error)
        return True

    def _set_back(self, claim: Claim, error: HermesError) -> None:
        """Pause a claim after a failure, which is logged once."""
        setback = self._setbacks.setdefault(claim, _Setback())
        setback.count += 1
        backoff = self._config.seconds("fetch_backoff")
        pause = growing_pause(backoff, setback.count - 1, _LONGEST_PAUSE * backoff)
        setback.until = time.monotonic() + pause
        if setback.problem != str(error):
            setback.problem = str(error)
            _log.warning("%s: fetching is retried after a pause: %s", claim, error)

    def _find_start(self, claim: Claim, out_of_range: int | None) -> None:
        """Find where to resume without an offset, or with one that is out of range."""
        # The offset is stored before a message is handed out, so that it has a version that fences
        # commits, and a group starts in one place only.
        policy = self._config.auto_offset_reset
        why = "no offset is stored" if out_of_range is None else f"{out_of_range} is out of range"
        with claim.lock:
            if claim.fetch_offset != out_of_range:
                return  # there was a seek meanwhile
            epoch = claim.epoch
            if policy == "fail":
                claim.fail(OffsetResetError(f"{claim}: {why}, and auto_offset_reset is 'fail'"))
                return
        try:
            start = self._find_offset(claim, EARLIEST if policy == "smallest" else LATEST)
            if not claim.is_held():
                return
            if start != claim.committed and not self._commit(claim, start):
                return
        except (BrokerError, CoordinationError) as error:
            if is_refusal(error):
                claim.fail(error)
            else:
                self._set_back(claim, error)
            return
        with claim.lock:
            if claim.epoch != epoch:
                return
            claim.start_at(start)
        if out_of_range is None:
            _log.info("%s: %s; going on from the %s offset, %d", claim, why, policy, start)
        elif claim not in self._setbacks:
            what = "%s: %s; going on from the %s offset, %d"
            _log.warning(what, claim, why, policy, start)
            self._setbacks[claim] = _Setback()
        else:  # the broker refuses the offset that it named itself, or every offset
            refused = f"{why} again, after it was reset to the {policy} offset of its broker"
            self._set_back(claim, OffsetResetError(refused))


#: Makes the fetcher of a broker; the arguments are those of `FetchThread`.
MakeFetcher: TypeAlias = Callable[..., FetchThread]
