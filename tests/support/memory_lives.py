"""Lives of a broker's data directory in memory, one upon the other, each ended at some call.

A life appends, flushes, deletes and commits at random; it ends with a clean stop, a kill, or a loss
of power, of which the disk keeps any part. Whatever was told before is so after every start: what
was flushed is there, what was deleted is not, and what was given once is never given again.
"""

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

from kafka_logs import raw_batch
from log_accounts import Account
from memory_files import MemoryFiles
from storage_fakes import OPERATIONS, Crash
from storage_logs import NOW_MS, append, message, settings

from hermes.groups.offset_file import OffsetFile
from hermes.groups.offsets import Change, Committed, StoredGroup, TopicPartition
from hermes.storage import DataDirectory, Log, LogSettings, OpenReport
from hermes.storage.layout import TopicPartition as Partition
from hermes.storage.topic_entries import TopicEntries

ROOT = "/data/logs"
CLICKS = TopicPartition("clicks", 0)

#: How many bytes each append has in a log of 0.7, and in one of Kafka's.
SIZE, BATCH_SIZE = len(message("000000")), len(raw_batch(0, 1, b"000000"))

#: The logs: topics that begin with k have Kafka's format.
PARTITIONS: tuple[Partition, ...] = (("a", 0), ("a", 1), ("b", 0), ("k", 0), ("k", 1), ("kl", 0))

#: What the disk holds after a stop.
ENDINGS = ("killed", "all unsynced lost", "some of it lost")


def settings_of(topic: str) -> LogSettings:
    if topic.startswith("k"):
        return settings(3 * BATCH_SIZE, format="kafka")
    return settings(3 * SIZE)


