"""The metrics of copies: gauges of how they are now, and counters of what coordination has said."""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from hermes.cluster.topic_cluster import ClusterState
from hermes.kafka.replicas.copies import Copies
from hermes.kafka.replicas.copy import Copy
from hermes.metrics import Family, Series
from hermes.replication.leading import Leading
from hermes.replication.state import PartitionState

_COPIES: Final = Family("hermes_replicas", "gauge", "Copies of partitions that the broker has.")
_LED: Final = Family("hermes_replica_led", "gauge", "Those that it leads.")
_MOVING: Final = Family("hermes_replica_moving", "gauge", "Those led that move.")
_UNDER_REPLICATED: Final = Family(
    "hermes_replica_under_replicated", "gauge", "Those led of which a copy isn't in sync."
)
_UNDER_MIN: Final = Family(
    "hermes_replica_under_min_isr",
    "gauge",
    "Those led that take no acks=all: too few copies are in sync.",
)
_OFFLINE: Final = Family(
    "hermes_replica_offline_partitions", "gauge", "Copies of partitions that nobody leads."
)
_NOT_IN_SYNC: Final = Family(
    "hermes_replica_not_in_sync", "gauge", "Copies that the broker has, and that aren't in sync."
)
_LAG: Final = Family(
    "hermes_replica_lag_offsets",
    "gauge",
    "The most messages that a copy on another broker lacks, of partitions led here.",
    ("broker",),
)
_LAG_SECONDS: Final = Family(
    "hermes_replica_lag_seconds",
    "gauge",
    "For how long such a copy has lacked something, at most.",
    ("broker",),
)
_IN_SYNC: Final = Family(
    "hermes_replica_isr_size",
    "gauge",
    "How many copies are in sync, of partitions led here.",
    ("topic", "partition"),
)
_ELECTIONS: Final = Family(
    "hermes_replica_elections_total",
    "counter",
    "Times that the broker began to lead; not clean where it may have lacked messages.",
    ("clean",),
)
_CHANGES: Final = Family(
    "hermes_replica_isr_changes_total",
    "counter",
    "Copies that were taken in or out of the in-sync ones, of partitions led here.",
    ("kind",),
)
_CUTS: Final = Family(
    "hermes_replica_cuts_total",
    "counter",
    "Times that a copy was cut: its end wasn't its leader's, nor committed.",
)
_CUT_MESSAGES: Final = Family(
    "hermes_replica_cut_messages_total", "counter", "Messages that were cut off so."
)
_FETCHED: Final = Family(
    "hermes_replica_fetch_bytes_total", "counter", "Bytes of copies fetched from leaders."
)
_HEALED: Final = Family(
    "hermes_replica_healed_total",
    "counter",
    "Times that a copy was found to be damaged, and mended from its leader.",
)

_COMMIT: Final = Family(
    "hermes_replica_commit_seconds",
    "histogram",
    "How long an append took, of partitions led here, until all copies in sync had it on disk.",
)
_BEHIND: Final = Family(
    "hermes_replica_throttled_bytes_total",
    "counter",
    "Bytes for copies that aren't in sync, which is what throttles bound.",
    ("direction",),
)

#: What a copy is counted as.
_GAUGES: Final = (_COPIES, _LED, _MOVING, _UNDER_REPLICATED, _UNDER_MIN, _OFFLINE, _NOT_IN_SYNC)

#: All of them, by name.
FAMILIES: Final = {
    each.name: each
    for each in (
        *_GAUGES,
        *(
            _LAG,
            _LAG_SECONDS,
            _IN_SYNC,
            _ELECTIONS,
            _CHANGES,
            _CUTS,
            _CUT_MESSAGES,
            _FETCHED,
            _HEALED,
            _COMMIT,
            _BEHIND,
        ),
    )
}


