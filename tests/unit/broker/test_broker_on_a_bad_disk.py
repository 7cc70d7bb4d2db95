"""What a broker does when its disk refuses: one partition suffers, the others and readers don't."""

import errno
import os
import shutil
import struct
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import storage_fakes
from broker_bench import DeferredFlushes, flush_in, log_lines
from hermes_testkit import message
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.broker.maintenance import Maintenance
from hermes.cluster.cluster import Cluster
from hermes.cluster.shared import Shared
from hermes.cluster.topic_registry import TopicRegistry
from hermes.config.loading import parse_broker_config
from hermes.coordination.listeners import BrokerListeners
from hermes.errors import LogOfflineError
from hermes.partition.flush_queue import FlushPolicy
from hermes.partition.flushing import RETRY_SECONDS, FlushScheduler
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    ErrorCode,
    FetchRequest,
    ProduceRequest,
    WaitingFetchRequest,
    decode_acknowledged_produce_response,
)
from hermes.server.fairness import QUANTUM_ENTRIES
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.server.sends import MessageSetSend
from hermes.server.settings import Settings
from hermes.storage import DataDirectory, FileLayer, LogSettings
from hermes.v0_7.dispatching import Broker

HELLO = message(b"hello")


class FaultyFiles(FileLayer):
    """Refuses what the test says, for the files of one partition only.

    Attributes:
        error: the errno of writes and flushes, or None for a healthy disk.
        partition: the directory whose files are concerned.
    """

    def __init__(self) -> None:
        self.write_error: int | None = None
        self.sync_error: int | None = None
        self.partition = "t-0"

    def _mine(self, descriptor: int) -> bool:
        """Whether a file belongs to the partition that the test is cruel to."""
        return Path(f"/proc/self/fd/{descriptor}").readlink().parent.name == self.partition

    def pwritev(self, descriptor: int, buffers: Any, position: int) -> int:  # type: ignore[override]
        if self.write_error is not None and self._mine(descriptor):
            raise OSError(self.write_error, "refused by the test")
        return FileLayer.pwritev(descriptor, buffers, position)

    def pwrite(self, descriptor: int, data: Any, position: int) -> int:  # type: ignore[override]
        if self.write_error is not None and self._mine(descriptor):
            raise OSError(self.write_error, "refused by the test")
        return FileLayer.pwrite(descriptor, data, position)

    def fdatasync(self, descriptor: int) -> None:  # type: ignore[override]
        if self.sync_error is not None and self._mine(descriptor):
            raise OSError(self.sync_error, "refused by the test")
        FileLayer.fdatasync(descriptor)


OPENS = ("open_new", "open_append", "open_read")


class Bench:
    """A broker on real files, whose threads run at once and whose clock is the test's."""

    def __init__(self, directory: Path, files: Any, segment_bytes: int = 1 << 20) -> None:
        self.clock = Clock()
        self.files = files
        settings = Settings(parse_broker_config({"broker_id": 0, "log_dir": str(directory)}))
        self.directory = DataDirectory(
            str(directory), lambda topic: LogSettings(segment_bytes, 10**9), self.files
        )
        self.directory.open(self.now_ms())
        self.flusher = FlushScheduler(
            self.clock, DeferredFlushes(maybeDeferred), lambda topic: FlushPolicy(1, 1000)
        )
        shared = Shared(
            settings,
            self.directory,
            TopicRegistry(self.directory, settings),
            self.flusher,
            self.clock,
            self.now_ms,
            maybeDeferred,
        )
        cluster = Cluster(shared, lambda: BrokerListeners(()), lambda: "")
        self.broker = Broker(shared, cluster)
        self.maintenance = Maintenance(
            self.directory,
            lambda topic: pytest.fail("no retention here"),
            self.now_ms,
            self.clock.seconds,
            maybeDeferred,
            self.flusher.reopened,
            self.flusher.is_flushing,
        )

    def now_ms(self) -> int:
        return 1_800_000_000_000 + int(self.clock.seconds() * 1000)

    def acknowledged(self, topic: str, acks: Acks = Acks.FLUSHED) -> tuple[int, int]:
        """Produce one message; the code and the offset of the answer."""
        request = AcknowledgedProduceRequest(acks, 0, (ProduceRequest(topic, 0, HELLO),))
        outcome = self.broker.serve(request)
        answers: list[bytes] = []
        if isinstance(outcome, DeferredResponse):
            outcome.to_deferred().addCallback(answers.append)
        else:
            answers.append(outcome)
        _, _, _, _, code, offset = struct.unpack_from(">ihhihq", answers[0])
        return code, offset

    def stored(self, topic: str, offset: int = 0) -> bytes:
        send = self.broker.serve(FetchRequest(topic, 0, offset, 1 << 20))
        if isinstance(send, DeferredResponse):  # the segment wasn't open
            sends: list[Any] = []
            send.to_deferred().addCallback(sends.append)
            (send,) = sends
        if isinstance(send, bytes):  # few, and in memory
            assert int.from_bytes(send[4:6]) == ErrorCode.NONE
            return send[6:]
        assert isinstance(send, MessageSetSend)
        assert send.error is ErrorCode.NONE
        if send.messages is None:
            return b""
        data = FileLayer.pread(send.messages.fileno(), send.messages.length, send.messages.position)
        send.release()
        return data


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "logs", FaultyFiles())
    yield made
    made.files.write_error = made.files.sync_error = None
    made.directory.close(clean=True)


