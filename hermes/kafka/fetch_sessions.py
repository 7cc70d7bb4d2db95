"""Fetch sessions of consumers: partitions that they follow, and needn't name with each request.

A session listens to each partition of which it has nothing to tell; so a request costs what there
is news of, whatever is followed. A client that knows none, as librdkafka, and names very many
partitions each time has one that it isn't told of, for as long as its connection lasts: it is
answered as ever, but what hasn't changed isn't read again. Brokers that copy partitions have
sessions of their own kind (`hermes.kafka.replicas.serving`), which these can't push out.

Which are given up when there is no room is as in Kafka: what nobody uses any more, then what is
smaller than the session that wants its place, once it has lasted a while.

Source: KIP-227.
"""

import secrets
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol, Self

from hermes.cluster.cluster_topics import ClusterTopics
from hermes.cluster.shared import Shared
from hermes.errors import HermesError
from hermes.partition.partition import Partition
from hermes.partition.waiting import WaitingFetches
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.server.clients import Client

#: A session of fewer partitions gains nothing; one of more would keep others from their turn.
LEAST_PARTITIONS: Final = 2
MOST_PARTITIONS: Final = 4096

#: More partitions than this, named without a session, are followed from then on.
MANY_PARTITIONS: Final = 64

#: About what a session takes, and each of its topics beside its name, and partitions, in bytes.
_SESSION_BYTES: Final = 1024
_TOPIC_BYTES: Final = 512
_PARTITION_BYTES: Final = 320

#: Kafka's `min.incremental.fetch.session.eviction.ms`: how long a session lasts at least, and one
#: that isn't used at most where its place is wanted.
_KEPT_SECONDS: Final = 120.0

#: How often it is looked for a smaller session, of which there may be very many.
_LOOK_SECONDS: Final = 1.0

#: How often all partitions are looked at for what none of their changes tells: retention, and a
#: leader that isn't sure any more of being one.
_CHECK_SECONDS: Final = 5.0

_LARGEST_NUMBER: Final = 2**31 - 1


class Wanted(NamedTuple):
    """What a request wants of one partition, by Kafka's number.

    `topic` is its name, or the bytes of its id; `epoch` is the leader's that the client knows; -1
    if it doesn't say.
    """

    topic: str | bytes
    number: int
    offset: int
    max_bytes: int
    epoch: int


class Read(Protocol):
    """What was read of a partition: see `hermes.kafka.fetching.fetch_messages.Fetched`."""

    @property
    def code(self) -> Code: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def start_offset(self) -> int: ...
    @property
    def end(self) -> int: ...
    @property
    def source(self) -> Partition | None: ...
    @property
    def size_bytes(self) -> int: ...
    def emptied(self) -> Self:
        """The same without what was found."""


class WaitingRequest(Protocol):
    """A session's request that waits until there is enough to tell."""

    def noticed(self, followed: "Followed") -> None:
        """A partition has something new, or is gone."""

    def replaced(self) -> None:
        """Another request of the session has come: nobody wants to hear of this one."""

    def hurry(self) -> None:
        """Respond with whatever there is."""


class Followed:
    """A partition of a session, and what its consumer was told of it.

    Attributes:
        wanted: as it was asked for last.
        source: where the session listens for changes; None while it doesn't.
        told: without what was found; None before anything was.
    """

    __slots__ = ("session", "source", "told", "wanted")

    def __init__(self, session: "FetchSession", wanted: Wanted) -> None:
        self.session = session
        self.wanted = wanted
        self.source: Partition | None = None
        self.told: Read | None = None

    @property
    def is_waiting(self) -> bool:
        """Whether it listens: it may be forgotten while others are told, in turns."""
        return self.source is not None

    def changed(self, key: int, topic: str, partition: int) -> None:
        self.session.noticed(self)

    def tell(self, read: Read) -> bool:
        """Note what the consumer is told, and say whether it must be."""
        is_known = self._is_told(read)
        self.told = read.emptied()
        return bool(read.code or read.size_bytes) or not is_known

    def knows(self, read: Read) -> bool:
        """Whether there is nothing to be told, until the partition changes."""
        return not read.code and self.wanted.offset >= read.end and self._is_told(read)

    def _is_told(self, read: Read) -> bool:
        told = self.told
        return told is not None and (told.high_watermark, told.start_offset) == (
            read.high_watermark,
            read.start_offset,
        )

    @property
    def has_changed(self) -> bool:
        """Whether something of what it listens to is otherwise that no change has told."""
        source = self.source
        if source is None:
            return False
        if source.leadership is not None:
            try:
                source.leadership.check()
            except HermesError:
                return True
        return self.told is None or source.log.view.earliest != self.told.start_offset


