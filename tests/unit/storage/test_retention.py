"""Applying retention policies: which times they see, and what is done with their answer."""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from storage_logs import NOW_MS, append, kafka_files, message, open_log, settings, write_segments
from zope.interface import implementer

from hermes.errors import LogOfflineError, PluginError
from hermes.interfaces import IRetentionPolicy, SegmentInfo
from hermes.storage import AppendAges, Log, apply_retention

HOUR_MS = 3_600_000


@implementer(IRetentionPolicy)
class Policy:
    """Answers with a function and remembers what it was asked."""

    def __init__(self, answer: Callable[[Sequence[SegmentInfo], int], int]) -> None:
        self._answer = answer
        self.seen: tuple[SegmentInfo, ...] = ()

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        self.seen = segments
        return self._answer(segments, now_ms)


def older_than(age_ms: int) -> Policy:
    def expired(segments: Sequence[SegmentInfo], now_ms: int) -> int:
        count = 0
        while count < len(segments) and now_ms - segments[count].last_append_ms > age_ms:
            count += 1
        return count

    return Policy(expired)


def touch(path: Path, time_ms: int) -> None:
    os.utime(path, ns=(time_ms * 10**6, time_ms * 10**6))


def ages(policy: Policy) -> list[float]:
    return [(NOW_MS - info.last_append_ms) / HOUR_MS for info in policy.seen]


def ours(directory: Path) -> Log:
    """Four segments, last appended to 4, 3, 2 and 1 hours ago."""
    log = open_log(directory, log_settings=settings(1))
    for hours in (4, 3, 2, 1):
        append(log, message(f"{hours} hours ago"), now_ms=NOW_MS - hours * HOUR_MS)
    log.flush()
    return log


def foreign(directory: Path, *hours_ago: float) -> Log:
    """Segments as Kafka leaves them, with these ages by mtime."""
    write_segments(directory, [message("x") for _ in hours_ago])
    for path, hours in zip(sorted(directory.iterdir()), hours_ago, strict=True):
        touch(path, int(NOW_MS - hours * HOUR_MS))
    return open_log(directory, clean=True)


def test_what_is_expired_goes(tmp_path: Path) -> None:
    log = ours(tmp_path / "clicks-0")
    policy = older_than(int(2.5 * HOUR_MS))
    size = len(message("4 hours ago"))
    assert apply_retention(log, policy, NOW_MS) == 2 * size
    assert ages(policy) == [4, 3, 2, 1]
    assert log.earliest == 2 * size
    assert apply_retention(log, policy, NOW_MS) == 0


def test_what_others_delete_meanwhile_is_not_counted_again(tmp_path: Path) -> None:
    """DeleteRecords, say, or compaction that has left a segment empty."""
    log = ours(tmp_path / "clicks-0")
    size = len(message("4 hours ago"))

    def expired(segments: Sequence[SegmentInfo], now_ms: int) -> int:
        log.delete_oldest(2)
        return 2

    assert apply_retention(log, Policy(expired), NOW_MS) == 0
    assert log.earliest == 2 * size


def test_what_is_appended_meanwhile_stays_also_in_a_segment_that_was_old(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=settings(20))
    append(log, message("old"), now_ms=NOW_MS - HOUR_MS)
    log.flush()

    def expired(segments: Sequence[SegmentInfo], now_ms: int) -> int:
        for text in ("new", "next segment"):
            append(log, message(text), now_ms=NOW_MS)
        log.flush()
        return len(segments)

    assert apply_retention(log, Policy(expired), NOW_MS) == 0
    assert (log.earliest, log.segment_count) == (0, 2)


def test_nothing_expired_nothing_done(tmp_path: Path) -> None:
    log = ours(tmp_path / "clicks-0")
    before = kafka_files(tmp_path / "clicks-0")
    assert apply_retention(log, older_than(5 * HOUR_MS), NOW_MS) == 0
    assert kafka_files(tmp_path / "clicks-0") == before


