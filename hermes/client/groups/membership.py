"""A thread that keeps what a consumer owns in step with its group.

A rebalance is never a step of a plan, it is a look at how things are: who is registered, what is
there, what is ours; then what must go is released and what must come is taken. Everything that may
change the answer (a member, a broker, a topic, an owner that goes, a new session) wakes the thread,
which looks again. What can't be had yet is tried again after a pause, for ever.

The life of a partition in the hands of a consumer:
    take      a transaction makes us its owner and moves the version of its offset
    fetch     from the offset that is stored
    hand out  while the session's lease lasts, one message at a time
    release   nothing more is handed out; the application finishes what it has (for a while); the
              listener is told; the offset is committed; the owner's node goes
Whoever stays the owner keeps fetching meanwhile.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from hermes.client.groups.claims import Claim
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import BrokerFetcher
from hermes.client.groups.ownership import Ownership
from hermes.client.groups.streams import MessageStream
from hermes.coordination.assignment import assign, stream_ids
from hermes.coordination.cluster import read_brokers, read_partition_counts, read_topics
from hermes.coordination.layout import (
    BrokerPartition,
    GroupPaths,
    Subscription,
    format_subscription,
    parse_subscription,
)
from hermes.coordination.sessions import Session
from hermes.errors import (
    CoordinationError,
    CoordinationUnavailableError,
    IdInUseError,
)

__all__ = ["Membership"]

_log = logging.getLogger(__name__)

#: Called with the partitions that are about to be released, or were taken.
Listener = Callable[[Sequence[tuple[str, BrokerPartition]]], None]
_Place = tuple[str, BrokerPartition]


class Membership:
    """One consumer's part in its group.

    Args:
        config: the consumer's settings.
        consumer_id: its id.
        session: its session, started; its `on_change` must call `wake`.
        on_release: told before partitions are given up, in the membership's thread.
        on_take: told after partitions were taken.

    Attributes:
        streams: what the application iterates over.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: Session,
        on_release: Listener,
        on_take: Listener,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._session = session
        self._on_release = on_release
        self._on_take = on_take
        self._paths = GroupPaths(config.group)
        self._ownership = Ownership(session, self._paths)
        self._subscription = Subscription({})
        self.streams: Sequence[MessageStream] = ()
        self._claims: dict[_Place, Claim] = {}
        self._fetchers: dict[int, BrokerFetcher] = {}
        self._session_id: int | None = None
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._problem: Exception | None = None
        self._stopping = False
        self._commit_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="hermes-membership", daemon=True)

    def start(self, subscription: Subscription, streams: Sequence[MessageStream]) -> None:
        """Join the group, and return after the first rebalance that left no doubt.

        Args:
            subscription: what is wanted.
            streams: those of the first topic, then of the second, and so on; or those of the
                filter, each for all topics.

        Raises:
            IdInUseError: the consumer's id is that of another that lives.
        """
        self._subscription = subscription
        self.streams = streams
        self._thread.start()
        deadline = time.monotonic() + 1.5 * self._session.timeout_seconds
        while not self._looked.wait(0.1):
            if time.monotonic() > deadline:
                if isinstance(self._problem, IdInUseError):
                    raise self._problem
                return  # it goes on trying, and the streams say what is wrong

    def stop(self) -> None:
        """Release everything and leave the group. Bounded, also without ZooKeeper."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        for stream in self.streams:
            stream.close()
        try:
            self._release(list(self._claims.values()), wait=False)
            self._session.delete_own(self._paths.member(self._consumer_id))
        except CoordinationError as error:
            _log.warning("left group %r without goodbye: %s", self._config.group, error)
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for fetcher in self._fetchers.values():
            fetcher.join()

    def wake(self) -> None:
        """Look again at how things are. Any thread, also kazoo's."""
        self._wake.set()

    def wake_fetchers(self) -> None:
        """There may be room for more messages."""
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def claims(self) -> list[Claim]:
        """What is owned now."""
        return list(self._claims.values())

    def commit(self, claims: Sequence[Claim] | None = None) -> None:
        """Store the offsets that the application has finished with.

        Raises:
            CoordinationUnavailableError: ZooKeeper does not answer; some may be stored.
        """
        with self._commit_lock:
            for claim in self.claims() if claims is None else claims:
                with claim.lock:
                    finished, known = claim.finished, claim.fetch_offset is not None
                if not known or claim.is_lost or finished == claim.committed:
                    continue
                if not self._ownership.commit(claim, finished):
                    self._lose([claim])
                    self._wake.set()

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        retry = self._config.seconds("rebalance_backoff")
        interval = self._config.seconds("auto_commit_interval")
        next_commit = time.monotonic() + interval
        self._wake.set()
        is_settled = False
        while True:
            pause = max(0.0, next_commit - time.monotonic())
            self._wake.wait(pause if is_settled else min(pause, retry))
            # Not what `wait` returned: a wake that comes just after its time was up counts, too.
            woken = self._wake.is_set()
            if woken:
                self._wake.clear()
            if self._stopping:
                return
            if woken or not is_settled:
                is_settled = self._look()
            if time.monotonic() >= next_commit:
                next_commit = time.monotonic() + interval
                self._auto_commit()

    def _look(self) -> bool:
        """Rebalance; returns whether nothing is left to be done."""
        try:
            is_settled = self._rebalance()
        except Exception as error:
            self._report(error)
            return False
        if is_settled:
            self._problem = None
            self._looked.set()
        return is_settled

    def _report(self, error: Exception) -> None:
        is_new = str(error) != str(self._problem)
        self._problem = error
        if not is_new:
            return
        expected = isinstance(error, CoordinationError)
        _log.warning(
            "group %r: rebalancing is tried again: %s",
            self._config.group,
            error,
            exc_info=None if expected else error,
        )
        if not isinstance(error, CoordinationUnavailableError):
            for stream in self.streams:
                stream.fail(error)

    def _auto_commit(self) -> None:
        if not self._config.auto_commit:
            return
        try:
            self.commit()
        except CoordinationError as error:
            _log.warning("group %r: offsets are not committed: %s", self._config.group, error)

    # -- rebalancing ----------------------------------------------------------------------------

    def _rebalance(self) -> bool:
        session_id = self._session.session_id
        if session_id is None:
            return False
        if session_id != self._session_id:
            self._lose(self.claims())  # with the session, all that it owned has gone
            self._session_id = session_id
        self._register()
        brokers = read_brokers(self._session, watch=True)
        wanted = {
            place: stream_id
            for place, stream_id in self._read_assignment().items()
            if place[1].broker_id in brokers
        }
        leaving = [c for place, c in self._claims.items() if wanted.get(place) != c.stream_id]
        self._release(leaving)
        is_settled = self._take(wanted, session_id)
        self._update_fetchers({b: (node.host, node.port) for b, node in brokers.items()})
        return is_settled

    def _register(self) -> None:
        path = self._paths.member(self._consumer_id)
        other = self._session.create_ephemeral(path, format_subscription(self._subscription))
        self._session.get(path, watch=True)
        if other is not None:
            raise IdInUseError(
                f"consumer id {self._consumer_id!r} is in use in group {self._config.group!r}"
            )

    def _read_assignment(self) -> dict[_Place, str]:
        """Who owns what, as far as it is ours."""
        members = {}
        for name in self._session.children(self._paths.ids, watch=True):
            path = self._paths.member(name)
            node = self._session.get(path, watch=True)
            if node is not None:
                members[name] = parse_subscription(path, node.value)
        chosen = self._subscription.topic_filter
        topics = list(self._subscription.streams)
        if chosen is not None:
            topics = [
                each for each in read_topics(self._session, watch=True) if chosen.allows(each)
            ]
        counts = {
            topic: read_partition_counts(self._session, topic, watch=True) for topic in topics
        }
        ours = {
            topic: stream_ids(self._consumer_id, self._subscription.streams_of(topic))
            for topic in topics
        }
        return {
            (topic, partition): stream_id
            for topic, assigned in assign(counts, members).items()
            for partition, stream_id in assigned.items()
            if stream_id in ours[topic]
        }

    def _take(self, wanted: Mapping[_Place, str], session_id: int) -> bool:
        taken: list[_Place] = []
        is_settled = True
        try:
            for place, stream_id in wanted.items():
                if place in self._claims:
                    continue
                stream = self.stream_of(place[0], stream_id)
                claim = Claim(
                    *place,
                    stream_id,
                    stream.lock,
                    lambda: self._session.holds_lease(session_id),
                    session_id,
                )
                if not self._ownership.take(claim):
                    is_settled = False
                    continue
                if claim.committed is not None:
                    claim.start_at(claim.committed)
                self._claims[place] = claim
                stream.replace_claims(add=[claim])
                taken.append(place)
        finally:
            if taken:
                _log.info("group %r: took %s", self._config.group, _text(taken))
                self._tell(self._on_take, taken)
        return is_settled

    def _release(self, claims: Sequence[Claim], *, wait: bool = True) -> None:
        """Give partitions back, such that the next owner goes on where the application is."""
        if not claims:
            return
        for claim in claims:
            self._stream(claim).revoke([claim])
        deadline = time.monotonic() + (self._config.seconds("release_wait") if wait else 0)
        for claim in claims:
            if not self._stream(claim).wait_until_finished(claim, deadline) and wait:
                _log.warning("%s: the message in the application's hands comes again", claim)
        places = [(claim.topic, claim.partition) for claim in claims]
        self._tell(self._on_release, places)
        if self._config.auto_commit:
            self.commit(claims)
        for claim in claims:
            self._ownership.give_back(claim)
        self._lose(claims)
        _log.info("group %r: released %s", self._config.group, _text(places))

    def _lose(self, claims: Sequence[Claim]) -> None:
        """Forget claims: they are released, or gone."""
        for claim in claims:
            stream = self._stream(claim)
            stream.revoke([claim], lost=True)
            stream.replace_claims(remove=[claim])
            place = (claim.topic, claim.partition)
            if self._claims.get(place) is claim:
                del self._claims[place]

    def _tell(self, listener: Listener, places: Sequence[_Place]) -> None:
        try:
            listener(places)
        except Exception:
            _log.exception("the rebalance listener failed")

    # -- streams and fetchers -------------------------------------------------------------------

    def stream_of(self, topic: str, stream_id: str) -> MessageStream:
        """The stream that a name in ZooKeeper stands for."""
        number = int(stream_id.rpartition("-")[2])
        first = 0
        for name, count in self._subscription.streams.items():
            if name == topic:
                break
            first += count
        return self.streams[first + number]

    def _stream(self, claim: Claim) -> MessageStream:
        return self.stream_of(claim.topic, claim.stream_id)

    def _update_fetchers(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        needed = {place[1].broker_id for place in self._claims}
        for broker_id, fetcher in list(self._fetchers.items()):
            if broker_id not in needed or addresses.get(broker_id) != fetcher.address:
                del self._fetchers[broker_id]
                fetcher.stop()
                fetcher.join()
        for broker_id in needed - self._fetchers.keys():
            self._fetchers[broker_id] = BrokerFetcher(
                broker_id,
                addresses[broker_id],
                self._config,
                self._ownership,
                self._claims_of_broker,
            )
        self.wake_fetchers()

    def _claims_of_broker(self, broker_id: int) -> tuple[Sequence[Claim], int]:
        claims = self.claims()
        share = max(1, self._config.prefetch_bytes // max(1, len(claims)))
        return [each for each in claims if each.partition.broker_id == broker_id], share


def _text(places: Sequence[_Place]) -> str:
    shown = ", ".join(f"{topic} {partition}" for topic, partition in places[:8])
    return shown if len(places) <= 8 else f"{shown} and {len(places) - 8} more"