def stop_at(files: MemoryFiles, call: int) -> None:
    """End the machine at a call, counted from 0 and from now on."""
    left = call

    def stopping(made: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            if left <= 0:
                raise Crash
            left -= 1
            return made(*arguments, **options)

        return stopped

    for name in OPERATIONS:
        setattr(files, name, stopping(getattr(type(files), name).__get__(files)))


def after(files: MemoryFiles, ending: str, chance: Random) -> MemoryFiles:
    """What the next life finds."""
    if ending != "killed":
        return files.after_power_loss(None if ending == "all unsynced lost" else chance)
    for name in OPERATIONS:
        vars(files).pop(name, None)
    files.close_all()
    return files


class Books:
    """What a broker has told its users, over all its lives.

    Attributes:
        accounts: of the logs that there are, or may be.
        ids: the topics' ids, as coordination has them.
        told_ids: the ids that partitions had with a flush.
        doomed: topics whose deletion has begun, and not returned.
        entries: what may be set for topics: the last one of these returned, if there is but one.
        committed: the least and the largest offset that a group may have.
        was_opened: whether the last start came to its end.
        is_clean: whether the last life has ended with a clean stop.
    """

    def __init__(self) -> None:
        self.accounts: dict[Partition, Account] = {}
        self.ids: dict[str, UUID | None] = {}
        self.told_ids: dict[Partition, UUID | None] = {}
        self.doomed: set[str] = set()
        self.entries: list[TopicEntries] = [{}]
        self.cluster_id: str | None = None
        self.producer_id = 0
        self.committed = (0, 0)
        self.was_opened = True
        self.is_clean = False
        self.number = 0

    def account(self, partition: Partition) -> Account:
        found = self.accounts.get(partition)
        if found is None:
            is_kafkas = partition[0].startswith("k")
            topic_id = UUID(int=self.number) if is_kafkas else None
            self.ids.setdefault(partition[0], topic_id)
            found = Account(BATCH_SIZE, BATCH_SIZE) if is_kafkas else Account(SIZE)
            self.accounts[partition] = found
        return found

    def forget(self, partition: Partition) -> None:
        del self.accounts[partition]
        self.told_ids.pop(partition, None)

    def check(self, directory: DataDirectory, report: OpenReport, *, tells: bool) -> None:
        """Hold a directory against what was told, after a start; what is there counts from now.

        Args:
            tells: whether the report has all damage; the one of an earlier start may have had it.
        """
        assert report.was_clean >= self.is_clean
        logs = {key: log for key, log in directory.logs.items() if key[0] not in self.doomed}
        assert not (report.offline.keys() | report.lost.keys()) & logs.keys()
        assert not [each for each in report.strange if not each.endswith(".unflushed")]
        unknown = logs.keys() - self.accounts.keys()
        assert not unknown, f"deleted, and there again: {unknown}"
        for partition, account in list(self.accounts.items()):
            log = logs.get(partition)
            if log is None:
                assert not account.flushed or partition[0] in self.doomed, partition
                self.forget(partition)
                continue
            recovered = report.recovered.get(partition)
            bad = [] if recovered is None else [*recovered.bad_ranges]
            account.check(log, bad if tells else [(account.flushed, log.high_watermark)])
            if report.was_clean:
                assert log.high_watermark == account.end, partition
            assert log.topic_id == self.told_ids.get(partition, log.topic_id)
            topic_id = self.ids[partition[0]]
            if topic_id is not None:
                log.adopt_topic_id(topic_id)  # as a broker does, if the power has taken it
            self._settle(account, log)
        self.was_opened = True

    def _settle(self, account: Account, log: Log) -> None:
        start = log.earliest
        account.accepted[start * account.unit :] = account.read(log, start)
        account.flushed, account.earliest = log.high_watermark, start
        account.maybe_earliest = start


class Life:
    """One start of a broker, and what it does until it is stopped."""

    def __init__(self, files: MemoryFiles, books: Books, chance: Random) -> None:
        self.books, self.chance = books, chance
        self._files = files
        self.directory = DataDirectory(ROOT, settings_of, files, take_entries=self._take)

    def _take(self, entries: TopicEntries) -> None:
        assert entries in self.books.entries
        self._entries = entries

    def run(self, steps: int) -> None:
        """Live to a clean stop."""
        self.open()
        for _ in range(steps):
            self._files.now_ns += 10**6
            self.step()
        assert self.directory.close()
        for account in self.books.accounts.values():
            account.flushed = account.end
        self.books.is_clean = True
        self._groups.close()

    def open(self) -> None:
        books = self.books
        was_opened, books.was_opened = books.was_opened, False
        report = self.directory.open(NOW_MS, broker_id=1)
        books.check(self.directory, report, tells=was_opened)
        books.is_clean = False
        books.entries = [self._entries]
        for topic in list(books.doomed):
            self.end_deletion(topic)
        self.directory.keep_owner()
        self._groups = OffsetFile(f"{ROOT}/.hermes_kafka_groups", self._files, str)
        least, largest = books.committed
        group = self._groups.load("g") or StoredGroup(None, {CLICKS: Committed(0, -1, "", 0)})
        found = group.offsets[CLICKS].offset
        assert least <= found <= largest
        books.committed = found, found

    def step(self) -> None:
        steps = (
            (self.append, 40),
            (self.flush, 16),
            (self.delete_oldest, 6),
            (self.delete_records, 4),
            (self.delete_topic, 3),
            (self.commit, 4),
            (self.set_entries, 2),
            (self.take_ids, 2),
        )
        calls, weights = zip(*steps, strict=True)
        self.chance.choices(calls, weights)[0]()

    def some_log(self) -> tuple[Log | None, Account]:
        """One that there is, if there is any."""
        logs = list(self.directory.logs)
        if not logs:
            return None, Account(SIZE)
        partition = self.chance.choice(logs)
        return self.directory.get(*partition), self.books.accounts[partition]

    def append(self, partition: Partition | None = None) -> None:
        topic, number = partition or self.chance.choice(PARTITIONS)
        account = self.books.account((topic, number))
        log = self.directory.create(topic, number, topic_id=self.books.ids[topic])
        for _ in range(self.chance.randint(1, 5)):
            self.books.number += 1
            text = b"%06d" % self.books.number
            is_kafkas = log.counts_messages
            data = raw_batch(log.end_offset, 1, text) if is_kafkas else message(text)
            assert append(log, data) == account.end
            account.accepted += data

    def flush(self) -> None:
        log, account = self.some_log()
        if log is None:
            return
        assert log.flush() == account.end
        account.flushed = account.end
        told_ids = self.books.told_ids
        assert told_ids.setdefault((log.topic, log.partition), log.topic_id) == log.topic_id
        expected = account.between(log.earliest, log.high_watermark)
        assert account.read(log, log.earliest) == expected

    def delete_oldest(self) -> None:
        log, account = self.some_log()
        if log is None:
            return
        account.maybe_earliest = account.end
        log.delete_oldest(self.chance.randint(1, 3) if self.chance.random() < 0.9 else 1000)
        self._deleted(log, account)

    def delete_records(self) -> None:
        log, account = self.some_log()
        if log is None or not log.counts_messages:
            return
        offset = self.chance.randint(log.earliest, log.high_watermark)
        account.maybe_earliest = max(account.maybe_earliest, offset)
        assert log.delete_records(offset) == offset
        self._deleted(log, account)

    def _deleted(self, log: Log, account: Account) -> None:
        account.earliest = account.maybe_earliest = log.earliest
        account.flushed = max(account.flushed, log.high_watermark)

    def delete_topic(self) -> None:
        topic = self.chance.choice(PARTITIONS)[0]
        self.books.doomed.add(topic)
        self.end_deletion(topic)

    def end_deletion(self, topic: str) -> None:
        books = self.books
        self.directory.delete_topic(topic)
        books.doomed.discard(topic)
        books.ids.pop(topic, None)
        for partition in [each for each in books.accounts if each[0] == topic]:
            books.forget(partition)

    def commit(self) -> None:
        least, largest = self.books.committed
        self.books.committed = least, largest + 1
        change = Change("g", offsets={CLICKS: Committed(largest + 1, -1, "", 0)})
        assert self._groups.write([change]) == [None]
        self.books.committed = largest + 1, largest + 1

    def set_entries(self) -> None:
        self.books.number += 1
        entries = {"a": {"flush_messages": str(self.books.number)}}
        self.books.entries.append(entries)
        self.directory.write_entries(entries)
        self.books.entries = [entries]

    def take_ids(self) -> None:
        books = self.books
        first = self.directory.claim_producer_ids(10)
        assert first >= books.producer_id
        books.producer_id = first + 10
        made = str(UUID(int=self.chance.getrandbits(128)))
        found = self.directory.cluster_id(lambda: made)
        assert found == (books.cluster_id or found)
        books.cluster_id = found


def lives(seed: int, count: int, kind: type[MemoryFiles] = MemoryFiles) -> tuple[Books, list[str]]:
    """Live so many lives one after the other; how each has ended."""
    chance, files, books, ends = Random(seed), kind(), Books(), []
    # From lives that hardly start to such that are rarely stopped at all.
    calls = chance.choice((30, 100, 300, 1000))
    for _ in range(count):
        stop_at(files, chance.randrange(calls))
        ending = chance.choice(ENDINGS)
        try:
            Life(files, books, chance).run(chance.randint(1, 60))
            ends.append("stopped")
        except Crash:
            books.is_clean = False
            ends.append(ending)
        files = after(files, ending, chance)
    Life(files, books, chance).run(0)
    assert files.open_count == 0
    return books, ends