class FetchSession:
    """What one consumer follows. Lives in the reactor's thread.

    Attributes:
        epoch: of its last request.
        client: whose it is, as it asked last.
        ready: of which there may be something to tell, in the order in which they are read.
        waiting: the request that waits.
        stamp: what topics and rules were when all partitions were looked at.
        count: of its partitions.
        kind: of one that its client isn't told of, what all its requests have in common.
        is_busy: of such a one, whether a request of it is under way.
        size_bytes: about what it holds in memory.
    """

    def __init__(
        self, number: int, client: Client, is_by_id: bool, waiting: WaitingFetches, now: float
    ) -> None:
        self.number = number
        self.epoch = 0
        self.client = client
        self.is_by_id = is_by_id
        self.ready: dict[Followed, None] = {}
        self.waiting: WaitingRequest | None = None
        self.stamp: object = None
        self.began_at = self.used_at = self.checked_at = now
        self.is_over = self.is_busy = False
        self.kind: object = None
        self.count, self.size_bytes = 0, _SESSION_BYTES
        self._topics: dict[str | bytes, dict[int, Followed]] = {}
        self._listening = waiting

    def take(
        self, wanted: Iterable[Wanted], forgotten: Iterable[tuple[str | bytes, int]] = ()
    ) -> None:
        """Follow what a request names, and what it forgets no more."""
        for each in wanted:
            followed = self._follow(each)
            followed.wanted = each
            self.ready[followed] = None
        for topic, number in forgotten:
            self._forget(topic, number)

    def take_whole(self, wanted: Sequence[Wanted]) -> list[Followed] | None:
        """Follow what a request names, and nothing else; what it asks for in a new way is ready.

        Returns what it names, in its order; None where it names something twice.
        """
        named = []
        for each in wanted:
            one = self._follow(each)
            if one.wanted != each:
                one.wanted = each
                self.ready[one] = None
            named.append(one)
        kept = set(named)
        if len(kept) < len(named):
            return None
        if len(kept) < self.count:
            followed = [each for numbers in self._topics.values() for each in numbers.values()]
            for left in set(followed) - kept:
                self._forget(left.wanted.topic, left.wanted.number)
        return named

    def _follow(self, wanted: Wanted) -> Followed:
        numbers = self._topics.get(wanted.topic)
        if numbers is None:
            numbers = self._topics[wanted.topic] = {}
            self.size_bytes += _size_of(wanted.topic)
        followed = numbers.get(wanted.number)
        if followed is None:
            followed = numbers[wanted.number] = Followed(self, wanted)
            self.ready[followed] = None
            self.count += 1
            self.size_bytes += _PARTITION_BYTES
        return followed

    def _forget(self, topic: str | bytes, number: int) -> None:
        numbers = self._topics.get(topic, {})
        followed = numbers.pop(number, None)
        if followed is None:
            return
        self.count -= 1
        self.size_bytes -= _PARTITION_BYTES
        self.ready.pop(followed, None)
        self._listen(followed, None)
        if not numbers:
            del self._topics[topic]
            self.size_bytes -= _size_of(topic)

    def tell(self, followed: Followed, read: Read) -> bool:
        """Note what the consumer is told of a partition, and say whether it must be."""
        is_news = followed.tell(read)
        self.watch(followed, read)
        if read.size_bytes and followed in self.ready:  # then behind what was not read
            del self.ready[followed]
            self.ready[followed] = None
        return is_news

    def watch(self, followed: Followed, read: Read) -> bool:
        """Listen to a partition from what was read of it on; whether nothing was missed."""
        source = read.source
        if source is None or self.is_over:
            return False
        self._listen(followed, source)
        log = source.log
        is_current = not log.is_closed and log.view.high_watermark == read.high_watermark
        if is_current and followed.knows(read):
            self.ready.pop(followed, None)
        return is_current

    def noticed(self, followed: Followed) -> None:
        self.ready[followed] = None
        if self.waiting is None:
            self._listen(followed, None)  # before it is read, nothing more needs to be heard of it
        else:
            self.waiting.noticed(followed)

    def check_all(self, *, for_all: bool) -> None:
        """Look whether there is something to tell that nobody has told; or read all of them."""
        for numbers in self._topics.values():
            for followed in numbers.values():
                if for_all or followed.has_changed:
                    self.ready[followed] = None

    def end(self) -> None:
        self.is_over = True
        for numbers in self._topics.values():
            for followed in numbers.values():
                self._listen(followed, None)
        self._topics.clear()  # they refer to the session: else only a collection would free them
        self.ready.clear()
        waiting, self.waiting = self.waiting, None
        if waiting is not None:
            waiting.hurry()

    def _listen(self, followed: Followed, source: Partition | None) -> None:
        before = followed.source
        if before is source:
            return
        if before is not None:
            self._listening.forget(followed, before.key)
        if source is not None:
            self._listening.listen(followed, source.key)
        followed.source = source


