"""Copies' logs in a data directory that the broker hadn't before: none counts that isn't there."""

import sys
from contextlib import suppress
from errno import EIO
from functools import partial
from itertools import count
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from memory_coordination import MemoryCoordination
from memory_files import MemoryFiles
from twisted.internet.defer import Deferred, fail, succeed
from twisted.internet.task import Clock

from hermes.coordination.replicas import ReplicaTree, replicas_path
from hermes.coordination.topic_tree import TopicTree
from hermes.errors import CoordinationUnavailableError, HermesError, StorageError
from hermes.kafka.replicas.copy_logs import CopyLogs
from hermes.kafka.replicas.timers import Timers
from hermes.replication.state import PartitionState, TopicReplicas, forfeited
from hermes.storage import DataDirectory, LogSettings
from hermes.storage.kafka_format import KAFKA
from hermes.storage.watermarks import LACKING

NOW_MS = 1_000
TOPIC_ID = UUID(int=1)
OTHER_DIRECTORY = UUID(int=77)

#: Broker 1 has a copy of what is `NAMED`, and 2 leads all that there is.
NAMED = [("a", 0), ("a", 1), ("b", 0)]
OURS = PartitionState((1, 2), 2, 0x77, 7, frozenset({1, 2}))
ALONE = PartitionState((1, 2), 1, 0x77, 7, frozenset({1}))
NOT_OURS = PartitionState((2, 3), 2, 0x77, 7, frozenset({2, 3}))


_CHANGING = (
    *("mkdir", "unlink", "rename", "rmdir", "open_new", "pwrite", "pwritev"),
    *("fdatasync", "fsync_directory"),
)


