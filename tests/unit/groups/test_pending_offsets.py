"""Offsets that transactions commit: through both stores, from life to life, and past failures."""

from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench, messages
from memory_coordination import MemoryCoordination
from simulated_members import Topics
from twisted.internet.defer import Deferred, maybeDeferred, succeed
from twisted.internet.task import Clock

from hermes.errors import CoordinationUnavailableError, HermesError
from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import CoordinatorSettings, LocalGroups
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import Change, Committed, GroupStore, TopicPartition
from hermes.protocol.kafka_errors import Code
from hermes.storage import FileLayer

CLICKS, MORE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
PRODUCER, OTHER = 5, 6


class Brokers:
    """Who coordinates the group, one after the other: each reads what the last has stored."""

    def __init__(self, open_store: Callable[[], GroupStore]) -> None:
        self._open = open_store
        self.now_ms = 1000
        self.held: list[Deferred[None]] | None = None
        self.next()

    def next(self) -> None:
        self.store = self._open()
        self.local = LocalGroups(
            *(self.store, 0, lambda: (0,), CoordinatorSettings, Topics({"clicks": 4})),
            *(Clock(), lambda: self.now_ms, self.in_thread),
        )
        self.groups = GroupCoordinator(self.local)

    def in_thread(self, function: Callable[..., Any], *args: Any) -> Deferred[Any]:
        """Call a function at once; or when those that are `held` are let go."""
        if self.held is None:
            return maybeDeferred(function, *args)
        turn: Deferred[None] = Deferred()
        self.held.append(turn)
        return turn.addCallback(lambda _: function(*args))

    def done(self, asked: Coroutine[Any, Any, Any]) -> Any:
        answers: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(answers.append)
        (answer,) = answers
        return answer

    def commit(self, offset: int, place: TopicPartition = CLICKS, producer: int = PRODUCER) -> Code:
        """Have a transaction commit an offset."""
        offsets = {place: Committed(offset, -1, "", self.now_ms)}
        asked = ("g", "", None, -1, producer, offsets, lambda: succeed(Code.NONE))
        code: Code = self.done(self.groups.commit_in_transaction(*asked))
        return code

    def end(self, commits: bool = True, producer: int = PRODUCER) -> None:
        """Write a transaction's marker."""
        ending = self.groups.end_transaction("g", producer, commits=commits)
        assert self.done(ending) is Code.NONE

    @property
    def committed(self) -> dict[TopicPartition, int]:
        code, found = self.done(self.groups.fetch("g", None))
        assert code is Code.NONE
        return {place: each.offset for place, each in found.items()}


@pytest.fixture(params=["file", "tree"])
def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> Brokers:
    coordination = MemoryCoordination()
    if request.param == "tree":
        return Brokers(lambda: OffsetTree(coordination.session))
    return Brokers(lambda: OffsetFile(str(tmp_path / "the groups"), FileLayer(), pytest.fail))


def test_what_is_committed_is_shown_and_what_is_aborted_is_not(brokers: Brokers) -> None:
    assert brokers.commit(1) is Code.NONE
    assert brokers.commit(7, MORE, OTHER) is Code.NONE
    assert brokers.committed == {}
    assert set(brokers.groups.unstable("g")) == {CLICKS, MORE}
    brokers.end()
    brokers.end(producer=OTHER, commits=False)
    brokers.end()  # again
    for _ in range(2):
        assert brokers.committed == {CLICKS: 1}
        assert brokers.groups.unstable("g") == ()
        brokers.next()


def test_another_coordinator_ends_what_was_begun(brokers: Brokers) -> None:
    many = [TopicPartition("clicks", each) for each in range(70)]
    for place in many:
        assert brokers.commit(3, place) is Code.NONE
    brokers.next()
    brokers.end()
    brokers.next()
    assert brokers.committed == dict.fromkeys(many, 3)


def test_who_was_replaced_meanwhile_stores_nothing(brokers: Brokers) -> None:
    assert brokers.commit(1) is Code.NONE
    older = brokers.groups
    if isinstance(brokers.store, OffsetFile):
        pytest.skip("a broker alone isn't replaced")
    brokers.next()
    brokers.end(commits=False)
    newer, brokers.groups = brokers.groups, older
    assert brokers.commit(2) is Code.NOT_COORDINATOR
    brokers.groups = newer
    brokers.end()
    assert brokers.committed == {}


def test_an_offset_that_comes_after_the_marker_waits_for_another_one(brokers: Brokers) -> None:
    assert brokers.commit(1) is Code.NONE

    async def join() -> Code:
        brokers.end()
        return Code.NONE

    late = {CLICKS: Committed(2, -1, "", 1000)}
    asked = brokers.groups.commit_in_transaction("g", "", None, -1, PRODUCER, late, join)
    assert brokers.done(asked) is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert brokers.committed == {CLICKS: 1}