def test_nobody_waits_any_more_for_a_flush_of_a_log_that_comes_back(bench: Bench) -> None:
    """What was appended before may be gone then, and others may have appended in its place."""
    threads: list[Deferred[int]] = [Deferred()]
    flush_in(bench.flusher, lambda function: threads[0])
    assert bench.acknowledged("t", Acks.WRITTEN) == (0, 0)
    log = bench.directory.logs["t", 0]
    told: list[Failure] = []
    bench.flusher.flush_now(log).addErrback(told.append)
    bench.files.sync_error = errno.EIO
    with pytest.raises(LogOfflineError) as failure:
        log.flush()
    bench.files.sync_error = None

    bench.maintenance.reopen_offline()
    assert log.is_offline, "the reactor hasn't heard of the failure"
    threads[0].errback(Failure(failure.value))
    assert len(told) == 1
    bench.maintenance.reopen_offline()
    assert not log.is_offline


def test_a_full_disk_refuses_produces_and_serves_fetches_and_resumes(bench: Bench) -> None:
    assert bench.acknowledged("t") == (0, 0)
    bench.files.write_error = errno.ENOSPC
    assert bench.acknowledged("t") == (ErrorCode.STORAGE_UNAVAILABLE, -1)
    assert bench.acknowledged("t", Acks.WRITTEN) == (ErrorCode.STORAGE_UNAVAILABLE, -1)
    with pytest.raises(CloseConnection):
        bench.broker.serve(ProduceRequest("t", 0, HELLO))
    assert bench.stored("t") == HELLO
    assert bench.acknowledged("u") == (0, 0), "another partition goes on"
    bench.files.write_error = None
    assert bench.acknowledged("t") == (0, len(HELLO)), "writes resume without a restart"
    assert bench.stored("t") == HELLO * 2


def test_which_of_the_entries_the_disk_refuses_and_why_is_told(bench: Bench) -> None:
    """In several quanta, and with partitions that the broker chooses."""
    for topic in ("t", "u"):
        assert bench.acknowledged(topic)[0] == ErrorCode.NONE
    bench.files.write_error = errno.ENOSPC
    count = 2 * QUANTUM_ENTRIES + 1
    produces = [ProduceRequest("u", -1, HELLO)] * count + [ProduceRequest("t", -1, HELLO)]
    outcome = bench.broker.serve(AcknowledgedProduceRequest(Acks.FLUSHED, 0, tuple(produces)))
    assert isinstance(outcome, DeferredResponse)
    answered: list[bytes] = []
    outcome.to_deferred().addCallback(answered.append)
    bench.clock.pump([0] * 9)
    *stored, refused = decode_acknowledged_produce_response(answered[0][4:])
    assert {(each.error, each.reason) for each in stored} == {(ErrorCode.NONE, "")}
    assert refused.error == ErrorCode.STORAGE_UNAVAILABLE
    assert refused.reason == f"t-0: append at offset {len(HELLO)}: refused by the test"


def test_an_io_error_takes_one_partition_offline_until_it_is_recovered(bench: Bench) -> None:
    assert bench.acknowledged("t") == (0, 0)
    bench.files.write_error = errno.EIO
    assert bench.acknowledged("t") == (ErrorCode.STORAGE_UNAVAILABLE, -1)
    assert bench.stored("t") == HELLO
    assert bench.acknowledged("u") == (0, 0)
    bench.files.write_error = None
    assert bench.acknowledged("t") == (ErrorCode.STORAGE_UNAVAILABLE, -1), "not before recovery"
    bench.maintenance.reopen_offline()
    assert bench.acknowledged("t") == (0, len(HELLO))
    assert bench.stored("t") == HELLO * 2


