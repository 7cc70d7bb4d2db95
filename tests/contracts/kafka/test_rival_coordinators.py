"""Two brokers that both take a group for theirs: who was replaced writes nothing any more."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack
from itertools import count
from typing import Any

import pytest
from coordination_servers import KINDS, ServerProcess
from offset_nodes import offset_node_path
from simulated_consumers import a_join
from simulated_members import Topics
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock

from hermes.coordination.kafka_groups import group_node_path
from hermes.coordination.sessions import Session
from hermes.errors import CoordinationUnavailableError, HermesError, InvalidNodeError
from hermes.groups.coordinator import GroupCoordinator
from hermes.groups.local_groups import CoordinatorSettings, LocalGroups
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import (
    Change,
    Committed,
    GroupMovedError,
    GroupRecord,
    StoredGroup,
    TopicPartition,
)
from hermes.groups.values import GroupSettings
from hermes.protocol.kafka_errors import Code

_numbers = count()
CLICKS = TopicPartition("clicks", 0)
ONE, TWO = Committed(1, -1, "", 1000), Committed(2, -1, "", 2000)


class LossySession(Session):
    """Says of the next transaction that nothing was heard of it, whether or not it was done.

    Attributes:
        loses: `before` it is sent, or `after` it was carried out; None: it says what is.
    """

    loses: str | None = None

    def transact(self, fill: Callable[[Any], None]) -> list[Any]:
        loses, self.loses = self.loses, None
        if loses != "before":
            results = super().transact(fill)
        if loses is not None:
            raise CoordinationUnavailableError("the connection was lost")
        return results


@pytest.fixture(params=sorted(KINDS))
def rivals(
    request: pytest.FixtureRequest, coordination_server: Callable[[str], ServerProcess]
) -> Iterator[list[tuple[OffsetTree, LossySession]]]:
    """Two stores of the same groups, with the sessions that they use."""
    connect = f"{coordination_server(request.param).address}/rivals-{next(_numbers)}"
    with ExitStack() as stack:
        found = []
        for _ in range(2):
            session = LossySession(
                connect, connection_timeout_seconds=60, session_timeout_seconds=30
            )
            session.start()
            store = OffsetTree(lambda session=session: session)  # type: ignore[misc]
            stack.callback(session.stop)
            stack.callback(store.close)
            found.append((store, session))
        yield found


def refused(result: list[HermesError | None]) -> bool:
    return isinstance(result[0], GroupMovedError)


@pytest.mark.parametrize("was_there", [True, False])
@pytest.mark.parametrize(
    "change",
    [
        Change("g", offsets={CLICKS: TWO}),
        Change("g", GroupRecord(9, "consumer", -1)),
        Change("g", forget=True),
        Change("g", offsets={TopicPartition("clicks", each): TWO for each in range(150)}),
        Change("g"),
    ],
    ids=["offset", "generation", "forget", "many", "nothing"],
)
def test_who_was_replaced_writes_nothing(
    rivals: list[tuple[OffsetTree, LossySession]], was_there: bool, change: Change
) -> None:
    (old, _), (new, _) = rivals
    old.load("g")
    if was_there:
        assert old.write([Change("g", GroupRecord(1, "consumer", -1), {CLICKS: ONE})]) == [None]
    before = new.load("g")
    assert (before is not None) == was_there
    assert new.write([Change("g", offsets={CLICKS: ONE})]) == [None]
    if was_there or not change.forget:  # to forget what was never there is done already
        assert refused(old.write([change]))
        assert refused(old.write([change]))
    assert new.write([Change("g", offsets={TopicPartition("views", 0): ONE})]) == [None]
    found = old.load("g")
    assert found is not None
    assert found.offsets == {CLICKS: ONE, TopicPartition("views", 0): ONE}
    assert refused(new.write([change]))


class Rival:
    """A coordinator that takes a group for its own, and waits for its store."""

    def __init__(self, store: OffsetTree, name: str = "g") -> None:
        self._name = name
        settings = CoordinatorSettings(GroupSettings(initial_delay_seconds=0))
        self._clock = Clock()
        self._groups = GroupCoordinator(
            LocalGroups(
                *(store, 0, lambda: (0,), lambda: settings, Topics({"clicks": 4})),
                *(self._clock, lambda: 1000, maybeDeferred),
            )
        )

    def commit(self, committed: Committed) -> Code:
        code: Code = self.done(self._groups.commit(self._name, "", None, -1, {CLICKS: committed}))
        return code

    def fetch(self) -> tuple[Code, int | None]:
        """What it says is committed; None for nothing."""
        code, found = self.done(self._groups.fetch(self._name, [CLICKS]))
        return code, found[CLICKS].offset if CLICKS in found else None

    def forget_offset(self) -> Code:
        code: Code = self.done(self._groups.delete_offsets(self._name, [CLICKS]))[0]
        return code

    def forget_group(self) -> Code:
        code: Code = self.done(self._groups.delete(self._name))
        return code

    def join(self) -> Code:
        code: Code = self.done(self._groups.join(self._name, a_join("", needs_id=True))).code
        return code

    def done(self, asked: Coroutine[Any, Any, Any]) -> Any:
        answers: list[Any] = []
        Deferred.fromCoroutine(asked).addBoth(answers.append)
        (answer,) = answers
        return answer


def test_who_was_replaced_says_nothing_of_what_is_committed(
    rivals: list[tuple[OffsetTree, LossySession]],
) -> None:
    (store, session), (other_store, _) = rivals
    old, new = Rival(store), Rival(other_store)
    assert old.commit(ONE) is Code.NONE
    assert new.commit(TWO) is Code.NONE
    assert old.fetch() == (Code.NOT_COORDINATOR, None)
    assert new.fetch() == (Code.NONE, 2)
    assert old.fetch() == (Code.NONE, 2)  # which takes it back, as if it were at home there
    assert new.fetch() == (Code.NOT_COORDINATOR, None)
    session.loses = "before"  # who hears nothing of the others says nothing either
    assert old.fetch() == (Code.COORDINATOR_LOAD_IN_PROGRESS, None)
    assert old.fetch() == (Code.NONE, 2)


def test_nor_does_one_that_has_nothing_of_the_group_on_disk(
    rivals: list[tuple[OffsetTree, LossySession]],
) -> None:
    (store, session), (other_store, _) = rivals
    old, new = Rival(store), Rival(other_store)
    assert old.join() is Code.MEMBER_ID_REQUIRED
    assert old.fetch() == (Code.NONE, None)
    assert session.get(group_node_path("g")) is None
    assert new.commit(ONE) is Code.NONE
    assert old.fetch() == (Code.NOT_COORDINATOR, None)


@pytest.mark.parametrize("has_committed", [True, False])
def test_who_was_replaced_deletes_nothing_and_says_so(
    rivals: list[tuple[OffsetTree, LossySession]], has_committed: bool
) -> None:
    (store, _), (other_store, _) = rivals
    for number, deletes in enumerate([Rival.forget_offset, Rival.forget_group]):
        old, new = Rival(store, f"g{number}"), Rival(other_store, f"g{number}")
        if has_committed:
            assert old.commit(ONE) is Code.NONE
        else:
            assert old.join() is Code.MEMBER_ID_REQUIRED
        assert new.commit(TWO) is Code.NONE
        assert deletes(old) is Code.NOT_COORDINATOR
        assert new.fetch() == (Code.NONE, 2)
        assert deletes(new) is Code.NONE
        assert new.fetch() == (Code.NONE, None)


def test_the_others_groups_are_written_all_the_same(
    rivals: list[tuple[OffsetTree, LossySession]],
) -> None:
    (old, _), (new, _) = rivals
    for group in "abc":
        old.load(group)
    assert old.write([Change(each, offsets={CLICKS: ONE}) for each in "abc"]) == [None] * 3
    new.load("b")
    first, second, third = old.write([Change(each, offsets={CLICKS: TWO}) for each in "abc"])
    assert (first, third) == (None, None)
    assert isinstance(second, GroupMovedError)
    assert new.load("a") == StoredGroup(None, {CLICKS: TWO})


@pytest.mark.parametrize("loses", ["before", "after"])
@pytest.mark.parametrize("was_there", [True, False])
def test_after_a_write_of_which_nothing_was_heard(
    rivals: list[tuple[OffsetTree, LossySession]], loses: str, was_there: bool
) -> None:
    (store, session), (other, _) = rivals
    store.load("g")
    if was_there:
        assert store.write([Change("g", offsets={CLICKS: ONE})]) == [None]
    session.loses = loses
    (error,) = store.write([Change("g", GroupRecord(1, "consumer", -1), {CLICKS: TWO})])
    assert isinstance(error, CoordinationUnavailableError)
    views = TopicPartition("views", 0)
    written = store.write([Change("g", offsets={views: ONE})])
    if written != [None]:  # its node was made, and nobody can tell by whom
        assert refused(written)
        store.load("g")
        assert store.write([Change("g", offsets={views: ONE})]) == [None]
    found = other.load("g")
    assert found is not None
    assert found.offsets[views] == ONE
    expected = {TWO} if loses == "after" else {ONE} if was_there else {None}
    assert found.offsets.get(CLICKS) in expected


def test_a_lost_connection_and_another_coordinator(
    rivals: list[tuple[OffsetTree, LossySession]],
) -> None:
    (old, session), (new, _) = rivals
    old.load("g")
    assert old.write([Change("g", offsets={CLICKS: ONE})]) == [None]
    session.loses = "before"
    assert not refused(old.write([Change("g", offsets={CLICKS: TWO})]))
    new.load("g")
    assert refused(old.write([Change("g", offsets={CLICKS: TWO})]))
    assert new.load("g") == StoredGroup(None, {CLICKS: ONE})


def test_nodes_that_somebody_else_has_changed(
    rivals: list[tuple[OffsetTree, LossySession]],
) -> None:
    (store, session), _ = rivals
    store.load("g")
    assert store.write([Change("g", offsets={CLICKS: ONE})]) == [None]
    session.delete_tree(offset_node_path("g", "clicks", 0))
    assert store.write([Change("g", offsets={CLICKS: TWO})]) == [None]
    session.put(offset_node_path("g", "views", 3), b"{}")
    views = TopicPartition("views", 3)
    assert store.write([Change("g", offsets={views: TWO})]) == [None]
    assert store.load("g") == StoredGroup(None, {CLICKS: TWO, views: TWO})


@pytest.mark.parametrize("value", [b"", b"[]", b"\xff", b'{"generation": "x"}', b"[" * 100_000])
def test_nodes_that_mean_nothing_are_named(
    rivals: list[tuple[OffsetTree, LossySession]], value: bytes
) -> None:
    (store, session), _ = rivals
    session.put(group_node_path("g"), value)
    with pytest.raises(InvalidNodeError, match="/hermes/kafka/groups/g can't be understood"):
        store.load("g")
    store.load("h")
    assert store.write([Change("h", offsets={CLICKS: ONE})]) == [None]
    session.put(offset_node_path("h", "clicks", 0), value)
    with pytest.raises(InvalidNodeError, match="clicks:0 can't be understood"):
        store.load("h")