@pytest.mark.parametrize("commits", [True, False])
def test_what_failed_and_is_there_is_of_no_later_transaction(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch, commits: bool
) -> None:
    assert brokers.commit(1, MORE) is Code.NONE
    store, write = brokers.store, brokers.store.write

    def unheard(changes: Sequence[Change]) -> list[HermesError | None]:
        write(changes)
        return [CoordinationUnavailableError("nothing was heard of it")] * len(changes)

    with monkeypatch.context() as patch:
        patch.setattr(store, "write", unheard)
        assert brokers.commit(99) is Code.COORDINATOR_NOT_AVAILABLE
    brokers.end(commits=commits)
    brokers.next()
    assert brokers.groups.unstable("g") == ()
    assert brokers.commit(2, MORE) is Code.NONE
    brokers.end()
    assert brokers.committed == {MORE: 2}


def test_a_group_with_something_pending_does_not_expire_and_can_be_deleted(
    brokers: Brokers,
) -> None:
    assert brokers.commit(1) is Code.NONE
    brokers.now_ms += 30 * 24 * 3600 * 1000
    brokers.done(brokers.groups.expiry.expire())
    assert set(brokers.groups.unstable("g")) == {CLICKS}
    assert brokers.done(brokers.groups.delete("g")) is Code.NONE
    brokers.end()
    assert brokers.committed == {}
    assert brokers.store.names() == []


def test_nothing_is_held_of_what_has_ended(brokers: Brokers) -> None:
    for offset in range(3):
        assert brokers.commit(offset) is Code.NONE
        brokers.end(commits=False)
    (entry,) = brokers.local.entries.values()
    assert (entry.pending, entry.doubtful, entry.offset_bytes) == ({}, {}, 0)


def test_what_is_committed_after_what_is_pending_stays(brokers: Brokers) -> None:
    """Kafka keeps the most recent of both, whichever takes effect last."""
    assert brokers.commit(10) is Code.NONE
    reset = {CLICKS: Committed(50, -1, "", brokers.now_ms + 5)}
    assert brokers.done(brokers.groups.commit("g", "", None, -1, reset)) is Code.NONE
    brokers.end()
    assert brokers.committed == {CLICKS: 50}


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_committed_while_the_transaction_ends_stays(brokers: Brokers, fails: bool) -> None:
    assert brokers.commit(10) is Code.NONE
    calls = brokers.held = []
    answers: list[Any] = []
    reset = {CLICKS: Committed(50, -1, "", brokers.now_ms + 5)}
    for asked in (
        brokers.groups.end_transaction("g", PRODUCER, commits=True),
        brokers.groups.commit("g", "", None, -1, reset),
    ):
        Deferred.fromCoroutine(asked).addBoth(answers.append)
    calls.pop(0).callback(None)
    if fails:
        calls.pop(0).errback(CoordinationUnavailableError("out of reach"))
    while calls:
        calls.pop(0).callback(None)
    assert answers == [Code.COORDINATOR_NOT_AVAILABLE if fails else Code.NONE] * 2
    brokers.held = None
    brokers.end()  # as its coordinator does until it is told that this is done
    for _ in range(2):
        assert brokers.committed == {CLICKS: 10 if fails else 50}
        assert brokers.groups.unstable("g") == ()
        brokers.next()


def test_an_old_topic_of_such_a_name_is_none_of_a_transaction(tmp_path: Path) -> None:
    names = {"~old": Code.NONE, "~5": Code.NONE, "~5~old": Code.INVALID_TOPIC_EXCEPTION}
    for name in names:
        (tmp_path / f"{name}-0").mkdir()
        (tmp_path / f"{name}-0" / f"{0:020}.kafka").touch()
    kinds = messages("OffsetCommit", 8, "request")
    place = kinds.OffsetCommitRequestPartition(
        partition_index=0, committed_offset=0, committed_metadata=""
    )
    topics = [kinds.OffsetCommitRequestTopic(name=name, partitions=(place,)) for name in names]
    group = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    bench = KafkaBench(tmp_path)
    answer = bench.ask("OffsetCommit", 8, group_instance_id=None, topics=tuple(topics), **group)
    assert {each.name: each.partitions[0].error_code for each in answer.topics} == names
    bench.close()
    bench = KafkaBench(tmp_path)
    asked = {"group_id": "g", "topics": None, "require_stable": True}
    found = bench.ask("OffsetFetch", 7, **asked)
    assert {each.name for each in found.topics} == {"~old", "~5"}
    bench.close()