def test_a_failed_fsync_is_answered_as_such_and_never_taken_for_flushed(bench: Bench) -> None:
    assert bench.acknowledged("t") == (0, 0)
    bench.files.sync_error = errno.EIO
    assert bench.acknowledged("t") == (ErrorCode.OUTCOME_UNKNOWN, -1)
    assert bench.acknowledged("t") == (ErrorCode.STORAGE_UNAVAILABLE, -1), "it was not appended"
    assert bench.stored("t") == HELLO, "what was not flushed is not visible"
    bench.maintenance.reopen_offline()
    assert bench.directory.logs["t", 0].is_offline, "the disk still fails"
    bench.files.sync_error = None
    bench.maintenance.reopen_offline()
    assert bench.stored("t") == HELLO * 2, "the unknown one was kept"
    assert bench.acknowledged("t") == (0, 2 * len(HELLO))
    assert bench.stored("t") == HELLO * 3


def test_a_waiting_fetch_hears_of_what_reopening_has_kept(bench: Bench) -> None:
    bench.files.sync_error = errno.EIO
    assert bench.acknowledged("t") == (ErrorCode.OUTCOME_UNKNOWN, -1)
    outcome = bench.broker.serve(WaitingFetchRequest(60_000, 1, (FetchRequest("t", 0, 0, 100),)))
    assert isinstance(outcome, DeferredResponse)
    answered: list[Any] = []
    outcome.to_deferred().addCallback(answered.append)
    bench.files.sync_error = None
    assert answered == []
    bench.maintenance.reopen_offline()
    assert [HELLO in each for each in answered] == [True]


def test_a_log_that_stays_offline_is_named_ever_more_rarely(bench: Bench) -> None:
    bench.files.sync_error = errno.EIO
    bench.acknowledged("t")
    with log_lines() as lines:
        for _ in range(1000):
            bench.maintenance.reopen_offline()
    assert len([line for line in lines if "t-0 stays offline: " in line]) == len(lines) == 10
    bench.files.sync_error = None
    bench.maintenance.reopen_offline()
    bench.files.sync_error = errno.EIO
    bench.acknowledged("t")
    with log_lines() as lines:
        bench.maintenance.reopen_offline()
    assert len(lines) == 1, "it is counted from the start"


@pytest.mark.parametrize("deleted", [False, True], ids=["vanished", "deleted meanwhile"])
def test_retention_notices_an_idle_partition_that_is_gone_in_one_line(
    bench: Bench, deleted: bool
) -> None:
    assert bench.acknowledged("t") == (0, 0)
    log = bench.directory.logs["t", 0]
    maintenance = Maintenance(
        bench.directory,
        lambda topic: pytest.fail("its files are not there"),
        bench.now_ms,
        bench.clock.seconds,
        maybeDeferred,
    )
    if deleted:
        maintenance._policy_for = lambda topic: bench.directory.delete_topic("t")  # type: ignore[assignment,return-value]
    else:
        maintenance._policy_for = lambda topic: None  # type: ignore[assignment,return-value]
        shutil.rmtree(log.directory)
    with log_lines() as lines:
        for _ in range(3):
            maintenance.apply_retention()
    if deleted:
        assert (log.is_closed, lines) == (True, [])
    else:
        assert log.is_offline
        (line,) = lines
        assert "t-0 is offline: " in line
        assert "removed, replaced or unmounted" in line


def test_a_log_deleted_while_it_was_offline_is_not_spoken_of(bench: Bench) -> None:
    bench.files.sync_error = errno.EIO
    bench.acknowledged("t")
    log = bench.directory.logs["t", 0]
    with log_lines() as lines:
        bench.maintenance._in_thread = lambda call, *args: (
            bench.directory.delete_topic("t") or call(*args)
        )
        bench.maintenance.reopen_offline()
    assert log.is_closed
    assert lines == []