class DyingFiles(MemoryFiles):
    """Files of a process that is killed before its n-th change: it changes nothing any more."""

    def __init__(self, ends_at: int = sys.maxsize) -> None:
        super().__init__()
        self._left = ends_at
        for name in _CHANGING:
            setattr(self, name, partial(self._counted, getattr(self, name)))

    def _counted(self, call: Any, *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self.is_dead:
            raise OSError(EIO, "its process is dead")
        return call(*args, **options)

    @property
    def is_dead(self) -> bool:
        return self._left < 0


class FakeCopy:
    """A copy; `is_whole`: what it was told, None before its log is there."""

    is_gone = False

    def __init__(self, topic: str, number: int, topic_id: UUID) -> None:
        self.topic, self.number, self.topic_id = topic, number, topic_id
        self.name = f"{topic}-{number}"
        self.partition: Any = None
        self.replica = SimpleNamespace(is_whole=None, state=OURS, version=-1)

    @property
    def log(self) -> Any:
        return None if self.partition is None else self.partition.log

    def opened(self, partition: Any, *, is_whole: bool) -> None:
        self.partition, self.replica.is_whole = partition, is_whole


class Lines:
    """Attributes:
    said: the kinds of lines that there were.
    """

    def __init__(self) -> None:
        self.said: list[str] = []
        self.error = self.warn = self.info = lambda kind, *_, **__: self.said.append(kind)


class Life:
    """A process of broker 1 on a disk."""

    def __init__(self, tree: ReplicaTree, files: MemoryFiles) -> None:
        self.tree = tree
        self.files = files
        self.is_away, self.is_registered = False, True
        self.clock = Clock()
        self.lines: Any = Lines()
        self.copies: list[Any] = []
        self.directory = DataDirectory("/data/logs", lambda topic: LogSettings(), files)
        self.directory.open(NOW_MS)
        create = self.directory.create

        def create_numbered(topic: str, number: int, topic_id: UUID, **options: bool) -> Any:
            return create(topic, number, KAFKA, topic_id, **options)

        nothing = SimpleNamespace(forget=lambda log: None, of=lambda log: SimpleNamespace(log=log))
        shared: Any = SimpleNamespace(
            config=SimpleNamespace(broker_id=1),
            directory=self.directory,
            in_thread=self._in_thread,
            topics=SimpleNamespace(
                create_numbered=create_numbered, forget_copy=lambda topic, number: None
            ),
            partitions=nothing,
            flusher=nothing,
        )
        self.logs = CopyLogs(
            shared,
            self._tree,
            Timers(self.clock),
            self.lines,
            lambda: self.copies,
            lambda: self.is_registered,
            lambda copy: None,
            lambda: None,
        )

    def _tree(self) -> ReplicaTree:
        if self.is_away or (isinstance(self.files, DyingFiles) and self.files.is_dead):
            raise CoordinationUnavailableError("nobody answers")
        return self.tree

    def _in_thread(self, function: Any, *args: Any) -> "Deferred[Any]":
        try:
            return succeed(function(*args))
        except HermesError as error:
            return fail(error)

    def run(self) -> None:
        self.clock.advance(1)
        self.clock.advance(1)

    def make(self, topic: str, number: int, topic_id: UUID = TOPIC_ID) -> Any:
        copy: Any = FakeCopy(topic, number, topic_id)
        self.copies.append(copy)
        self.logs.make(copy)
        self.run()
        return copy

    def start_over(self, copy: Any) -> None:
        """What a copy does with what it lacks."""
        self.tree.change(copy.topic, copy.number, partial(forfeited, broker_id=1))
        copy.replica.is_whole = True
        self.logs.now_whole()
        self.run()

    def mark(self, topic: str, number: int) -> int | None:
        return self.directory.watermarks.get(topic, number)

    @property
    def is_known(self) -> bool:
        return self.tree.directory(1) == self.directory.own_id()


@pytest.fixture
def tree() -> ReplicaTree:
    """Coordination that knows another directory for broker 1's."""
    session = MemoryCoordination().session()
    TopicTree(session).prepare()
    tree = ReplicaTree(session)
    tree.prepare()
    tree.keep_directory(1, OTHER_DIRECTORY)
    for name, states in {"a": (OURS, OURS), "b": (OURS,), "c": (NOT_OURS, None)}.items():
        assert tree.create(name, TopicReplicas(TOPIC_ID, states))
    return tree


def test_all_that_the_broker_is_to_have_is_lacking_in_another_directory(tree: ReplicaTree) -> None:
    life = Life(tree, MemoryFiles())
    copy = life.make("a", 0)
    assert life.is_known
    assert life.lines.said == ["directory"]
    assert copy.replica.is_whole is False
    assert [life.mark(*each) for each in NAMED] == [LACKING] * 3
    assert life.mark("c", 0) is None


def test_after_a_restart_only_those_are_lacking_that_have_not_said_so(tree: ReplicaTree) -> None:
    files = MemoryFiles()
    life = Life(tree, files)
    life.start_over(life.make("a", 0))
    life.make("a", 1)
    life = Life(tree, files.after_power_loss())
    copies = [life.make(*each) for each in NAMED]
    assert [each.replica.is_whole for each in copies] == [True, False, False]
    assert [each.log.high_watermark for each in copies] == [0, 0, 0]
    assert life.lines.said == []


def test_what_is_named_later_was_never_kept_elsewhere(tree: ReplicaTree) -> None:
    life = Life(tree, MemoryFiles())
    life.make("a", 0)
    assert tree.create("d", TopicReplicas(TOPIC_ID, (OURS,)))
    assert life.make("d", 0).replica.is_whole is True


@pytest.mark.parametrize(
    ("topic_id", "state", "is_whole"),
    [
        (TOPIC_ID, ALONE, True),
        (TOPIC_ID, OURS, False),  # what others have got may have been here
        (UUID(int=2), ALONE, None),
    ],
    ids=["alone", "not alone", "another topic"],
)
def test_what_was_made_here_as_the_only_copy_lacks_nothing(
    tree: ReplicaTree, topic_id: UUID, state: PartitionState, is_whole: bool | None
) -> None:
    """It is to get others before it is known which directory the broker has."""
    life = Life(tree, MemoryFiles())
    log = life.directory.create("d", 0, KAFKA, topic_id)
    assert tree.create("d", TopicReplicas(TOPIC_ID, (state,)))
    assert life.make("d", 0).replica.is_whole is is_whole
    assert (life.mark("d", 0) == LACKING) is not is_whole
    assert log.is_sole_copy is (is_whole is None)


def test_marks_are_kept_of_copies_only_that_lack_nothing(tree: ReplicaTree) -> None:
    files = MemoryFiles()
    life = Life(tree, files)
    life.start_over(life.make("a", 0))
    life.directory.watermarks.keep({("a", 0): 9})  # and then the disk loses what it had
    life = Life(tree, files.after_power_loss())
    assert life.make("a", 0).replica.is_whole is False
    life.logs.keep_watermarks()
    life.clock.advance(5)
    assert life.logs.keep_now() is None
    assert life.mark("a", 0) == 9


@pytest.mark.parametrize("seed", [None, 1, 2, 3])
def test_wherever_a_crash_interrupts_it_nothing_counts_that_is_not_there(
    tree: ReplicaTree, seed: int | None
) -> None:
    """The power goes with the process. What has started over counts for nobody."""
    for ends_at in count():
        files = DyingFiles(ends_at)
        tree.keep_directory(1, OTHER_DIRECTORY)
        for each in NAMED:
            tree.change(*each, lambda found: OURS)
        with suppress(StorageError):
            life = Life(tree, files)
            copy = life.make("a", 1)
            if not files.is_dead:
                life.start_over(copy)
                life.make("a", 0)
        after = Life(tree, files.after_power_loss(None if seed is None else Random(seed + ends_at)))
        if after.is_known:
            for each in NAMED:
                node = tree.read_certainly(each[0])
                assert node is not None
                assert node.state_of(each[1]) != OURS or after.mark(*each) == LACKING
        copies = [after.make(*each) for each in NAMED]
        assert copies[0].replica.is_whole is copies[2].replica.is_whole is False
        if not files.is_dead:
            assert ends_at > 10
            return


def test_an_answer_that_is_lost_is_asked_for_again(tree: ReplicaTree) -> None:
    life = Life(tree, MemoryFiles())
    keep = tree.keep_directory

    def lose(*args: Any) -> None:
        keep(*args)
        life.is_away = True
        raise CoordinationUnavailableError("no answer came")

    tree.keep_directory = lose  # type: ignore[method-assign]
    copy = life.make("a", 0)
    assert copy.partition is None
    life.is_away = False
    life.run()
    assert copy.replica.is_whole is False


class Threads:
    """What worker threads are given; each runs when it is told, and is heard of later."""

    def __init__(self, life: Life) -> None:
        self._run = life._in_thread
        self.due: list[Any] = []
        self.done: list[Any] = []
        life.logs._shared.in_thread = self.call

    def call(self, function: Any, *args: Any) -> "Deferred[Any]":
        called: Deferred[Any] = Deferred()
        self.due.append((called, function, args))
        return called

    def run(self) -> None:
        called, function, args = self.due.pop()
        self.done.append((called, self._run(function, *args)))

    def tell(self) -> None:
        called, result = self.done.pop()
        result.chainDeferred(called)


def doubted(tree: ReplicaTree) -> tuple[Life, Threads, list[Any]]:
    """A copy in service, whose broker was another process meanwhile, with another directory."""
    life = Life(tree, MemoryFiles())
    life.start_over(life.make("a", 0))
    assert life.mark("a", 0) == 0
    tree.keep_directory(1, OTHER_DIRECTORY)
    return life, Threads(life), []


def test_no_mark_is_overwritten_before_its_copy_knows_that_it_lacks_something(
    tree: ReplicaTree,
) -> None:
    life, threads, told = doubted(tree)
    life.logs.ask_again().addCallback(told.append)
    threads.run()
    assert life.mark("a", 0) == LACKING
    life.logs.keep_now()
    life.logs.now_whole()
    life.clock.advance(5)
    while threads.due:
        threads.run()
    assert life.mark("a", 0) == LACKING
    threads.tell()
    assert told == [True]


def test_no_mark_is_overwritten_by_what_was_to_be_kept_before(tree: ReplicaTree) -> None:
    life, threads, told = doubted(tree)
    life.logs.keep_now()
    life.logs.ask_again().addCallback(told.append)
    threads.run()
    assert life.mark("a", 0) == LACKING
    threads.run()
    assert life.mark("a", 0) == LACKING


def test_what_is_being_made_as_it_is_asked_again_is_lacking_too(tree: ReplicaTree) -> None:
    life, threads, told = doubted(tree)
    copy: Any = FakeCopy("a", 1, TOPIC_ID)
    life.directory.watermarks.keep({("a", 1): 0})
    life.directory.create("a", 1, KAFKA, TOPIC_ID, is_sole_copy=False)
    life.logs.make(copy)
    life.clock.advance(0)
    life.logs.ask_again().addCallback(told.append)
    threads.run()
    threads.run()
    threads.tell()
    life.run()
    threads.tell()
    for _ in range(3):
        life.run()
        while threads.due:
            threads.run()
            threads.tell()
    assert told == [True]
    assert life.mark("a", 1) == LACKING
    assert copy.replica.is_whole is False


def test_no_directory_is_taken_before_the_broker_is_registered(tree: ReplicaTree) -> None:
    """Else an earlier process, in the known directory, may get copies that aren't marked."""
    life = Life(tree, MemoryFiles())
    life.is_registered = False
    copy = life.make("a", 0)
    assert tree.directory(1) == OTHER_DIRECTORY
    assert tree.create("d", TopicReplicas(TOPIC_ID, (OURS,)))
    life.is_registered = True
    life.run()
    assert life.is_known
    assert copy.replica.is_whole is False
    assert life.make("d", 0).replica.is_whole is False


def test_a_node_that_cannot_be_understood_may_name_it(tree: ReplicaTree) -> None:
    life = Life(tree, MemoryFiles())
    session: Any = tree._session
    value = session.get(replicas_path("b")).value
    session.put(replicas_path("b"), b"{}")
    copy = life.make("a", 0)
    assert not life.is_known
    assert set(life.lines.said) == {"directory"}
    session.put(replicas_path("b"), value)
    life.run()
    assert life.is_known
    assert copy.replica.is_whole is life.make("b", 0).replica.is_whole is False


def test_what_is_lacking_stays_so_where_an_empty_directory_is_made_anew(tree: ReplicaTree) -> None:
    """The power has left it of a log that an earlier life of the disk had: it looks like 0.7's."""
    files = MemoryFiles()
    files.mkdir("/data/logs")
    files.mkdir("/data/logs/a-0")
    life = Life(tree, files)
    log = life.directory.get("a", 0)
    assert log is not None
    assert not log.counts_messages
    copy = life.make("a", 0)
    life.run()
    assert copy.log is not log
    assert copy.log.counts_messages
    assert copy.replica.is_whole is False
    assert life.mark("a", 0) == LACKING


def test_a_single_copy_has_no_mark_of_an_earlier_topic(tree: ReplicaTree) -> None:
    files = MemoryFiles()
    life = Life(tree, files)
    life.make("a", 0)
    life.directory.delete_topic("a")
    assert life.mark("a", 0) == LACKING  # another one of that name may be named by now
    log = life.directory.create("a", 0, KAFKA, UUID(int=2))
    log.flush()
    life = Life(tree, files.after_power_loss())
    found = life.directory.get("a", 0)
    assert found is not None
    assert found.is_sole_copy


def test_a_copy_that_is_named_again_before_a_thread_has_deleted_it_gets_another_log(
    tree: ReplicaTree,
) -> None:
    """All threads are busy with other deletions."""
    life = Life(tree, MemoryFiles())
    life.make("a", 0)
    life.make("b", 0)
    former: Any = life.copies[0]
    due: list[Any] = []

    def later(function: Any, *args: Any) -> Any:
        done: Deferred[Any] = Deferred()
        due.append((done, function, args))
        return done

    def run_one() -> None:
        done, function, args = due.pop(0)
        life._in_thread(function, *args).chainDeferred(done)

    tree.change("a", 0, lambda found: NOT_OURS)
    life.logs._shared.in_thread = later
    life.logs.dismissed(former)
    run_one()  # it isn't named, for certain
    former.is_gone = True
    assert len(due) == 1, "its deletion waits for a thread"
    tree.change("a", 0, lambda found: OURS)
    copy: Any = FakeCopy("a", 0, TOPIC_ID)
    copy.replica.state = OURS
    life.logs.make(copy)
    life.clock.advance(0)
    for _ in range(20):
        while due:
            run_one()
        life.clock.advance(1)
    assert copy.log is not None
    assert not copy.log.is_closed
    assert life.directory.get("a", 0) is copy.log
