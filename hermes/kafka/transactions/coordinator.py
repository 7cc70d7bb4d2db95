"""The transactional ids whose partitions of `__transaction_state` this broker leads.

What is kept of an id is read when its partition comes to be led here, and what is decided of it is
on disk before anybody hears of it: one change of an id at a time. Whoever led before may still
believe to: what it appends is refused, and its markers are fenced by the epoch.
"""

from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final, Literal, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.announcement import Announcement
from hermes.cluster.cluster_topics import ClusterTopic, ClusterTopics
from hermes.cluster.producer_ids import ProducerIds
from hermes.cluster.shared import Shared
from hermes.cluster.topic_changes import TopicChanges
from hermes.errors import HermesError, NotLeaderError, TopicExistsError
from hermes.kafka.transactions.ending import Ending
from hermes.kafka.transactions.state_log import StateLog
from hermes.limited_log import LimitedLog
from hermes.logs import ModuleLogger
from hermes.partition.partition import Partition
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.security import LONGEST_NAME
from hermes.server.clients import UNKNOWN_CLIENT
from hermes.transactions import deciding
from hermes.transactions.deciding import Producer, ProducerIdNeededError
from hermes.transactions.state import STATE_TOPIC, Place, State, Transaction, partition_of

#: Into how many partitions ids are spread, and how many copies these get at least, where there are
#: brokers.
_PARTITIONS: Final = 16
_COPIES: Final = 3

#: How long a transaction may be given to end, and an id is kept that nobody uses: Kafka's defaults.
MOST_TIMEOUT_MS: Final = 15 * 60 * 1000
_RETENTION_MS: Final = 7 * 24 * 3600 * 1000

#: A broker knows no more transactional ids: each takes a kilobyte. And no more partitions and
#: groups in their transactions together, which take 200 bytes each.
_MOST_IDS: Final = 100_000
_MOST_PLACES: Final = 500_000

#: How long a request waits for another change of its id, before its client has to ask again.
PATIENCE_SECONDS: Final = 1.0

#: When a partition is read again that couldn't be read.
_UNREADABLE_SECONDS: Final = 10.0

#: How often it is looked what is led here, which transactions are late, and which ids have expired.
_LOOK_SECONDS: Final = 0.5
_EXPIRY_LOOKS: Final = 1000

#: So many of a part are forgotten at once: each is written, and others wait meanwhile.
_FORGOTTEN_AT_ONCE: Final = 200

_SETTINGS: Final = {"cleanup_policy": "compact"}


#: How a transaction ends: `fenced`, its producer had a successor; `timed_out`, nobody ended it.
_End: TypeAlias = Literal["committed", "aborted", "timed_out", "fenced"]

#: From what is known, the time, and a producer id where one was needed, what is to be known.
_Decide: TypeAlias = Callable[[Transaction | None, int, int | None], Transaction]


class Entry:
    """What is known of one id; None while it is a new one whose first state is being stored."""

    __slots__ = ("changed", "is_changing", "transaction")

    def __init__(self) -> None:
        self.transaction: Transaction | None = None
        self.is_changing = False
        self.changed: Announcement[bool] = Announcement()


class Part:
    """The ids of one partition of the state, for as long as this broker leads that in one epoch.

    Attributes:
        ongoing: the names of those whose transactions are.
        places: how many there are in all transactions.
        loading: tells those who wait until it is read; None once it is.
    """

    def __init__(self, log: StateLog) -> None:
        self.log = log
        self.entries: dict[str, Entry] = {}
        self.ongoing: set[str] = set()
        self.places = 0
        self.loading: Announcement[None] | None = Announcement()

    def note(self, name: str, made: Transaction | None) -> None:
        """It is stored."""
        entry = self.entries.setdefault(name, Entry())
        for each, sign in ((entry.transaction, -1), (made, 1)):
            self.places += 0 if each is None else sign * len(each.places)
        entry.transaction = made
        is_ongoing = made is not None and made.state is State.ONGOING
        (self.ongoing.add if is_ongoing else self.ongoing.discard)(name)


