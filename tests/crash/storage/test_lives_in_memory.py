"""Lives of a data directory in memory end at any call; `memory_lives` says what must hold."""

from contextlib import suppress
from errno import ENOSPC
from itertools import count
from random import Random

import pytest
from kafka_logs import raw_batch
from memory_files import MemoryFiles
from memory_lives import ENDINGS, ROOT, Books, Life, after, lives, settings_of, stop_at
from storage_fakes import Crash
from storage_logs import NOW_MS, append

from hermes.errors import StorageError
from hermes.storage import DataDirectory, Log


def test_lives_that_end_at_any_call() -> None:
    ends, flushed, deleted = set[str](), 0, 0
    for seed in range(60):
        books, ended = lives(seed, 12)
        ends |= set(ended)
        flushed += sum(account.flushed // account.size for account in books.accounts.values())
        deleted += sum(account.earliest > 0 for account in books.accounts.values())
    assert ends == {"stopped", *ENDINGS}
    assert flushed > 100
    assert deleted > 10


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_life_that_ends_at_every_seventh_call(ending: str) -> None:
    for number in count(ENDINGS.index(ending), 7):
        files, books, chance = MemoryFiles(), Books(), Random(7)
        stop_at(files, number)
        try:
            Life(files, books, chance).run(60)
            break
        except Crash:
            files = after(files, ending, Random(number))
        Life(files, books, chance).run(5)
        Life(after(files, "all unsynced lost", chance), books, chance).run(0)
    assert number > 300


def test_what_a_kill_has_left_in_memory_is_on_disk_once_a_start_has_shown_it() -> None:
    """A first life is killed at each call; in the second one the power goes after the start."""
    for number in count():
        files, books, chance = MemoryFiles(), Books(), Random(number)
        stop_at(files, number)
        life = Life(files, books, chance)
        try:
            life.open()
            life.append(("k", 0))
            life.commit()
            break
        except Crash:
            files = after(files, "killed", chance)
        Life(files, books, chance).open()
        Life(after(files, "all unsynced lost", chance), books, chance).run(3)
    assert number > 60


def one_partition(files: MemoryFiles) -> tuple[DataDirectory, Log]:
    directory = DataDirectory(ROOT, settings_of, files)
    directory.open(NOW_MS)
    return directory, directory.create("k", 0)


def test_what_retention_deletes_is_never_missed() -> None:
    """What is known of a partition's segments is on the disk before one of them goes."""
    for number in range(80):
        files = MemoryFiles()
        _, log = one_partition(files)
        for offset in range(4):
            append(log, raw_batch(offset, 1))
        log.flush()
        stop_at(files, number)
        with suppress(Crash):
            log.delete_oldest(1000)
        for seed in range(8):
            found = files.after_power_loss(Random(seed))
            assert not DataDirectory(ROOT, settings_of, found).open(NOW_MS).lost


def test_a_deletion_that_ends_with_the_power_is_ended_later() -> None:
    """Nothing of it is called strange, and nothing stays when the topic is deleted once more."""
    partial = 0
    for number in count():
        files = MemoryFiles()
        directory, log = one_partition(files)
        for offset in range(4):
            append(log, raw_batch(offset, 1))
            log.flush()
        stop_at(files, number)
        try:
            directory.delete_topic("k")
            break
        except Crash:
            pass
        for seed in range(16):
            found = files.after_power_loss(Random(seed))
            was_there = "k-0" in found.listdir(ROOT)
            again = DataDirectory(ROOT, settings_of, found)
            report = again.open(NOW_MS)
            assert (report.strange, report.offline) == ((), {})
            partial += was_there and not again.logs
            assert again.delete_topic("k") >= 0
            assert "k-0" not in found.listdir(ROOT)
    assert number > 10
    assert partial > 5


class _Careless(MemoryFiles):
    """Says that bytes are on the disk, and they aren't."""

    def fdatasync(self, descriptor: int) -> None:
        self._node(descriptor)


class _Nameless(MemoryFiles):
    """The same of names."""

    def fsync_directory(self, path: str) -> None:
        self._there(path)


@pytest.mark.parametrize("kind", [_Careless, _Nameless])
def test_these_tests_would_notice_a_missing_sync(kind: type[MemoryFiles]) -> None:
    noticed = 0
    for seed in range(20):
        try:
            lives(seed, 12, kind)
        except (AssertionError, StorageError):
            noticed += 1
    assert noticed > 5


def test_a_log_that_is_opened_again_before_its_first_flush_keeps_its_topic() -> None:
    """What is recovered is shown: the power mustn't leave it without an id, beside an index."""
    files = MemoryFiles()
    _, log = one_partition(files)
    append(log, raw_batch(0, 1))
    syncs = files.fdatasync

    def refuse(descriptor: object) -> None:
        files.fdatasync = syncs
        raise OSError(ENOSPC, "No space left on device")

    files.fdatasync = refuse
    with pytest.raises(StorageError):
        log.flush()
    log.reopen(NOW_MS)
    assert log.high_watermark == 1
    for seed in range(32):
        again = DataDirectory(ROOT, settings_of, files.after_power_loss(Random(seed)))
        assert again.open(NOW_MS).offline == {}
        assert again.logs["k", 0].topic_id == log.topic_id
        assert again.logs["k", 0].high_watermark == 1
