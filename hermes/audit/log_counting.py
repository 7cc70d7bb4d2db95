"""Reads logs and counts what is in them: the claims and fetchers of a group that only counts.

A claim holds nothing: what is fetched is counted at once, as it came. Where a log is counted from
its beginning, which is no longer its first message, the broker's time index shows since when all
its messages are.
"""

import logging
import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from hermes.audit.counting import TierCounter
from hermes.client.admin import describe_settings
from hermes.client.append_times import append_times
from hermes.client.fetching import FetchedSet, FetchResult
from hermes.client.groups.fetchers import BrokerFetcher
from hermes.client.groups.streams import Claim
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import BrokerError, HermesError, InvalidMessageError
from hermes.protocol import EARLIEST, LATEST, RecordSet
from hermes.protocol.damage import resume_beyond

_log = logging.getLogger(__name__)

_LEAST_BYTES: Final = 4 * 1024 * 1024


class CountingClaim(Claim):
    """A partition while this member counts it.

    Attributes:
        log: what the reports call it.
        published: up to where it is reported, and so may be committed.
        since_ms: see `events`, for the first range.
        begin: where the log began when that was last looked at.
        look_for_begin_at: when it is looked at again, on the monotonic clock.
        is_compacted: finds out whether compaction may have taken messages.
        reached_at: when the log was last counted to its end, on the monotonic clock.
    """

    def __init__(
        self,
        counter: TierCounter,
        topic: str,
        partition: BrokerPartition,
        stream_id: str,
        lock: threading.Condition,
        lease: Lease,
    ) -> None:
        super().__init__(topic, partition, stream_id, lock, lease)
        self.log = f"{partition.broker_id}-{partition.partition}"
        self.published = 0
        self.since_ms: int | None = None
        self.begin = 0
        self.look_for_begin_at = 0.0
        self.is_compacted: Callable[[], bool] = bool
        self.reached_at = 0.0
        self._counter = counter

    @property
    def position(self) -> int:
        return self.fetch_offset or 0

    @property
    def finished(self) -> int:
        return self.published

    def start_at(self, offset: int) -> None:
        with self.lock:
            self.epoch += 1
            if self.fetch_offset is not None and offset > self.fetch_offset:
                self._counter.add_lost(self.topic, self.log, self.fetch_offset, offset)
            elif self.fetch_offset is None or offset < self.fetch_offset:
                self.published = offset
            self.failure = None
            self.fetch_offset = offset

    def wants_bytes(self, share_bytes: int, fetch_bytes: int) -> int:
        """Its share of what a response may bring, since a claim never holds anything."""
        if self.is_revoked or self.failure is not None:
            return 0
        return min(fetch_bytes, max(share_bytes, _LEAST_BYTES))

    def add(self, messages: FetchedSet, epoch: int) -> None:
        with self.lock:
            if epoch != self.epoch or self.is_revoked or not len(messages):
                return
            start, end = messages.base_offset, messages.next_offset
            if isinstance(messages, RecordSet):
                self._add_records(messages, start, end)
                return
            if end == start:  # its first length is damaged
                _, after = resume_beyond(messages.data, 0)
                end = start + (after or len(messages))
                self._counter.add_damaged(self.topic, self.log, start, end)
                self.fetch_offset = end
                return
            self._counter.add_set(
                self.topic,
                messages.data[: end - start],
                log=self.log,
                start=start,
                end=end,
                since_ms=self.since_ms,
            )
            self.since_ms = None
            self.fetch_offset = end

    def _add_records(self, records: RecordSet, start: int, end: int) -> None:
        if end == start:  # nothing says where the next batch begins
            self.failure = InvalidMessageError(f"no batch can be at offset {start}")
            _log.warning("%s is not counted any further: %s", self, self.failure)
            return
        self._counter.add_records(
            self.topic,
            records,
            log=self.log,
            start=start,
            end=end,
            since_ms=self.since_ms,
            is_compacted=self.is_compacted,
        )
        self.since_ms = None
        self.fetch_offset = end

    def note_published(self) -> None:
        offset = self._counter.published_to(self.topic, self.log)
        with self.lock:
            # A report of before another member had the partition may be older.
            if offset is not None and self.fetch_offset is not None:
                self.published = max(self.published, min(offset, self.fetch_offset))

    def skip(self, end: int, epoch: int) -> None:
        with self.lock:
            if epoch == self.epoch and self.fetch_offset is not None and not self.is_revoked:
                self._counter.add_damaged(self.topic, self.log, self.fetch_offset, end)
                self.fetch_offset = end


