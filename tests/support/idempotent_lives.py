"""Lives of a broker on a disk that refuses calls, under idempotent producers with much under way.

Calls fail from one on, a few or for a while; in the middle of that the broker may be killed, and
another one goes on with what it has left. Producers lose their connections. In the end the disk is
well, and each message must be there once, in order, where its producer was told that it is.
"""

import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from errno import EIO
from pathlib import Path
from random import Random
from typing import Any

from broker_bench import answers, flush_in
from kafka_bench import KafkaBench
from kafka_failing_lives import FAULTS as DISK_FAULTS
from kafka_logs import read_records
from pipelining_producer import PipeliningProducer, decode_codes, sent_record
from storage_fakes import FaultyFiles
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.logger import ILogObserver, LogEvent
from zope.interface import implementer

from hermes.broker.maintenance import Maintenance
from hermes.errors import StorageError
from hermes.logs import ModuleLogger
from hermes.storage.kafka_format import SEGMENT_SUFFIX
from hermes.storage.segment import UNFLUSHED_SUFFIX

__all__ = ["FAULTS", "Outcome", "live_under_producers"]

#: As in a life without connections; and a sync that fails may have lost what it was for.
FAULTS = {**DISK_FAULTS, "lost pages": (EIO, False, ("fdatasync",))}

_TOPIC = "t"
_PARTITIONS = 2
_PRODUCERS = 2
_MESSAGES = 25
#: A life that gets nowhere in so many steps never does.
_MOST_STEPS = 5000


@implementer(ILogObserver)
def _nowhere(event: LogEvent) -> None:
    """Where the lines of thousands of flushes that failed go."""