def _size_of(topic: str | bytes) -> int:
    return _TOPIC_BYTES + 4 * len(topic)


class FetchSessions:
    """All sessions of consumers. Lives in the reactor's thread.

    Attributes:
        used_bytes: what they take, about.
        evicted: how many were given up to make room.
    """

    def __init__(self, shared: Shared, topics: ClusterTopics) -> None:
        self._shared = shared
        self._topics = topics
        self._sessions: dict[int, FetchSession] = {}  # first who hasn't asked for the longest time
        self._whole: dict[Client, FetchSession] = {}  # those that their clients aren't told of
        self._looked_at = 0.0
        self.used_bytes = self.evicted = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[FetchSession]:
        return iter(self._sessions.values())

    @property
    def partitions(self) -> int:
        return sum(each.count for each in self)

    def begin(
        self, client: Client, wanted: Sequence[Wanted], is_by_id: bool
    ) -> FetchSession | None:
        """Begin a session; None where there is no room for it, or no use."""
        if not LEAST_PARTITIONS <= len(wanted) <= MOST_PARTITIONS:
            return None
        session = self._begin(client, wanted, is_by_id)
        if session is not None:
            session.take(wanted)
            self._add(session)
        return session

    def _begin(
        self, client: Client, wanted: Sequence[Wanted], is_by_id: bool
    ) -> FetchSession | None:
        topics = {each.topic for each in wanted}
        size_bytes = _SESSION_BYTES + sum(map(_size_of, topics)) + _PARTITION_BYTES * len(wanted)
        if not self._has_room(size_bytes, len(wanted)):
            return None
        number = 0
        while not number or number in self._sessions:
            number = secrets.randbelow(_LARGEST_NUMBER) + 1
        waiting, now = self._shared.waiting, self._shared.clock.seconds()
        session = FetchSession(number, client, is_by_id, waiting, now)
        session.stamp = self._stamp(client)
        return session

    def whole(
        self, client: Client, wanted: Sequence[Wanted], is_by_id: bool, is_committed: bool
    ) -> tuple[FetchSession, list[Followed]] | None:
        """A session for a request that names all that it wants, and what that is, in its order.

        It is busy until it is answered. None where there is no room for one, or no use.
        """
        kind, session = (is_by_id, is_committed, client.principal), self._whole.get(client)
        if session is not None and session.is_busy:
            return None  # the client has sent another one before it was answered
        if session is not None and session.kind != kind:
            self._end(session)
            session = None
        if not MANY_PARTITIONS < len(wanted) <= MOST_PARTITIONS:
            return None
        if session is None:
            session = self._begin(client, wanted, is_by_id)
            if session is None:
                return None
            session.kind, self._whole[client] = kind, session
        else:
            self._remove(session)
        named = session.take_whole(wanted)
        if named is None or not self._has_room(session.size_bytes, session.count):
            del self._whole[client]
            session.end()
            return None
        self._add(session)
        self._check(session)
        session.is_busy = True
        return session, named

    def go_on(
        self,
        number: int,
        epoch: int,
        client: Client,
        is_by_id: bool,
        wanted: Sequence[Wanted],
        forgotten: Sequence[tuple[str | bytes, int]],
    ) -> FetchSession | None:
        """Take a session's next request; None where with it nothing is followed any more.

        Raises KafkaError: it isn't one.
        """
        session = self._own(number, client)
        if session is None:
            raise KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND)
        if epoch != epoch_after(session.epoch):
            raise KafkaError(Code.INVALID_FETCH_SESSION_EPOCH)
        if is_by_id != session.is_by_id:
            raise KafkaError(Code.FETCH_SESSION_TOPIC_ID_ERROR)
        session.epoch, session.client = epoch, client
        waiting, session.waiting = session.waiting, None
        if waiting is not None:
            waiting.replaced()
        self._remove(session)  # behind all others, or nowhere
        session.take(wanted, forgotten)
        if not session.count:
            session.end()
            return None
        if session.count > MOST_PARTITIONS or not self._has_room(session.size_bytes, session.count):
            session.end()
            raise KafkaError(Code.FETCH_SESSION_ID_NOT_FOUND)
        self._add(session)
        self._check(session)
        return session

    def end(self, number: int, client: Client) -> None:
        """End a session of a client's, if it has one of that number."""
        session = self._own(number, client)
        if session is not None:
            self._end(session)

    def _own(self, number: int, client: Client) -> FetchSession | None:
        session = self._sessions.get(number)
        if session is None or session.kind is not None:
            return None
        is_own = session.client.principal == client.principal
        return session if is_own else None

    def _check(self, session: FetchSession) -> None:
        now, stamp = self._shared.clock.seconds(), self._stamp(session.client)
        session.used_at = now
        is_other = stamp != session.stamp
        if is_other or now - session.checked_at >= _CHECK_SECONDS:
            session.stamp, session.checked_at = stamp, now
            session.check_all(for_all=is_other)

    def _stamp(self, client: Client) -> object:
        """A value that is equal as long as topics and what a client may read are the same."""
        return self._topics.revision, self._shared.refusals.stamp(client.principal)

    def leave(self, session: FetchSession) -> None:
        """End a session whose client has left, unless it is over."""
        if not session.is_over:
            self._end(session)

    def _add(self, session: FetchSession) -> None:
        self._sessions[session.number] = session
        self.used_bytes += session.size_bytes

    def _remove(self, session: FetchSession) -> None:
        del self._sessions[session.number]
        self.used_bytes -= session.size_bytes

    def _end(self, session: FetchSession) -> None:
        self._remove(session)
        if session.kind is not None:
            del self._whole[session.client]
        session.end()

    def _has_room(self, size_bytes: int, count: int) -> bool:
        limit_bytes = self._shared.config.fetch_session_memory_bytes
        while self.used_bytes + size_bytes > limit_bytes:
            dispensable = self._dispensable(count)
            if dispensable is None:
                return False
            self._end(dispensable)
            self.evicted += 1
        return True

    def _dispensable(self, count: int) -> FetchSession | None:
        """A session that another of so many partitions may take the place of."""
        now = self._shared.clock.seconds()
        oldest = next(iter(self), None)
        if oldest is None:
            return None
        if oldest.client.has_left or now - oldest.used_at > _KEPT_SECONDS:
            return oldest
        if now - self._looked_at < _LOOK_SECONDS:
            return None
        self._looked_at = now
        had_their_time = (each for each in self if now - each.began_at > _KEPT_SECONDS)
        smallest = min(had_their_time, key=lambda each: each.count, default=None)
        return smallest if smallest is not None and smallest.count < count else None


def epoch_after(epoch: int) -> int:
    """The epoch of a session's next request: 0 and below mean other things."""
    return 1 if epoch == _LARGEST_NUMBER else epoch + 1
