"""Carries out fetches that are plain and for one partition: one that waits is one object."""

from typing import Any, Final, TypeAlias

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from hermes.config.kinds import FORMAT_KAFKA
from hermes.errors import HermesError
from hermes.kafka.apis import APIS, FETCH, READ_COMMITTED
from hermes.kafka.dispatching import Call, KafkaServer
from hermes.kafka.epochs import FIRST_EPOCH, check_epoch
from hermes.kafka.fetch_sessions import Wanted
from hermes.kafka.fetching.fetch import MAX_RESPONSE_BYTES, answer_whole
from hermes.kafka.fetching.fetch_messages import BY_ID, FORMS, NO_SESSION
from hermes.kafka.frames import Frame, PlainFetch
from hermes.partition.partition import Partition
from hermes.partition.waiting import MAX_WAIT_MS, Waiter
from hermes.protocol import core
from hermes.security import Operation
from hermes.server.clients import Client
from hermes.server.sends import FileSend
from hermes.storage import LogSlice, NotInMemoryError
from hermes.storage.segment import LogView

# Looking a member of an enumeration up takes as long as finding out what it may do.
_CONSUME: Final = Operation.CONSUME


class Fetches:
    """Carries out plain requests, which are for one partition. Lives in the reactor's thread."""

    def __init__(self, server: KafkaServer) -> None:
        self._server = server
        self.topics = server.topics
        self._refusals = server.shared.refusals
        self._metrics = server.shared.metrics
        self.waiting = server.shared.waiting
        # By how a request names them: by names, and by ids.
        self._known: tuple[dict[bytes, Partition], dict[bytes, Partition]] = {}, {}
        self.revision = -1  # of the topics, when those were found
        self._settings_changed()
        server.shared.settings.on_change(self._settings_changed)

    def _settings_changed(self) -> None:
        self.refuses = self._refusals.is_on

    def carry_out(self, plain: PlainFetch, client: Client) -> Any:
        """Respond, or wait for more; NotImplemented where it is to be decoded: see `look`."""
        found = self.look(plain, client)
        if found is None:
            return NotImplemented
        records, _, partition = found
        length = len(records) if isinstance(records, bytes) else records.length
        if length >= plain.min_bytes or plain.wait_ms <= 0 or self.waiting.is_stopping:
            return self.response(plain, found)
        self._metrics.fetches += 1
        waiter = _SingleFetch(cancellable=True)
        waiter.fetches, waiter.plain, waiter.client = self, plain, client
        waiter.found = found
        if length:
            waiter.let_go(records)
        self.waiting.hold_one(waiter, partition.key, min(plain.wait_ms, MAX_WAIT_MS))
        return waiter

    def look(self, plain: PlainFetch, client: Client) -> "_Found | None":
        """Read what there is; None where there is more to be done, or something wrong."""
        _, version, _, _, _, max_bytes, level, _, _, offset, size, epoch, place = plain
        partition = self._known[version >= BY_ID].get(place)
        if partition is None or self.revision != self.topics.revision:
            partition = self._look_up(plain)
            if partition is None:
                return None
        log = partition.log
        if self.refuses and not self._refusals.permits_topic(client, _CONSUME, log.topic):
            return None
        if size > max_bytes:
            size = max(max_bytes, 0)
        try:
            if partition.leadership is not None:
                partition.leadership.check()
                check_epoch(partition, epoch)
            elif epoch > FIRST_EPOCH:
                check_epoch(partition, epoch)
            if size > MAX_RESPONSE_BYTES:
                size = MAX_RESPONSE_BYTES
            if level != READ_COMMITTED:
                records, view = log.fetch(offset, size, True, True)
                return records, view, partition
            records, view = log.fetch(offset, size, True, True, True)
            if records and offset <= log.sidecar.aborted.newest:
                # Of what was aborted a thread reads.
                if isinstance(records, LogSlice):
                    records.release()
                return None
        except (HermesError, NotInMemoryError):
            return None
        return records, view, partition

    def _look_up(self, plain: PlainFetch) -> Partition | None:
        topics = self.topics
        if self.revision != topics.revision:
            self._known = {}, {}
            self.revision = topics.revision
        asked = plain.topic
        found = topics.asked(asked)
        if found is None or found.format != FORMAT_KAFKA:
            return None
        try:
            partition = topics.partition(found.name, plain.number)
        except HermesError:
            return None
        if partition.log.is_closed:  # deleted: its topic is about to change
            return None
        self._known[plain.version >= BY_ID][plain.place] = partition
        return partition

    def response(self, plain: PlainFetch, found: "_Found") -> bytes | FileSend:
        """As `response_parts` makes it."""
        records, view, partition = found
        self._metrics.fetches += 1
        few = records if isinstance(records, bytes) else None
        length = records.length if isinstance(records, LogSlice) else len(records)
        partition.counts.bytes_out += length
        version = plain.version
        head = core.single_fetched(
            version,
            plain.correlation_id,
            plain.level,
            plain.place,
            view.high_watermark,
            view.stable_end,
            view.bases[0],
            length,
            few,
        )
        if few is not None:
            return head
        return FileSend((head, records, FORMS[version, False][1] * 3))

    def read_decoded(self, plain: PlainFetch, client: Client) -> Any:
        """Respond as to a request that was decoded, with whatever there is."""
        _, version, correlation_id, _, _, max_bytes, level, asked, number, *about, _ = plain
        frame = Frame(b"")
        frame.version, frame.correlation_id, frame.client_id = version, correlation_id, ""
        wanted = [Wanted(asked, number, *about)]
        call = Call(APIS[FETCH], frame, client, self._server)
        return answer_whole(call, (0, 0, max_bytes, level, 0, NO_SESSION, wanted, ()))


#: What was read for a plain request.
_Found: TypeAlias = tuple[LogSlice | bytes, LogView, Partition]


class _SingleFetch(Waiter):
    """A plain request that waits, and its response."""

    __slots__ = ("client", "fetches", "found", "plain")

    client: Client
    fetches: Fetches
    found: "_Found | None"  # that there is nothing, until there is a change; None: to be read
    plain: PlainFetch

    def changed(self, key: int, topic: str, partition: int) -> None:
        found = self.found = self.fetches.look(self.plain, self.client)
        if found is None:
            self.waiting.wake(self)
            return
        records = found[0]
        length = len(records) if isinstance(records, bytes) else records.length
        if length >= self.plain.min_bytes:
            self.waiting.drop(self)
            self.resolve(self.fetches.response(self.plain, found))
        elif length:
            self.let_go(records)

    def let_go(self, records: LogSlice | bytes) -> None:
        self.found = None
        if isinstance(records, LogSlice):
            records.release()

    def ready(self) -> None:
        fetches, found = self.fetches, self.found
        if found is None or fetches.refuses or fetches.revision != fetches.topics.revision:
            found = fetches.look(self.plain, self.client)
        if found is not None:
            self.resolve(fetches.response(self.plain, found))
            return
        try:
            answer = fetches.read_decoded(self.plain, self.client)
            if isinstance(answer, bytes | FileSend):
                self.resolve(answer)
            else:
                self.follow(Deferred.fromCoroutine(answer))
        except Exception:
            self.fail(Failure())  # type: ignore[no-untyped-call]
