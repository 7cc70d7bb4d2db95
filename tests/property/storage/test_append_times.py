"""Append times against a model that knows the true time of every byte.

Whatever happened to a log before (Kafka in between, kills, lost and damaged indexes), a time that
is told is the true one; and of what Hermes appended in peace every time is told.
"""

import os
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from storage_fakes import WatchedFiles
from storage_logs import NOW_MS, message, open_log
from storage_logs import settings as log_settings

from hermes.storage import Log

END = 1 << 62


class Model:
    """A log with what is true of it.

    Attributes:
        times: when each byte was appended.
        known: for each byte whether an answer must know that.
    """

    log: Log

    def __init__(self, root: str, segment_bytes: int) -> None:
        self.directory = Path(root) / "clicks-0"
        self.settings = log_settings(segment_bytes)
        self.now_ms = NOW_MS
        self.times: list[int] = []
        self.known: list[bool] = []
        self.open(clean=False)

    def open(self, *, clean: bool) -> None:
        self.files = WatchedFiles()
        self.log = open_log(
            self.directory,
            self.files,
            log_settings=self.settings,
            clean=clean,
            now_ms=self.now_ms,
        )

    def stop(self) -> None:
        self.log.flush()
        self.log.close()
        assert not self.files.opened

    def note(self, count: int, *, known: bool) -> None:
        self.times += [self.now_ms] * count
        self.known += [known] * count

    # -- what may happen ------------------------------------------------------------------------

    def append(self, random: Random) -> None:
        self.now_ms += random.choice([0, 1, 3, 40, 2000])
        data = message(b"x" * random.randrange(12))
        assert self.log.append([data], len(data), 1, self.now_ms) == len(self.times)
        self.note(len(data), known=True)

    def flush(self, random: Random) -> None:
        self.now_ms += random.choice([0, 5])
        self.log.flush()

    def restart(self, random: Random) -> None:
        self.stop()
        self.now_ms += random.choice([0, 10_000])
        self.open(clean=True)

    def kafka(self, random: Random) -> None:
        """Kafka appends to the last segment or begins one, between two clean stops."""
        self.stop()
        self.now_ms += random.choice([1, 50, 10_000])
        path = sorted(self.directory.glob("*.kafka"))[-1]
        if random.random() < 0.3 and path.stat().st_size:
            path = path.with_name(f"{len(self.times):020d}.kafka")
        data = message(b"kafka") * random.randint(1, 3)
        with path.open("ab") as segment:
            segment.write(data)
        self.touch(path)
        self.note(len(data), known=False)
        self.now_ms += random.choice([0, 50, 10_000])
        self.open(clean=True)

    def kill(self, random: Random) -> None:
        flushed = self.log.high_watermark
        self.known[flushed:] = [False] * (len(self.known) - flushed)
        for path in self.directory.iterdir():
            self.touch(path)
        self.files.close_all()
        self.now_ms += random.choice([0, 50, 10_000])
        self.open(clean=False)
        assert self.log.high_watermark == len(self.times)

    def damage(self, random: Random) -> None:
        """While nobody runs, an index is cut, deleted, or loses a bit."""
        self.stop()
        if indexes := sorted(self.directory.glob("*.timeindex")):
            path = random.choice(indexes)
            data = bytearray(path.read_bytes())
            if data:
                data[random.randrange(len(data))] ^= 1 << random.randrange(8)
                path.write_bytes(data[: random.choice([len(data), random.randrange(len(data))])])
            if random.random() < 0.2:
                path.unlink()
            self.forget(int(path.stem))
        self.open(clean=True)

    def forget(self, base: int) -> None:
        bases = [int(path.stem) for path in self.directory.glob("*.kafka")]
        end = min((each for each in bases if each > base), default=len(self.known))
        self.known[base:end] = [False] * (end - base)

    def touch(self, path: Path) -> None:
        os.utime(path, ns=(self.now_ms * 10**6,) * 2)

    # -- what must hold -------------------------------------------------------------------------

    def check(self, start: int, end: int, interval_ms: int, max_runs: int) -> None:
        told: list[int | None] = []
        position = start
        while True:
            stop, runs = self.log.append_times(position, end, interval_ms, max_runs)
            assert stop == max(start, min(end, self.log.high_watermark))
            assert len(runs) <= max_runs
            assert all(one.time_ms != other.time_ms for one, other in pairwise(runs))
            for run in runs:
                assert position < run.end_offset <= stop
                told += [run.time_ms] * (run.end_offset - position)
                position = run.end_offset
            if position == stop:
                break
            assert len(runs) == max_runs
        for offset, time_ms in enumerate(told, start):
            true_ms = self.times[offset] // interval_ms * interval_ms
            assert time_ms in ((true_ms,) if self.known[offset] else (true_ms, None))


EVENTS: list[Callable[[Model, Random], None]] = [
    *[Model.append] * 6,
    *[Model.flush] * 3,
    Model.restart,
    Model.kafka,
    Model.kill,
    Model.damage,
]


@given(
    st.lists(st.sampled_from(EVENTS), min_size=5, max_size=60),
    st.sampled_from([30, 200, 1 << 30]),
    st.randoms(use_true_random=False),
)
def test_what_is_told_is_true_and_what_is_known_is_told(events, segment_bytes, random) -> None:
    with tempfile.TemporaryDirectory(prefix="hermes-times-") as root:
        model = Model(root, segment_bytes)
        for event in events:
            event(model, random)
        model.log.flush()
        for interval_ms in (1, 7, 1000, 3_600_000):
            model.check(0, END, interval_ms, 4096)
            start, end = (random.randint(0, len(model.times)) for _ in range(2))
            model.check(start, end, interval_ms, random.randint(1, 4))
        model.stop()