def test_if_everything_is_old_the_log_ends_where_it_began(tmp_path: Path) -> None:
    log = ours(tmp_path / "clicks-0")
    end = log.end_offset
    assert apply_retention(log, older_than(HOUR_MS // 2), NOW_MS) == end
    assert log.earliest == log.high_watermark == end
    assert list(kafka_files(tmp_path / "clicks-0")) == [f"{end:020d}.kafka"]
    assert apply_retention(log, older_than(0), NOW_MS + HOUR_MS) == 0


def test_copied_files_keep_their_age_with_our_index(tmp_path: Path) -> None:
    ours(tmp_path / "clicks-0").close()
    shutil.copytree(tmp_path / "clicks-0", tmp_path / "copy-0", copy_function=shutil.copyfile)
    for number, path in enumerate(sorted((tmp_path / "copy-0").iterdir())):
        touch(path, NOW_MS + (number - 3) * 1000 * HOUR_MS)
    log = open_log(tmp_path / "copy-0", clean=True)
    policy = older_than(int(2.5 * HOUR_MS))
    apply_retention(log, policy, NOW_MS)
    assert ages(policy) == [4, 3, 2, 1]
    assert len(log.segment_infos()) == 2


def test_files_from_elsewhere_have_their_mtime(tmp_path: Path) -> None:
    log = foreign(tmp_path / "clicks-0", 4, 3, 2, 1)
    policy = older_than(int(2.5 * HOUR_MS))
    assert apply_retention(log, policy, NOW_MS) == 22
    assert ages(policy) == [4, 3, 2, 1]


@pytest.mark.parametrize(
    ("hours_ago", "believed"),
    [
        ((4, -9, 2, 1), [4, 2, 2, 1]),
        ((-9, 3, 2, 1), [3, 3, 2, 1]),
        ((4, 3, 2, -9), [4, 3, 2, 0]),
        ((-9, -8, 2, -9), [2, 2, 2, 0]),
        ((-9, -9, -9, -9), [0, 0, 0, 0]),
    ],
)
def test_an_mtime_in_the_future_blocks_nothing(
    tmp_path: Path, hours_ago: tuple[float, ...], believed: list[float]
) -> None:
    """No segment can be newer than the one after it, nor than now."""
    log = foreign(tmp_path / "clicks-0", *hours_ago)
    policy = older_than(10**6 * HOUR_MS)
    apply_retention(log, policy, NOW_MS)
    assert ages(policy) == believed


def test_an_mtime_that_is_too_old_costs_no_more_than_that_segment(tmp_path: Path) -> None:
    """Newer segments before it are not believed older for its sake."""
    log = foreign(tmp_path / "clicks-0", 1, 1, 10**5, 1)
    policy = older_than(2 * HOUR_MS)
    assert apply_retention(log, policy, NOW_MS) == 0
    assert ages(policy) == [1, 1, 10**5, 1]


def test_a_clock_that_was_ahead_for_a_while_blocks_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "clicks-0", log_settings=settings(1))
    append(log, message("a"), now_ms=NOW_MS + 10**6 * HOUR_MS)
    log.flush()
    append(log, message("b"), now_ms=NOW_MS - 3 * HOUR_MS)
    append(log, message("c"), now_ms=NOW_MS)
    log.flush()
    assert apply_retention(log, older_than(2 * HOUR_MS), NOW_MS) == 22


def test_a_message_that_comes_while_the_policy_decides_is_kept(tmp_path: Path) -> None:
    log = ours(tmp_path / "clicks-0")

    def all_of_them(segments: Sequence[SegmentInfo], now_ms: int) -> int:
        append(log, message("just now"), now_ms=NOW_MS)
        return len(segments)

    apply_retention(log, Policy(all_of_them), NOW_MS)
    log.flush()
    assert log.end_offset - log.earliest == len(message("just now"))


@pytest.mark.parametrize("answer", [-1, 0, 10**9])
def test_answers_beyond_all_bounds_are_cut_to_them(tmp_path: Path, answer: int) -> None:
    log = ours(tmp_path / "clicks-0")
    end = log.end_offset
    deleted = apply_retention(log, Policy(lambda segments, now_ms: answer), NOW_MS)
    assert deleted == (end if answer > 0 else 0)


def test_a_log_that_could_not_be_opened_is_left_alone(tmp_path: Path) -> None:
    log = Log("clicks", 0, str(tmp_path / "nowhere"), settings())
    with pytest.raises(LogOfflineError):
        apply_retention(log, older_than(0), NOW_MS)


def test_what_was_appended_under_watch_is_no_older_than_the_watch_says(tmp_path: Path) -> None:
    """The wall clock has jumped ahead by a year, and everybody believes it."""
    year_ms = 365 * 24 * HOUR_MS
    log = ours(tmp_path / "clicks-0")
    watch = AppendAges(log.end_offset)
    policy = older_than(HOUR_MS)
    append(log, message("fresh"), now_ms=NOW_MS)
    log.flush()
    old, fresh = 4 * len(message("4 hours ago")), len(message("fresh"))
    assert apply_retention(log, policy, NOW_MS + year_ms, watch, 1_000) == old
    assert apply_retention(log, policy, NOW_MS + year_ms, watch, 1_000 + HOUR_MS) == 0
    append(log, message("freshest"), now_ms=NOW_MS + year_ms)
    log.flush()
    assert apply_retention(log, policy, NOW_MS + year_ms, watch, 2_000 + HOUR_MS) == fresh
    assert [info.last_append_ms - NOW_MS - year_ms for info in policy.seen] == [-HOUR_MS - 1000, 0]
    assert apply_retention(log, policy, NOW_MS + 3 * year_ms, watch, 3_000 + 2 * HOUR_MS) > 0
    assert log.size_bytes == 0


def test_a_watch_makes_nothing_older(tmp_path: Path) -> None:
    """It may be the wall clock that was set back."""
    log = ours(tmp_path / "clicks-0")
    watch = AppendAges(0)
    policy = older_than(5 * HOUR_MS)
    apply_retention(log, policy, NOW_MS, watch, 0)
    assert apply_retention(log, policy, NOW_MS, watch, 100 * HOUR_MS) == 0
    assert ages(policy) == [4, 3, 2, 1]


class Misbehaves:
    """Answers with whatever it is given, or raises it."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def expired(self, segments: tuple[SegmentInfo, ...], now_ms: int) -> int:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer  # type: ignore[return-value]


@pytest.mark.parametrize("answer", ["two", None, 1.0, True, KeyError("mood")], ids=repr)
def test_a_policy_that_misbehaves_is_named_and_deletes_nothing(
    tmp_path: Path, answer: object
) -> None:
    log = ours(tmp_path / "clicks-0")
    with pytest.raises(PluginError, match=r"retention policy \S+\.Misbehaves: "):
        apply_retention(log, Misbehaves(answer), NOW_MS)
    assert log.earliest == 0
