"""Any life of a log with mirrors, any crash: nothing of a source is there twice, or is lost."""

import contextlib
import tempfile
from dataclasses import replace
from pathlib import Path
from random import Random

from hypothesis import example, given
from hypothesis import strategies as st
from mirrored_logs import MirroredLog, SourceCopy
from storage_fakes import Crash, ForgetfulFiles, UnsyncedFiles

from hermes.errors import SourceOverlapError
from hermes.protocol import SourceSpan
from hermes.storage.source_records import (
    HEADER,
    Checkpoint,
    Closed,
    Copied,
    Named,
    Opened,
    encode_record,
    parse_records,
)

STEPS = st.one_of(
    st.tuples(st.just("copy"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("resend"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("produce"), st.just(0), st.just(0)),
    st.tuples(st.just("flush"), st.just(0), st.just(0)),
    st.tuples(st.just("delete"), st.just(0), st.integers(1, 2)),
    st.tuples(st.just("restart"), st.booleans(), st.just(0)),
)


def do(log: MirroredLog, step: tuple[str, int, int]) -> None:
    name, which, count = step
    if name == "copy":
        log.copy(log.copies[which], count)
    elif name == "resend":
        source = log.copies[which]
        with contextlib.suppress(SourceOverlapError):
            log.send(source, source.acknowledged, count)
    elif name == "produce":
        log.produce()
    elif name == "flush":
        log.flush()
    elif name == "delete":
        log.log.delete_oldest(count)


def live(path: Path, files: ForgetfulFiles, steps: list[tuple[str, int, int]]) -> MirroredLog:
    """One process's life, and those after restarts in good order or by `kill -9`."""
    copies = [SourceCopy("v", True), SourceCopy("w", True), SourceCopy("s", False)]
    log = MirroredLog(path, files, copies)
    try:
        log.open()
        for step in steps:
            if step[0] != "restart":
                do(log, step)
                continue
            if step[1]:
                log.flush()
                log.log.close()
            log = MirroredLog(path, files, copies)
            log.open(clean=bool(step[1]))
            log.check()
    except Crash:
        pass
    return log


@given(
    st.lists(STEPS, max_size=25),
    st.integers(0, 400),
    st.booleans(),
    st.integers(0, 2**32),
)
@example([("copy", 0, 2), ("flush", 0, 0), ("produce", 0, 0), ("copy", 2, 3)], 60, True, 1)
def test_a_crash_anywhere(
    steps: list[tuple[str, int, int]], crash_at: int, is_power_lost: bool, seed: int
) -> None:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "logs"
        (root / "clicks-0").mkdir(parents=True)
        files = ForgetfulFiles(str(root), crash_at)
        log = live(root / "clicks-0", files, steps)
        files.crash_at = None
        files.close_all()
        found = root
        after = UnsyncedFiles()
        if is_power_lost:
            found = Path(name) / "disk"
            files.disk(str(found), Random(seed) if seed % 3 else None)
            after.boot = "another start"
        copies = [replace(each) for each in log.copies]
        again = MirroredLog(found / "clicks-0", after, copies)
        again.open()
        again.check()
        for each in copies:
            again.copy(each, 3)
        again.flush()
        again.check()
        again.log.close()


int64 = st.integers(-(2**63), 2**63 - 1)
boots = st.text("0123456789abcdef-", max_size=36)
names = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
spans = st.builds(
    SourceSpan, st.integers(-(2**31), 2**31 - 1), st.integers(0, 255), int64, int64, int64, int64
)
records = st.one_of(
    st.builds(Opened, boots, int64, int64),
    st.builds(Named, st.integers(-(2**31), 2**31 - 1), names),
    st.builds(Copied, spans, int64),
    st.builds(Checkpoint, int64, int64),
    st.builds(Closed, int64, int64),
)


@given(st.lists(records, max_size=8), st.integers(0, 10**4), st.integers(1, 255))
def test_records_are_read_up_to_the_first_bad_byte(
    written: list[object], place: int, bits: int
) -> None:
    parts = [encode_record(each) for each in written]  # type: ignore[arg-type]
    data = HEADER + b"".join(parts)
    assert [record for record, _ in parse_records(data)] == written
    assert [record for record, _ in parse_records(data[: len(data) - 1])] == written[:-1]
    ends = [end for _, end in parse_records(data)]
    assert ends == [len(HEADER) + sum(map(len, parts[: n + 1])) for n in range(len(parts))]
    at = len(HEADER) + place % max(1, len(data) - len(HEADER))
    if at < len(data):
        damaged = bytearray(data)
        damaged[at] ^= bits
        intact = sum(end <= at for end in ends)
        found = [record for record, _ in parse_records(bytes(damaged))]
        assert found[:intact] == written[:intact]
        assert len(found) == intact