class ReplicaMetrics:
    """Lives in the reactor's thread.

    What coordination says is compared with what it said before: of changes between two reads the
    sum is counted.
    """

    def __init__(self, copies: Copies) -> None:
        self._copies = copies
        self._elections = Counter({"yes": 0, "no": 0})
        self._changes = Counter({"expand": 0, "shrink": 0})
        self._state: ClusterState | None = None

    def use(self, state: ClusterState) -> None:
        """Coordination was read."""
        before, self._state = self._state, state
        known = {} if before is None else before.contents.replicas
        for name, node in state.contents.replicas.items():
            was = known.get(name)
            if was is node or (was is not None and was.id != node.id):
                continue
            for number, after in enumerate(node.partitions):
                earlier = None if was is None else was.state_of(number)
                if after is not None and after.leader == self._copies.broker_id:
                    self._count(earlier, after, is_first=before is None)

    def _count(
        self, before: PartitionState | None, after: PartitionState, *, is_first: bool
    ) -> None:
        if is_first:  # the broker starts: that was counted in its earlier life
            return
        if before is None or (before.leader, before.epoch) != (after.leader, after.epoch):
            self._elections["no" if after.unclean_epoch == after.epoch else "yes"] += 1
        if before is not None and after.replicas == before.replicas:
            self._changes["expand"] += len(after.isr - before.isr)
            self._changes["shrink"] += len(before.isr - after.isr)

    def series(self) -> Iterator[Series]:
        """What there is to show now."""
        copies = self._copies
        counts = Counter[Family](dict.fromkeys(_GAUGES, 0))
        lags: dict[int, int] = {}
        seconds: dict[int, float] = {}
        sizes: list[tuple[tuple[str, ...], float]] = []
        for copy in copies.by_place.values():
            counts.update(_of(copy, copies))
            leading = copy.replica.leading
            if leading is not None:
                _measure(copy, leading, copies.now(), lags, seconds)
                sizes.append(((copy.topic, str(copy.number)), len(leading.state.isr)))
        for family, count in counts.items():
            yield family, [((), count)]
        yield _LAG, [((str(each),), lag) for each, lag in sorted(lags.items())]
        yield _LAG_SECONDS, [((str(each),), lag) for each, lag in sorted(seconds.items())]
        yield _IN_SYNC, sizes if copies.shared.config.metrics_per_partition else []
        yield _ELECTIONS, [((each,), count) for each, count in self._elections.items()]
        yield _CHANGES, [((each,), count) for each, count in self._changes.items()]
        yield _CUTS, [((), copies.counts.cuts)]
        yield _CUT_MESSAGES, [((), copies.counts.cut_messages)]
        yield _FETCHED, [((), copies.counts.fetched_bytes)]
        yield _COMMIT, [((), copies.counts.commit_seconds)]
        sent, fetched = copies.counts.sent_behind_bytes, copies.counts.fetched_behind_bytes
        yield _BEHIND, [(("sent",), sent), (("fetched",), fetched)]
        yield _HEALED, [((), copies.counts.healed)]


def _of(copy: Copy, copies: Copies) -> Iterator[Family]:
    """What a copy is counted as."""
    yield _COPIES
    state, leading = copy.replica.state, copy.replica.leading
    if state is None:
        return
    if state.leader not in copy.replica.lives:
        yield _OFFLINE
    if copies.broker_id not in state.isr:
        yield _NOT_IN_SYNC
    if leading is None:
        return
    yield _LED
    if state.adding or state.removing:
        yield _MOVING
    if state.isr < set(state.had):
        yield _UNDER_REPLICATED
    if not leading.has_enough:
        yield _UNDER_MIN


def _measure(
    copy: Copy, leading: Leading, now: float, lags: dict[int, int], seconds: dict[int, float]
) -> None:
    """Note how far each follower is behind, if that is more than it is elsewhere."""
    end = copy.log.end_offset
    for each in leading.state.replicas:
        if each == leading.broker_id:
            continue
        known = leading.followers.get(each)
        if known is not None:
            lags[each] = max(lags.get(each, 0), end - known.end)
        is_level = known is not None and known.end >= end
        since = leading.began_at if known is None else known.caught_up_at
        seconds[each] = max(seconds.get(each, 0.0), 0.0 if is_level else now - since)