class MortalFiles(FaultyFiles):
    """Does nothing any more from a call on, as what belongs to a process that was killed.

    Attributes:
        ends_at: that call's number, of all; None for never.
        lasts: so many calls fail, of those that count; None for all of them.
        loses_pages: whether a sync of a segment that fails loses some of what it was to put on
            disk.
        random: decides what.
    """

    ends_at: int | None = None
    lasts: int | None = None
    loses_pages = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.random = Random(0)
        self._synced: dict[int, int] = {}

    @property
    def has_ended(self) -> bool:
        """Whether the process is dead."""
        return self.ends_at is not None and len(self.calls) > self.ends_at

    def before(self, name: str, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        if self.has_ended:
            raise OSError(EIO, "the process is dead")
        if self.lasts is not None and self.failed >= self.lasts:
            self.fail_at = None
        try:
            return super().before(name, arguments)
        except OSError:
            is_segment = self._path(arguments).endswith((SEGMENT_SUFFIX, UNFLUSHED_SUFFIX))
            if self.loses_pages and is_segment:
                self._lose(arguments[0])
            raise

    def after(self, name: str, arguments: tuple[Any, ...], result: Any) -> None:
        if name == "fdatasync":
            status = os.fstat(arguments[0])
            self._synced[status.st_ino] = status.st_size
        elif name.startswith("open_"):  # what an earlier life has left is on disk
            status = os.fstat(result)
            self._synced.setdefault(status.st_ino, status.st_size)
        super().after(name, arguments, result)

    def _lose(self, descriptor: int) -> None:
        status = os.fstat(descriptor)
        start = self._synced[status.st_ino]
        if status.st_size > start:
            end = status.st_size
            start = self.random.randrange(start, end)
            # Who starts again can't tell what was on disk, and so keeps what follows a hole.
            if self.ends_at is None:
                end = self.random.randint(start, end)
            os.pwrite(descriptor, bytes(end - start), start)


class _Life:
    """One broker's, and its producers' connections to it."""

    def __init__(
        self, path: Path, files: MortalFiles, producers: list[PipeliningProducer], random: Random
    ) -> None:
        self.files = files
        self._producers = producers
        self._random = random
        self._work: deque[tuple[Deferred[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._bench = bench = KafkaBench(
            path,
            files=files,
            topics={_TOPIC: {"format": "kafka", "partitions": _PARTITIONS}},
            segment_bytes=1024,
        )
        flush_in(bench.flusher, self._in_thread)
        bench.flusher._log = ModuleLogger(observer=_nowhere)
        self._maintenance = Maintenance(
            bench.directory,
            lambda topic: None,  # type: ignore[arg-type,return-value]
            bench.shared.now_ms,
            bench.clock.seconds,
            self._in_thread,
            bench.flusher.reopened,
            bench.flusher.is_flushing,
        )
        self._reopening: Deferred[None] | None = None
        self._connections = [bench.connect_kafka() for _ in producers]

    def live(self) -> None:
        """Live until all is acknowledged, or the process is dead."""
        steps = (self._send, self._send, self._work_off, self._turn, self._reopen, self._hear)
        for _ in range(_MOST_STEPS):
            self._random.choice(steps)()
            if self._random.random() < 0.01:
                self._disconnect(self._random.randrange(len(self._producers)))
            if self._random.random() < 0.003:
                self._bench.clock.advance(31)  # the clients' time is up
            if self.files.has_ended:
                break
            if all(each.is_done for each in self._producers):
                return
        else:
            raise AssertionError(f"not done after {_MOST_STEPS} steps: {self._bench.directory}")
        for producer in self._producers:
            producer.disconnected()

    def check(self) -> None:
        """Hold what is there to what producers sent, and were told. The disk is well."""
        self.files.fail_at = self.files.ends_at = None
        for partition in range(_PARTITIONS):
            log = self._bench.directory.logs[_TOPIC, partition]
            if log.is_offline:
                self._bench.directory.reopen(log, self._bench.shared.now_ms())
            values = [each.value for each in read_records(log)]
            for producer in self._producers:
                acked = producer.acked[partition]
                sent = [
                    sent_record(producer.producer_id, partition, number).value
                    for number in range(_MESSAGES)
                ]
                mine = [each for each in values if each in set(sent)]
                assert mine == sent, f"of {producer.producer_id} in {log.name}: {mine}"
                for number, offset in acked.items():
                    assert offset is None or values[offset] == sent[number]

    def close(self) -> None:
        """Let go of everything; what the dead process had open is closed."""
        self._bench.turns()
        self._bench.flusher.stop()
        if not self.files.has_ended:
            self._bench.directory.close()
        self.files.close_all()

    def _in_thread(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        self._work.append((done, function, args))
        return done

    def _work_off(self) -> None:
        """Let a thread do something; the reactor hears of its end perhaps later."""
        if self._work:
            done, function, args = self._work.popleft()
            result = maybeDeferred(function, *args)
            if self._random.random() < 0.5:
                self._bench.clock.callLater(0, result.chainDeferred, done)
            else:
                result.chainDeferred(done)

    def _turn(self) -> None:
        self._bench.clock.advance(0.01)
        if not self._bench.shared.topics.exists(_TOPIC):
            # As for a client that looks where it is.
            self._bench.shared.topics.create_declared(_TOPIC)

    def _reopen(self) -> None:
        if self._reopening is None:
            self._reopening = self._maintenance.reopen_offline()
            self._reopening.addCallback(lambda _: setattr(self, "_reopening", None))

    def _send(self) -> None:
        place = self._random.randrange(len(self._producers))
        request = self._producers[place].next_request()
        if request is not None:
            self._connections[place][0].dataReceived(request)

    def _hear(self) -> None:
        for producer, (_, transport) in zip(self._producers, self._connections, strict=True):
            for answer in answers(transport) if not self.files.has_ended else ():
                producer.answered(*decode_codes(_TOPIC, answer))

    def _disconnect(self, place: int) -> None:
        self._connections[place][0].connectionLost()
        self._producers[place].disconnected()
        self._connections[place] = self._bench.connect_kafka()


@dataclass
class Outcome:
    """What lives came to.

    Attributes:
        counted: how many calls of the first life could have failed.
        failed: how many failed.
        lives: how many brokers there were.
        bumped: how often producers numbered anew.
    """

    counted: int = 0
    failed: int = 0
    lives: int = 0
    bumped: int = 0


def live_under_producers(
    path: Path, fault: str | None, number: int, seed: int, *, is_killed: bool = False
) -> Outcome:
    """Live with calls that fail, and hold what is there in the end to what was told.

    Args:
        path: for the files; made.
        fault: of `FAULTS`; None for none.
        number: the first call that fails.
        seed: decides in which order all happens, and how many calls fail.
        is_killed: whether the broker is killed after some calls more. Calls of the next one fail
            then, too.

    Raises:
        AssertionError: something does not hold.
    """
    random = Random(seed)
    producers = [
        PipeliningProducer(each, _TOPIC, _PARTITIONS, _MESSAGES, random)
        for each in range(_PRODUCERS)
    ]
    outcome = Outcome()
    while True:
        files = _files(fault, number, random, is_killed=is_killed)
        life = None
        try:
            life = _Life(path, files, producers, random)
            life.live()
            if not files.has_ended:
                life.check()
        except StorageError:
            assert life is None  # it could not start
        finally:
            outcome.lives += 1
            outcome.failed += files.failed
            outcome.counted = outcome.counted or files.counted
            if life is not None:
                life.close()
            files.close_all()
        if life is not None and not files.has_ended:
            outcome.bumped = sum(each.epoch for each in producers)
            return outcome
        if random.random() < 0.5:
            fault = None
        number, is_killed = random.randrange(60), False


def _files(fault: str | None, number: int, random: Random, *, is_killed: bool) -> MortalFiles:
    error, is_late, only = FAULTS[fault or "EIO"]
    files = MortalFiles(None if fault is None else number, error, stays=True, only=only)
    files.loses_pages, files.random = fault == "lost pages", random
    files.is_late, files.lasts = is_late, random.choice((1, 1, 2, 5, 20))
    if is_killed:
        files.ends_at = number + random.randrange(120)
    return files