class CountingFetcher(BrokerFetcher):
    """A fetcher that notes when a log is counted to its end, and since when it is counted."""

    def __init__(self, counter: TierCounter, pause_seconds: float, *arguments: Any) -> None:
        self._counter = counter
        self._pause_seconds = pause_seconds
        super().__init__(*arguments)

    def _fetch_once(self) -> bool:
        """At the ends of all logs it rests: fetches of little would cost a broker much."""
        began = time.monotonic()
        is_busy = super()._fetch_once()
        claims, _ = self._claims(self._broker_id)
        if is_busy and all(
            each.failure is not None or each.reached_at >= began
            for each in claims
            if isinstance(each, CountingClaim)
        ):
            self._idle(self._pause_seconds)
        return is_busy

    def _deliver(self, claim: Claim, epoch: int, result: FetchResult) -> bool:
        assert isinstance(claim, CountingClaim)
        error = result.error
        claim.is_compacted = partial(self._is_compacted, claim)
        if isinstance(error, InvalidMessageError) and error.next_offset is not None:
            claim.skip(error.next_offset, epoch)
            return True
        brought = super()._deliver(claim, epoch, result)
        if time.monotonic() >= claim.look_for_begin_at:
            self._find_begin(claim)
        if error is None and epoch == claim.epoch and claim.fetch_offset is not None:
            end = result.high_watermark
            if claim.fetch_offset >= end if end is not None else not brought:
                self._counter.reached(claim.topic, claim.log, claim.fetch_offset)
                claim.reached_at = time.monotonic()
        return brought

    def _find_start(self, claim: Claim, out_of_range: int | None) -> None:
        assert isinstance(claim, CountingClaim)
        super()._find_start(claim, out_of_range)
        if out_of_range is None and claim.fetch_offset is not None:
            claim.since_ms = self._since(claim, claim.fetch_offset)
        elif out_of_range is not None:
            self._note_cut(claim, out_of_range)

    def _note_cut(self, claim: CountingClaim, counted_to: int) -> None:
        with suppress(BrokerError):
            end = self._find_offset(claim, LATEST)
            if end < counted_to:
                self._counter.add_cut(claim.topic, claim.log, end, counted_to)

    def _find_begin(self, claim: CountingClaim) -> None:
        claim.look_for_begin_at = math.inf
        with suppress(BrokerError):
            claim.begin = self._find_offset(claim, EARLIEST)

    def _is_compacted(self, claim: Claim) -> bool:
        try:
            settings = self._channel.run(describe_settings(claim.topic))
        except HermesError as error:
            _log.warning("%s: can't tell whether it is compacted: %s", claim, error)
            return True
        policies = [each.value for each in settings if each.name == "cleanup_policy"]
        return policies != ["delete"]

    def _since(self, claim: Claim, offset: int) -> int:
        """Before when everything was appended that is before an offset; 0 if nothing is."""
        if not offset:
            return 0
        now_ms = time.time_ns() // 1_000_000
        number = claim.partition.partition
        try:
            if self._find_offset(claim, LATEST) == offset:
                return now_ms
            found = self._channel.ask(append_times, claim.topic, number, offset, offset + 1, 1)
        except HermesError as error:
            _log.info("%s: can't tell since when it is counted: %s", claim, error)
            return now_ms
        known = found[0].time_ms if found else None
        return now_ms if known is None else known + 1