class TransactionCoordinator:
    """Lives in the reactor's thread. What can't be done raises KafkaError.

    Attributes:
        ended: how many were decided here, and how.
    """

    def __init__(
        self,
        shared: Shared,
        topics: ClusterTopics,
        changes: TopicChanges,
        producer_ids: ProducerIds,
        ending: Ending,
    ) -> None:
        self._shared = shared
        self._topics = topics
        self._changes = changes
        self._producer_ids = producer_ids
        self._ending = ending
        self._log = LimitedLog(ModuleLogger(), shared.clock.seconds)
        self._parts: dict[int, Part] = {}
        self.ended = dict[_End, int].fromkeys(("committed", "aborted", "timed_out", "fenced"), 0)
        self._unreadable: dict[int, float] = {}  # until when, by their numbers
        self._creating: Announcement[None] | None = None
        self._timer: Any = None
        self._looks = 0
        self._is_stopped = False

    # -- begin and end --------------------------------------------------------------------------

    def begin(self) -> None:
        """Look after transactions from now on, also after those that nobody asks for."""
        self._timer = self._shared.clock.callLater(_LOOK_SECONDS, self._look)

    def stop(self) -> None:
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ending.stop()
        for number, part in list(self._parts.items()):
            self._leave(number, part)

    # -- who coordinates ------------------------------------------------------------------------

    async def coordinator_of(self, transactional_id: str) -> int:
        """The broker that coordinates an id, -1 for none now; the first one makes the topic."""
        topic = await self.topic()
        if topic is None:
            return -1
        return topic.leader(partition_of(transactional_id, len(topic.partitions)))

    async def topic(self) -> ClusterTopic | None:
        """The topic of what is decided, made for the first who asks; None if it can't be now."""
        if self._topics.get(STATE_TOPIC) is None:
            await self._create()
        return self._topics.get(STATE_TOPIC)

    async def _create(self) -> None:
        """Create the topic, once for all who wait for that."""
        if self._creating is not None:
            await self._creating.wait()
            return
        self._creating = created = Announcement[None]()
        try:
            # Of a cluster that is still starting few brokers are there.
            least = self._shared.config.default_replication_factor
            copies = max(least, min(_COPIES, len(self._topics.broker_ids)))
            await self._changes.create(STATE_TOPIC, _PARTITIONS, _SETTINGS, UNKNOWN_CLIENT, copies)
        except TopicExistsError:
            pass
        except HermesError as error:
            self._log.error("topic", "__transaction_state can't be created: {error}", error=error)
        finally:
            self._creating = None
            created.tell(None)

    async def _part_of(self, transactional_id: str) -> Part:
        if not 0 < len(transactional_id) <= LONGEST_NAME:
            raise KafkaError(Code.INVALID_REQUEST)
        topic = self._topics.get(STATE_TOPIC)
        if topic is None or self._is_stopped:
            raise KafkaError(Code.NOT_COORDINATOR)
        part = self._led(partition_of(transactional_id, len(topic.partitions)))
        if part.loading is not None:
            await part.loading.wait()
        self._check(part)
        return part

    def _led(self, number: int) -> Part:
        """The part of a partition that this broker leads; begun if it hasn't been, yet."""
        partition = self._partition(number)
        part = self._parts.get(number)
        if part is not None and part.log.partition is partition and part.log.is_current:
            return part
        if part is not None:
            self._leave(number, part)
        if self._shared.clock.seconds() < self._unreadable.get(number, 0.0):
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE)
        log = StateLog(self._shared, partition)
        if not log.is_readable:
            raise KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        part = self._parts[number] = Part(log)

        def failed(failure: Failure) -> None:
            self._log.failure("load", "transactions can't be read", failure)
            self._leave(number, part)

        Deferred.fromCoroutine(self._load(number, part)).addErrback(failed)
        return part

    def _numbers_led(self) -> list[int]:
        topic = self._topics.get(STATE_TOPIC)
        numbers = range(0 if topic is None else len(topic.partitions))
        own = self._topics.broker_id
        return [each for each in numbers if topic is not None and topic.leader(each) == own]

    def _partition(self, number: int) -> Partition:
        try:
            return self._topics.partition(STATE_TOPIC, number)
        except NotLeaderError as error:
            raise KafkaError(Code.NOT_COORDINATOR) from error
        except HermesError as error:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def _load(self, number: int, part: Part) -> None:
        try:
            found = await self._shared.in_thread(part.log.read)
        except HermesError as error:
            self._log.error("load", "transactions can't be read: {error}", error=error)
            self._unreadable[number] = self._shared.clock.seconds() + _UNREADABLE_SECONDS
            self._leave(number, part)
            return
        if self._parts.get(number) is not part or not part.log.is_current:
            self._leave(number, part)
            return
        for name, each in found.items():
            part.note(name, each)
        loaded, part.loading = part.loading, None
        for name, entry in part.entries.items():
            if entry.transaction is not None and entry.transaction.state.is_prepared:
                self._end(part, name, entry.transaction)
        if loaded is not None:
            loaded.tell(None)

    def _leave(self, number: int, part: Part) -> None:
        if self._parts.get(number) is part:
            del self._parts[number]
        loaded, part.loading = part.loading, None
        part.log.is_doubtful = True
        if loaded is not None:
            loaded.tell(None)

    def _check(self, part: Part) -> None:
        if self._is_stopped or not part.log.is_current:
            raise KafkaError(Code.NOT_COORDINATOR)

    # -- what is asked --------------------------------------------------------------------------

    async def initialize(
        self, transactional_id: str, timeout_ms: int, expected: Producer | None
    ) -> Transaction:
        """Give a producer its id and epoch, once what its predecessor had under way is aborted."""
        if not 0 < timeout_ms <= MOST_TIMEOUT_MS:
            raise KafkaError(Code.INVALID_TRANSACTION_TIMEOUT)
        part = await self._part_of(transactional_id)
        count = sum(len(each.entries) for each in self._parts.values())
        if count >= _MOST_IDS and transactional_id not in part.entries:
            raise KafkaError(Code.POLICY_VIOLATION, f"There are {count} transactional ids already.")

        def decide(known: Transaction | None, now_ms: int, new_id: int | None) -> Transaction:
            return deciding.initialized(known, expected, timeout_ms, now_ms, new_id)

        made = await self._change(part, transactional_id, decide, aborted="fenced")
        if made.state.is_prepared:
            made = await self._change(part, transactional_id, decide)
        return made

    async def join(
        self,
        transactional_id: str,
        producer: Producer,
        places: Collection[Place],
        version: int,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """Take partitions and groups into a producer's transaction."""

        def decide(known: Transaction | None, now_ms: int, _: int | None) -> Transaction:
            made = deciding.joined(known, producer, places, version, now_ms)
            count = sum(each.places for each in self._parts.values())
            if made is not known and count + len(places) > _MOST_PLACES:
                raise KafkaError(Code.POLICY_VIOLATION, f"{count} partitions are in transactions.")
            return made

        part = await self._part_of(transactional_id)
        await self._change(part, transactional_id, decide, patience_seconds)

    async def joined(
        self, transactional_id: str, producer: Producer, places: Collection[Place]
    ) -> Mapping[Place, Code]:
        """Find out which partitions and groups are in a producer's transaction."""
        part = await self._part_of(transactional_id)
        entry = part.entries.get(transactional_id)
        known = None if entry is None else entry.transaction
        return deciding.found_joined(known, producer, places)

    async def end(
        self, transactional_id: str, producer: Producer, version: int, *, commits: bool
    ) -> Producer:
        """Decide a producer's transaction, whose markers are written afterwards.

        Returns what the producer is from now on, if it knows that its epoch grows.
        """

        def decide(known: Transaction | None, now_ms: int, new_id: int | None) -> Transaction:
            return deciding.ended(known, producer, version, now_ms, new_id, commits=commits)

        part = await self._part_of(transactional_id)
        made = await self._change(part, transactional_id, decide)
        return deciding.next_producer(made)

    async def describe(self, transactional_id: str) -> Transaction:
        part = await self._part_of(transactional_id)
        entry = part.entries.get(transactional_id)
        if entry is None or entry.transaction is None:
            raise KafkaError(Code.TRANSACTIONAL_ID_NOT_FOUND)
        return entry.transaction

    async def all(self) -> list[tuple[str, Transaction]]:
        """Those that this broker coordinates, once all are read; KafkaError where some can't be."""
        parts = [self._led(number) for number in self._numbers_led()]
        for part in parts:
            if part.loading is not None:
                await part.loading.wait()
            if not part.log.is_current:
                raise KafkaError(Code.COORDINATOR_LOAD_IN_PROGRESS)
        return [
            (name, entry.transaction)
            for part in parts
            for name, entry in part.entries.items()
            if entry.transaction is not None
        ]

    def ongoing(self) -> Iterator[Transaction]:
        """Those that nobody has ended, as far as they are read."""
        for part in self._parts.values():
            for name in part.ongoing:
                known = part.entries[name].transaction
                if known is not None:
                    yield known

    # -- changes --------------------------------------------------------------------------------

    async def _change(
        self,
        part: Part,
        name: str,
        decide: _Decide,
        patience_seconds: float = PATIENCE_SECONDS,
        aborted: _End = "aborted",
    ) -> Transaction:
        """Make a change, once those before it are over, if that isn't long."""
        new_id: int | None = None
        end = self._shared.clock.seconds() + patience_seconds
        while True:
            entry = part.entries.get(name)
            known = None if entry is None else entry.transaction
            try:
                if entry is not None and entry.is_changing:
                    raise KafkaError(Code.CONCURRENT_TRANSACTIONS)
                made = decide(known, self._shared.now_ms(), new_id)
                break
            except ProducerIdNeededError:
                new_id = await self._new_id()
            except KafkaError as error:
                if error.code is not Code.CONCURRENT_TRANSACTIONS or entry is None:
                    raise
                left = end - self._shared.clock.seconds()
                if left <= 0 or not await self._changed(entry, left):
                    raise
            self._check(part)
        if made is not known:
            await self._store(part, name, made, aborted)
        return made

    async def _changed(self, entry: Entry, seconds: float) -> bool:
        """Wait for the next change of an id; whether there was one in time."""
        change = entry.changed.wait()
        timer = self._shared.clock.callLater(seconds, change.callback, False)
        has_changed = await change
        if timer.active():
            timer.cancel()
        return has_changed

    async def _new_id(self) -> int:
        try:
            return await self._producer_ids.take()
        except HermesError as error:
            raise KafkaError(Code.COORDINATOR_NOT_AVAILABLE, str(error)) from error

    async def _store(
        self, part: Part, name: str, made: Transaction | None, aborted: _End = "aborted"
    ) -> None:
        """Store what there is of an id from now on; None forgets it."""
        entry = part.entries.setdefault(name, Entry())
        entry.is_changing = True
        try:
            await part.log.store(name, made)
            part.note(name, made)
        finally:
            entry.is_changing = False
            if entry.transaction is None:
                del part.entries[name]
            entry.changed.tell(True)
        if made is not None and made.state.is_prepared:
            self.ended["committed" if made.is_committed else aborted] += 1
            self._end(part, name, made)

    # -- ends -----------------------------------------------------------------------------------

    def _end(self, part: Part, name: str, decided: Transaction) -> None:
        self._ending.begin(part.log, name, decided, partial(self._ended, part, name))

    async def _ended(self, part: Part, name: str) -> None:
        """All markers are written."""
        self._check(part)
        known = part.entries[name].transaction
        assert known is not None
        await self._store(part, name, deciding.completed(known, self._shared.now_ms()))

    # -- time -----------------------------------------------------------------------------------

    def _look(self) -> None:
        self.begin()
        self._looks += 1
        led = self._numbers_led()
        for number in led:
            try:
                self._led(number)
            except KafkaError:
                continue
        for number, part in list(self._parts.items()):
            if number not in led or not part.log.is_current:
                self._leave(number, part)
            elif part.loading is None:
                self._look_at(part)

    def _look_at(self, part: Part) -> None:
        now_ms = self._shared.now_ms()
        for name in list(part.ongoing):
            entry = part.entries[name]
            known = entry.transaction
            if known is not None and not entry.is_changing and deciding.is_late(known, now_ms):
                self._log.info(
                    "late",
                    "the transaction of {name} is aborted: it took longer than {ms} ms",
                    name=name,
                    ms=known.timeout_ms,
                )
                self._go(self._store(part, name, deciding.fenced(known, now_ms), "timed_out"))
        if self._looks % _EXPIRY_LOOKS == 0:
            for name in list(islice(_expired(part, now_ms), _FORGOTTEN_AT_ONCE)):
                self._go(self._store(part, name, None))

    def _go(self, change: Coroutine[Any, Any, None]) -> None:
        """What fails here is tried again with the next look."""

        def failed(failure: Failure) -> None:
            failure.trap(KafkaError)  # type: ignore[no-untyped-call]

        Deferred.fromCoroutine(change).addErrback(failed)


def _expired(part: Part, now_ms: int) -> Iterator[str]:
    for name, entry in part.entries.items():
        known = entry.transaction
        if known is None or entry.is_changing:
            continue
        if deciding.has_expired(known, _RETENTION_MS, now_ms):
            yield name