def test_without_a_descriptor_a_partition_stays_in_service_and_refusals_are_retriable(
    tmp_path: Path,
) -> None:
    """Opens fail, whatever is opened: first for an append, then for a flush."""
    files = storage_fakes.FaultyFiles(
        None, errno.EMFILE, stays=True, only=(*OPENS, "fsync_directory")
    )
    bench = Bench(tmp_path / "logs", files)
    assert bench.acknowledged("t") == (0, 0)
    log = bench.directory.logs["t", 0]
    log.state.descriptors.close_idle()
    files.fail_at = files.counted
    assert bench.acknowledged("t") == (ErrorCode.STORAGE_UNAVAILABLE, -1)
    files.fail_at = None
    assert bench.acknowledged("t") == (0, len(HELLO)), "nothing was written, as the answer said"

    bench.directory.create("new", 0)
    files.fail_at = files.counted + 1  # the segment is opened, its directory can't be
    answered: list[bytes] = []
    request = AcknowledgedProduceRequest(Acks.FLUSHED, 0, (ProduceRequest("new", 0, HELLO),))
    bench.broker.serve(request).to_deferred().addCallback(answered.append)
    bench.clock.pump([RETRY_SECONDS] * 3)
    assert answered == []
    assert not bench.directory.logs["new", 0].is_offline
    files.fail_at = None
    bench.clock.advance(RETRY_SECONDS)
    assert len(answered) == 1
    assert bench.stored("new") == HELLO
    bench.directory.close()


def test_waiting_fetches_of_others_are_not_disturbed(bench: Bench) -> None:
    bench.files.sync_error = errno.EIO
    bench.acknowledged("t")
    assert bench.acknowledged("u") == (0, 0)
    assert bench.stored("u") == HELLO


class FailsOnce(FileLayer):
    """Fails one call in all, the nth of those that can fail."""

    CALLS = ("pwrite", "pwritev", "pread", "fdatasync", "ftruncate", "rename", "unlink", "mkdir")
    OPENS = ("open_new", "open_append", "open_read", "fsync_directory")

    def __init__(self, error: int) -> None:
        self.error = error
        self.remaining = -1
        for name in self.CALLS + self.OPENS:
            setattr(self, name, partial(self._call, getattr(self, name)))

    def _call(self, function: Any, *args: Any, **options: Any) -> Any:
        self.remaining -= 1
        if self.remaining == 0:
            raise OSError(self.error, "refused by the test")
        return function(*args, **options)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EMFILE], ids=errno.errorcode.get)
def test_whichever_call_fails_the_broker_lives_and_keeps_what_it_acknowledged(
    tmp_path: Path, error: int
) -> None:
    """The nth call fails, for every n until none is left to fail."""
    number, reached = 0, True
    while reached:
        number += 1
        files = FailsOnce(error)
        bench = Bench(tmp_path / str(number), files, segment_bytes=40)
        files.remaining = number
        kept: dict[str, list[int]] = {"t": [], "u": []}
        for _ in range(4):
            for topic, offsets in kept.items():
                code, offset = bench.acknowledged(topic)
                assert code in (0, ErrorCode.STORAGE_UNAVAILABLE, ErrorCode.OUTCOME_UNKNOWN)
                if code == ErrorCode.NONE:
                    offsets.append(offset)
            bench.clock.advance(1)
        reached, files.remaining = files.remaining <= 0, -1
        bench.maintenance.reopen_offline()
        for topic, offsets in kept.items():
            assert bench.acknowledged(topic)[0] == ErrorCode.NONE, "back in service"
            for offset in offsets:
                assert bench.stored(topic, offset).startswith(HELLO)
        assert len(kept["t"]) + len(kept["u"]) >= 4, "the other one went on"
        bench.directory.close(clean=True)
    assert number > 10


def test_what_recovery_dropped_meanwhile_is_never_acknowledged(bench: Bench) -> None:
    """The sets of a long request are appended in turns; the log may fail and come back between."""
    request = AcknowledgedProduceRequest(
        Acks.FLUSHED,
        0,
        tuple(ProduceRequest("t", 0, HELLO) for _ in range(2 * QUANTUM_ENTRIES + 1)),
    )
    outcome = bench.broker.serve(request)
    assert isinstance(outcome, DeferredResponse)
    answered: list[bytes] = []
    outcome.to_deferred().addCallback(answered.append)
    log = bench.directory.get("t", 0)
    assert log is not None
    assert 0 < log.end_offset < len(request.produces) * len(HELLO)
    bench.files.sync_error = errno.EIO
    with pytest.raises(LogOfflineError):
        log.flush()
    bench.files.sync_error = None
    (segment,) = Path(log.directory).glob("*.kafka")
    os.truncate(segment, log.high_watermark)
    before = log.end_offset // len(HELLO)
    assert log.reopen(0).dropped_bytes > 0
    bench.clock.pump([0, 0, 0, 0])
    codes = [each.error for each in decode_acknowledged_produce_response(answered[0][4:])]
    assert codes == [ErrorCode.OUTCOME_UNKNOWN] * before + [ErrorCode.NONE] * (len(codes) - before)
