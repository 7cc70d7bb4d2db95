"""A thread that keeps a consumer's partitions in step with its group.

A rebalance compares the present state (who is registered, what exists, what is ours) with the
assignment, releases what must go and takes what is missing. Whatever may change the outcome (a
member, a broker, a topic, an owner that leaves, a new session) wakes the thread, which starts over.
What can't be taken yet is retried after a pause, for ever.

Nodes that others have written are not trusted. One that can't be understood affects only what it
describes: a broker, a topic's partitions on a broker, a member's subscription, one of our
partitions. It is logged once, and read again; everything else continues.

The life of a partition while a consumer owns it:
    take      a transaction makes us its owner and bumps the version of its offset
    fetch     from the stored offset
    hand out  in runs, while the session's lease lasts
    release   nothing more is handed out; the application finishes its message (for a while); the
              listener is called; the offset is committed; the owner's node is deleted
Partitions that keep their owner are fetched all the while.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from kazoo.exceptions import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)

from hermes.backoff import growing_pause
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import BrokerFetcher, FetchThread, MakeFetcher
from hermes.client.groups.streams import Claim, MessageStream
from hermes.client.metrics import ConsumerCounters, GroupMetrics, PartitionPosition
from hermes.coordination.cluster_view import NodeFaults, leaders_of, read_brokers, read_topics
from hermes.coordination.layout import (
    BrokerPartition,
    GroupPaths,
    Subscription,
    assign,
    format_number,
    format_subscription,
    parse_number,
    parse_subscription,
    stream_ids,
)
from hermes.coordination.nodes import Node
from hermes.coordination.sessions import Session
from hermes.errors import (
    ClientError,
    ConfigError,
    CoordinationError,
    CoordinationUnavailableError,
    HermesError,
    IdInUseError,
    InvalidNodeError,
    is_refusal,
)
from hermes.quoting import quoted

_log = logging.getLogger(__name__)

#: Called with the partitions that are about to be released, or were taken.
RebalanceCallback = Callable[[Sequence[tuple[str, BrokerPartition]]], None]
_TopicPartition = tuple[str, BrokerPartition]
_Addresses = Mapping[int, tuple[str, int]]

# After this many attempts in a row that nothing triggered, at `rebalance_backoff` each, they become
# rarer.
_FREQUENT_ATTEMPTS: Final = 10
_RAREST: Final = 25
# How many partitions are taken before fetching starts for them.
_TAKEN_AT_ONCE: Final = 100
# How many session timeouts another member may keep a partition of ours before that is logged.
_HANDOVER_TIMEOUTS: Final = 2
_OWNER_VERSION: Final = 1
# Another client may change a node between our reading and writing it: rarely, and not for long.
_ATTEMPTS: Final = 5


class _Outcome(NamedTuple):
    waits: bool  # for others to release what is ours, or for ZooKeeper
    is_faulty: bool  # a node keeps us from what is ours


class Ownership:
    """Owners and offsets of a group in ZooKeeper, fenced against former owners. Thread-safe.

    Taking a partition is one transaction: the owner's node is created and written once (its version
    is 1 from then on, where other implementations leave 0), and the offset's node is rewritten,
    which bumps its version. A commit is one too: the owner's node must have version 1, the offset's
    the version last seen. So the commit of a former owner fails; but a member of Kafka 0.7 commits
    without any check.
    """

    def __init__(self, session: Session, paths: GroupPaths) -> None:
        self._session = session
        self._paths = paths
        self._made: set[str] = set()

    def take(self, claim: Claim) -> Node | None:
        """Become a partition's owner; the claim then has its offset, if one is stored.

        Returns None, or the node of another owner; `on_change` is called when that is deleted.

        Raises:
            InvalidNodeError: a node of the partition can't be used; nothing was taken.
            CoordinationUnavailableError: the outcome is unknown; try again.
        """
        owner, offset = self._places(claim)
        for parent in (self._paths.owners(claim.topic), self._paths.offsets(claim.topic)):
            if parent not in self._made:
                self._session.ensure_path(parent)
                self._made.add(parent)
        value = claim.stream_id.encode()
        for _ in range(_ATTEMPTS):
            stored = self._session.get(offset)
            start = None if stored is None else parse_number(offset, stored.value)

            def fill(transaction: Any, stored: Any = stored) -> None:
                transaction.create(owner, value, ephemeral=True)
                transaction.set_data(owner, value)
                if stored is not None:
                    transaction.set_data(offset, stored.value, stored.version)

            failure = _failure(self._session.transact(fill))
            if failure is None:
                claim.committed = start
                claim.offset_version = None if stored is None else stored.version + 1
                return None
            if isinstance(failure, NodeExistsError):
                found = self._session.get(owner, watch=True)
                if found is not None and found.owner != self._session.session_id:
                    return found
                # Ours, from an attempt whose response was lost: start over.
                self._session.delete_own(owner)
            elif isinstance(failure, NoNodeError):
                self._made.clear()
                self._session.ensure_path(self._paths.owners(claim.topic))
            elif not isinstance(failure, BadVersionError):
                raise InvalidNodeError(f"{owner}: ZooKeeper refuses to register it: {failure!r}")
        raise InvalidNodeError(f"{owner}: it, or the offset, keeps changing")

    def commit(self, claim: Claim, offset: int) -> bool:
        """Store where to resume; False if the partition is no longer ours, and nothing was stored.

        Raises CoordinationUnavailableError if the outcome is unknown; try again.
        """
        owner, path = self._places(claim)
        if self._session.session_id != claim.session_id:
            if self._session.session_id is None:
                raise CoordinationUnavailableError("there is no connection to ZooKeeper")
            return False
        value = format_number(offset)
        for _ in range(_ATTEMPTS):
            version = claim.offset_version

            def fill(transaction: Any, version: int | None = version) -> None:
                transaction.check(owner, _OWNER_VERSION)
                if version is None:
                    transaction.create(path, value)
                else:
                    transaction.set_data(path, value, version)

            results = self._session.transact(fill)
            if _failure(results) is None:
                claim.offset_version = 0 if version is None else results[1].version
                claim.committed = offset
                return True
            # Perhaps changed by an earlier attempt whose response was lost: check the owner.
            found, stored = self._session.get(owner), self._session.get(path)
            if found is None or found.owner != claim.session_id or found.version != _OWNER_VERSION:
                break
            claim.offset_version = None if stored is None else stored.version
        _log.warning("%s: offset %d was not committed, another member owns it", claim, offset)
        return False

    def give_back(self, claim: Claim) -> None:
        owner, _ = self._places(claim)
        found = self._session.get(owner)
        if found is not None and found.owner == claim.session_id == self._session.session_id:
            self._session.delete(owner, found.version)

    def _places(self, claim: Claim) -> tuple[str, str]:
        partition: BrokerPartition = claim.partition
        return (
            self._paths.owner(claim.topic, partition),
            self._paths.offset(claim.topic, partition),
        )


class GroupMember:
    """One consumer's part in its group.

    Args:
        session: started; its `on_change` must call `wake`.
        on_release: called before partitions are released, in the membership's thread.
        on_take: called after partitions were taken.
        make_claim: makes what stands for a partition that is owned.
        make_fetcher: makes what fetches for the partitions of a broker.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        consumer_id: str,
        session: Session,
        on_release: RebalanceCallback,
        on_take: RebalanceCallback,
        make_claim: Callable[..., Claim] = Claim,
        make_fetcher: MakeFetcher = BrokerFetcher,
    ) -> None:
        self._config = config
        self._consumer_id = consumer_id
        self._session = session
        self._on_release = on_release
        self._on_take = on_take
        self._make_claim = make_claim
        self._make_fetcher = make_fetcher
        self._paths = GroupPaths(config.group)
        self._ownership = Ownership(session, self._paths)
        self._subscription = Subscription({})
        self.streams: Sequence[MessageStream] = ()
        self._claims: dict[_TopicPartition, Claim] = {}
        self._fetchers: dict[int, FetchThread] = {}
        self._leaders: Mapping[_TopicPartition, int] = {}
        self._session_id: int | None = None
        self._wake = threading.Event()
        self._has_settled = threading.Event()
        self._problem: HermesError | None = None
        self._faults = NodeFaults(_log, f"group {config.group!r}")
        self._blocked: dict[_TopicPartition, float] = {}
        self._doubtful: set[_TopicPartition] = set()  # perhaps taken: nobody has heard
        self._stopping = False
        self._commit_lock = threading.Lock()
        self._counters = ConsumerCounters()
        self._taken = self._lost = self._commits = self._failed_commits = 0
        self._thread = threading.Thread(target=self._run, name="hermes-membership", daemon=True)

    def start(self, subscription: Subscription, streams: Sequence[MessageStream]) -> None:
        """Join the group, and return after the first rebalance that waited for no other member.

        The streams are those of the first topic, then of the second, and so on; or those of the
        filter, each for all topics.

        Raises:
            IdInUseError: another live consumer has this id.
            CoordinationNotAuthorizedError: it may not be in this group.
        """
        self._subscription = subscription
        self.streams = streams
        self._thread.start()
        deadline = time.monotonic() + 1.5 * self._session.timeout_seconds
        while not self._has_settled.wait(0.1):
            if self._problem is not None and is_refusal(self._problem):
                raise self._problem
            if time.monotonic() > deadline:
                if isinstance(self._problem, IdInUseError):
                    raise self._problem
                return  # it keeps trying, and the streams raise what is wrong

    def check_thread(self) -> None:
        """Raise ClientError for a listener, which leaving the group would wait for in vain."""
        if threading.current_thread() is self._thread:
            raise ClientError("shutdown can't be called by a rebalance listener")

    def stop(self) -> None:
        """Leave the group. Bounded, also without ZooKeeper."""
        self._stopping = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()
        else:
            self._leave()

    def _leave(self) -> None:
        for stream in self.streams:
            stream.close()
        try:
            self._release(list(self._claims.values()), wait=False)
            self._session.delete_own(self._paths.member(self._consumer_id))
        except CoordinationError as error:
            _log.warning("left group %r without deregistering: %s", self._config.group, error)
        for fetcher in self._fetchers.values():
            fetcher.stop()
        for fetcher in self._fetchers.values():
            fetcher.join()

    def wake(self) -> None:
        """Trigger a rebalance. Any thread may call it, also kazoo's."""
        self._wake.set()

    def wake_fetchers(self) -> None:
        for fetcher in list(self._fetchers.values()):
            fetcher.wake()

    def claims(self) -> list[Claim]:
        return list(self._claims.values())

    def commit(self, claims: Sequence[Claim] | None = None) -> None:
        """Store the offsets that the application has finished with.

        Raises CoordinationUnavailableError if ZooKeeper does not answer; some may be stored.
        """
        with self._commit_lock:
            for claim in self.claims() if claims is None else claims:
                with claim.lock:
                    finished, known = claim.finished, claim.fetch_offset is not None
                if not known or claim.is_lost or finished == claim.committed:
                    continue
                if self._ownership.commit(claim, finished):
                    self._commits += 1
                else:
                    self._failed_commits += 1
                    self._lose([claim])
                    self._wake.set()

    def metrics(self) -> GroupMetrics:
        partitions = tuple(
            PartitionPosition(
                claim.topic, *claim.partition, position=claim.position, committed=claim.committed
            )
            for claim in self.claims()
        )
        return GroupMetrics(
            self._counters.snapshot(),
            self._taken,
            self._lost,
            self._commits,
            self._failed_commits,
            partitions,
        )

    # -- the thread -----------------------------------------------------------------------------

    def _run(self) -> None:
        retry = self._config.seconds("rebalance_backoff")
        interval = self._config.seconds("auto_commit_interval")
        next_commit = time.monotonic() + interval
        self._wake.set()
        is_settled, unwoken = False, 0
        while True:
            pause = max(0.0, next_commit - time.monotonic())
            rarer = max(0, unwoken - _FREQUENT_ATTEMPTS)
            next_attempt = growing_pause(retry, rarer, _RAREST * retry)
            self._wake.wait(pause if is_settled else min(pause, next_attempt))
            # Not what `wait` returned: a wake-up just after its timeout counts, too.
            woken = self._wake.is_set()
            if woken:
                self._wake.clear()
            if self._stopping:
                # Here, so that the listener is called in the same thread as always: if it commits,
                # it speaks for none of the application's threads.
                self._leave()
                return
            if woken or not is_settled:
                unwoken = 0 if woken else unwoken + 1
                is_settled = self._look()
            if time.monotonic() >= next_commit:
                next_commit = time.monotonic() + interval
                self._auto_commit()

    def _look(self) -> bool:
        try:
            left = self._rebalance()
        except HermesError as error:
            self._report(error)
            return False
        except Exception as error:
            _log.exception("group %r: rebalancing failed", self._config.group)
            failure = CoordinationError(f"rebalancing failed: {error!r:.200}")
            failure.__cause__ = error
            self._report(failure)
            return False
        self._faults.looked()
        if not left.waits:
            self._problem = None
            self._has_settled.set()
        return not (left.waits or left.is_faulty)

    def _report(self, error: HermesError) -> None:
        is_new = str(error) != str(self._problem)
        self._problem = error
        if not is_new:
            return
        _log.warning("group %r: rebalancing is tried again: %s", self._config.group, error)
        if not isinstance(error, CoordinationUnavailableError):
            for stream in self.streams:
                stream.fail(error)

    def _auto_commit(self) -> None:
        if not self._config.auto_commit:
            return
        try:
            self.commit()
        except CoordinationError as error:
            _log.warning("group %r: could not commit offsets: %s", self._config.group, error)

    # -- rebalancing ----------------------------------------------------------------------------

    def _rebalance(self) -> _Outcome:
        session_id = self._session.session_id
        if session_id is None:
            return _Outcome(waits=True, is_faulty=False)
        if session_id != self._session_id:
            self._lose(self.claims())  # what the old session owned went with it
            self._session_id = session_id
        self._register()
        brokers = read_brokers(
            self._session, self._faults.note, watch=True, security=self._config.security
        )
        addresses = {b: (node.host, node.port) for b, node in brokers.items()}
        assigned, leaders = self._read_assignment()
        wanted = {
            place: stream_id
            for place, stream_id in assigned.items()
            if place[1].broker_id in brokers or leaders[place] != place[1].broker_id
        }
        leaving = [
            claim
            for place, claim in list(self._claims.items())  # commits may lose some meanwhile
            # One whose release was cut off reads nothing any more, even if it is wanted again.
            if claim.is_revoked or wanted.get(place) != claim.stream_id
        ]
        self._release(leaving)
        self._leave_doubtful(wanted)
        self._use_leaders(leaders)
        self._update_fetchers(addresses)
        return self._take(wanted, session_id, addresses)

    def _register(self) -> None:
        path = self._paths.member(self._consumer_id)
        other = self._session.create_ephemeral(path, format_subscription(self._subscription))
        self._session.get(path, watch=True)
        if other is not None:
            raise IdInUseError(
                f"consumer id {self._consumer_id!r} is in use in group {self._config.group!r}"
            )

    def _read_assignment(
        self,
    ) -> tuple[dict[_TopicPartition, str], dict[_TopicPartition, int]]:
        """What is assigned to this member; and of all partitions who leads them."""
        members = {}
        for name in self._session.children(self._paths.ids, watch=True):
            path = self._paths.member(name)
            node = self._session.get(path, watch=True)
            if node is not None:
                try:
                    members[name] = parse_subscription(path, node.value)
                except InvalidNodeError as fault:
                    self._faults.note(fault, "it is treated as subscribing to nothing")
        chosen = self._subscription.topic_filter
        topics = list(self._subscription.streams)
        if chosen is not None:
            topics = [
                each for each in read_topics(self._session, watch=True) if chosen.allows(each)
            ]
        partitions: dict[str, dict[int, list[int]]] = {topic: {} for topic in topics}
        leaders = {}
        for topic in topics:
            led = leaders_of(self._session, topic, self._faults.note, watch=True)
            for place, leader in led.items():
                partitions[topic].setdefault(place.broker_id, []).append(place.partition)
                leaders[topic, place] = leader
        ours = {
            topic: stream_ids(self._consumer_id, self._subscription.streams_of(topic))
            for topic in topics
        }
        return {
            (topic, partition): stream_id
            for topic, assigned in assign(partitions, members, self._note_filter).items()
            for partition, stream_id in assigned.items()
            if stream_id in ours[topic]
        }, leaders

    def _note_filter(self, consumer_id: str, error: ConfigError) -> None:
        fault = InvalidNodeError(f"{self._paths.member(consumer_id)}: {error}")
        self._faults.note(fault, "it is treated as subscribing to nothing")

    def _take(
        self, wanted: Mapping[_TopicPartition, str], session_id: int, addresses: _Addresses
    ) -> _Outcome:
        taken: list[_TopicPartition] = []
        waits = is_faulty = False
        missing = {place: owner for place, owner in wanted.items() if place not in self._claims}
        self._blocked = {place: since for place, since in self._blocked.items() if place in missing}
        try:
            for place in _interleaved(missing):
                if self._stopping:
                    break
                try:
                    other = self._take_one(place, missing[place], session_id)
                except InvalidNodeError as fault:
                    is_faulty = True
                    if self._faults.note(fault, f"{place[0]} {place[1]} is not read"):
                        self.stream_of(place[0], missing[place]).fail(fault)
                    continue
                if other is not None:
                    is_faulty = is_faulty or not other.owner
                    waits = waits or bool(other.owner)
                    self._note_other_owner(place, other)
                    continue
                taken.append(place)
                if not len(taken) % _TAKEN_AT_ONCE:
                    self._update_fetchers(addresses)
        finally:
            if taken:
                self._update_fetchers(addresses)
                _log.info("group %r: took %s", self._config.group, _text(taken))
                self._notify_listener(self._on_take, taken)
        return _Outcome(waits, is_faulty)

    def _take_one(self, place: _TopicPartition, stream_id: str, session_id: int) -> Node | None:
        stream = self.stream_of(place[0], stream_id)
        lease = self._session.lease(session_id)
        claim = self._make_claim(*place, stream_id, stream.lock, lease)
        self._doubtful.add(place)
        other = self._ownership.take(claim)
        self._doubtful.discard(place)
        if other is not None:
            return other
        if claim.committed is not None:
            claim.start_at(claim.committed)
        self._claims[place] = claim
        self._taken += 1
        stream.replace_claims(add=[claim])
        return None

    def _note_other_owner(self, place: _TopicPartition, other: Node) -> None:
        """Log who keeps a partition of ours, once it can't be a handover any more."""
        since = self._blocked.setdefault(place, time.monotonic())
        owner = quoted(other.value.decode(errors="replace"))
        if not other.owner:
            what = f"{owner} is registered without a session, and so for good"
        elif time.monotonic() - since > _HANDOVER_TIMEOUTS * self._session.timeout_seconds:
            what = f"{owner} keeps it, contrary to the assignment"
        else:
            return
        path = self._paths.owner(*place)
        self._faults.note(InvalidNodeError(f"{path}: {what}"), f"{self._consumer_id} can't read it")

    def _release(self, claims: Sequence[Claim], *, wait: bool = True) -> None:
        """So that the next owner resumes where the application is."""
        if not claims:
            return
        for claim in claims:
            self._stream(claim).revoke([claim])
        deadline = time.monotonic() + (self._config.seconds("release_wait") if wait else 0)
        for claim in claims:
            if not self._stream(claim).wait_until_finished(claim, deadline) and wait:
                _log.warning(
                    "%s: the message in the application's hands will be delivered again", claim
                )
        places = [(claim.topic, claim.partition) for claim in claims]
        self._notify_listener(self._on_release, places)
        if self._config.auto_commit:
            self.commit(claims)
        for claim in claims:
            self._ownership.give_back(claim)
        self._lose(claims)
        _log.info("group %r: released %s", self._config.group, _text(places))

    def _leave_doubtful(self, wanted: Mapping[_TopicPartition, str]) -> None:
        """Own nothing that was taken unheard, and is another member's by now."""
        for place in self._doubtful - wanted.keys():
            self._session.delete_own(self._paths.owner(*place))
            self._doubtful.discard(place)

    def _lose(self, claims: Sequence[Claim]) -> None:
        for claim in claims:
            stream = self._stream(claim)
            stream.revoke([claim], lost=True)
            stream.replace_claims(remove=[claim])
            place = (claim.topic, claim.partition)
            if self._claims.get(place) is claim:
                del self._claims[place]
                self._lost += 1

    def _notify_listener(
        self, listener: RebalanceCallback, places: Sequence[_TopicPartition]
    ) -> None:
        try:
            listener(places)
        except BaseException:  # an exit, too, would end this thread alone, and nobody would know
            _log.exception("the rebalance listener failed")

    # -- streams and fetchers -------------------------------------------------------------------

    def stream_of(self, topic: str, stream_id: str) -> MessageStream:
        number = int(stream_id.rpartition("-")[2])
        first = 0
        for name, count in self._subscription.streams.items():
            if name == topic:
                break
            first += count
        return self.streams[first + number]

    def _stream(self, claim: Claim) -> MessageStream:
        return self.stream_of(claim.topic, claim.stream_id)

    def _use_leaders(self, leaders: Mapping[_TopicPartition, int]) -> None:
        """Fetch from who leads now. Who did before ends first: nothing is fetched from both."""
        before, self._leaders = self._leaders, leaders
        moved = {
            before[place]
            for place in list(self._claims)
            if before.get(place, leaders[place]) != leaders[place]
        }
        for broker_id in moved & self._fetchers.keys():
            self._stop_fetcher(broker_id)

    def _stop_fetcher(self, broker_id: int) -> None:
        fetcher = self._fetchers.pop(broker_id)
        fetcher.stop()
        fetcher.join()

    def _update_fetchers(self, addresses: _Addresses) -> None:
        needed = {self._leaders[place] for place in list(self._claims)} & addresses.keys()
        for broker_id, fetcher in list(self._fetchers.items()):
            if broker_id not in needed or addresses.get(broker_id) != fetcher.address:
                self._stop_fetcher(broker_id)
        for broker_id in needed - self._fetchers.keys():
            self._fetchers[broker_id] = self._make_fetcher(
                broker_id,
                addresses[broker_id],
                self._config,
                self._ownership.commit,
                self._claims_of_broker,
                self._counters,
            )
        self.wake_fetchers()

    def _claims_of_broker(self, broker_id: int) -> tuple[Sequence[Claim], int]:
        claims = self.claims()
        share = max(1, self._config.prefetch_bytes // max(1, len(claims)))
        leaders = self._leaders
        led = [each for each in claims if leaders.get((each.topic, each.partition)) == broker_id]
        return led, share


def _failure(results: list[Any]) -> Exception | None:
    failures = [each for each in results if isinstance(each, Exception)]
    # Operations beside the one that failed say RolledBack (before it) or RuntimeInconsistency.
    causes = [
        each for each in failures if not isinstance(each, RolledBackError | RuntimeInconsistency)
    ]
    return next(iter(causes or failures), None)


def _interleaved(places: Mapping[_TopicPartition, str]) -> Iterator[_TopicPartition]:
    """The first partition of each topic, then the second of each, so that no topic has to wait."""
    by_topic: dict[str, list[_TopicPartition]] = {}
    for place in places:
        by_topic.setdefault(place[0], []).append(place)
    return (place for turn in zip_longest(*by_topic.values()) for place in turn if place)


def _text(places: Sequence[_TopicPartition]) -> str:
    shown = ", ".join(f"{topic} {partition}" for topic, partition in places[:8])
    return shown if len(places) <= 8 else f"{shown} and {len(places) - 8} more"
