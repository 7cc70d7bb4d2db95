"""What every store of groups must do: the file in the data directory, and the tree in coordination.

`rival` is what another coordinator of the same groups has: with a file nobody else has it, so that
stands for the same broker's next life.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from uuid import UUID

import pytest
from coordination_servers import ServerProcess
from memory_coordination import MemoryCoordination
from memory_files import MemoryFiles
from own_coordination import AtOnce, own_coordination

from hermes.coordination.sessions import Session
from hermes.groups.consumer_values import (
    ConsumerMembership,
    Reconciliation,
    StoredConsumer,
    TopicIdPartition,
    TopicSize,
)
from hermes.groups.membership import ClassicMembership, StoredMember
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import (
    Change,
    Committed,
    GroupMovedError,
    GroupRecord,
    GroupStore,
    StoredGroup,
    TopicPartition,
)
from hermes.groups.values import Protocol
from hermes.storage import FileLayer

Open = Callable[[], GroupStore]

_numbers = count()
CLICKS = TopicPartition("clicks", 0)
VIEWS = TopicPartition("views.of-us_", 7)
ONE = Committed(1, -1, "", 1000)
TWO = Committed(2**62, 5, "how far: Ä 京 " + "x" * 4000, 2000, 3000, UUID(int=7))
NAMES = ["g", "", ".", "..", "a/b", "%2F", "über 京 🙂", "a:b", "x" * 255, "\x01\x7f", "a\\b"]


@pytest.fixture(
    params=["file", "file in memory", "memory", "own", "own at once", "embedded", "zookeeper"]
)
def open_store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    coordination_server: Callable[[str], ServerProcess],
) -> Iterator[Open]:
    """Opens the same store again and again."""
    with ExitStack() as stack:
        if request.param.startswith("file"):
            is_real = request.param == "file"
            path = str(tmp_path / "groups") if is_real else "/data/groups"
            files = FileLayer() if is_real else MemoryFiles()

            def opened() -> GroupStore:
                return OffsetFile(path, files, pytest.fail)

        elif request.param == "memory":
            coordination = MemoryCoordination()

            def opened() -> GroupStore:
                return OffsetTree(coordination.session)

        elif request.param.startswith("own"):
            own = stack.enter_context(own_coordination(tmp_path / "coordination"))

            def opened() -> GroupStore:
                return OffsetTree(lambda: own.nodes) if request.param == "own" else AtOnce(own)

        else:
            connect = f"{coordination_server(request.param).address}/groups-{next(_numbers)}"

            def session() -> Session:
                begun = Session(connect, connection_timeout_seconds=60, session_timeout_seconds=30)
                begun.start()
                return begun

            def opened() -> GroupStore:
                return OffsetTree(session)

        def closing() -> GroupStore:
            store = opened()
            stack.callback(store.close)
            return store

        yield closing


@pytest.fixture
def store(open_store: Open) -> GroupStore:
    return open_store()


def kept(store: GroupStore, *changes: Change) -> None:
    assert store.write(changes) == [None] * len(changes)


def test_a_group_of_which_nothing_is_kept(store: GroupStore) -> None:
    assert store.load("g") is None
    assert store.names() == []


def test_what_is_written_is_loaded_in_another_life(open_store: Open) -> None:
    store, record = open_store(), GroupRecord(3, "consumer", -1)
    store.load("g")
    kept(store, Change("g", record, {CLICKS: ONE, VIEWS: TWO}))
    kept(store, Change("g", offsets={CLICKS: TWO}))
    store.close()
    after = open_store()
    assert after.names() == ["g"]
    assert after.load("g") == StoredGroup(record, {CLICKS: TWO, VIEWS: TWO})
    kept(after, Change("g", GroupRecord(4, "consumer", 77), {CLICKS: None}))
    assert open_store().load("g") == StoredGroup(GroupRecord(4, "consumer", 77), {VIEWS: TWO})


def membership(count: int) -> ClassicMembership:
    members = tuple(
        StoredMember(
            f"rdkafka-00000000-0000-0000-0000-{each:012}",
            f"Ä {each}" if each % 2 else None,
            "rdkafka",
            "/127.0.0.1",
            45_000,
            300_000,
            (Protocol("range", bytes(range(64))), Protocol("sticky", b"")),
            b"\0\xff" * 10 if each else b"",
        )
        for each in range(count)
    )
    return ClassicMembership("range", members[0].member_id, members)


def test_members_are_kept_with_their_generation(open_store: Open) -> None:
    store = open_store()
    store.load("g")
    record = GroupRecord(3, "consumer", -1, membership(2))
    kept(store, Change("g", record, {CLICKS: ONE}))
    kept(store, Change("g", offsets={CLICKS: TWO}))
    after = open_store()
    assert after.load("g") == StoredGroup(record, {CLICKS: TWO})
    later = GroupRecord(4, "consumer", -1, membership(1000))
    kept(after, Change("g", later))
    again = open_store()
    assert again.load("g") == StoredGroup(later, {CLICKS: TWO})
    empty = GroupRecord(5, "consumer", 77)
    kept(again, Change("g", empty))
    last = open_store()
    assert last.load("g") == StoredGroup(empty, {CLICKS: TWO})
    kept(last, Change("g", record), Change("g", forget=True))
    assert open_store().load("g") is None


def test_a_consumer_group_stays_one_when_it_is_empty(open_store: Open) -> None:
    place = TopicIdPartition(UUID(int=7), 3)
    member = StoredConsumer(
        *("a", "i", None, "client", "/127.0.0.1", 1000, ("clicks",), None, (), "range"),
        *(5, 4, Reconciliation.UNREVOKED, {place: 5}, {TopicIdPartition(UUID(int=7), 4): 2}),
        frozenset({place}),
    )
    full = ConsumerMembership(5, {"clicks": TopicSize(UUID(int=7), 5)}, (member,))
    store = open_store()
    store.load("g")
    kept(store, Change("g", GroupRecord(5, "consumer", -1, full), {CLICKS: ONE}))
    after = open_store()
    assert after.load("g") == StoredGroup(GroupRecord(5, "consumer", -1, full), {CLICKS: ONE})
    empty = GroupRecord(6, "consumer", 77, ConsumerMembership(5, {}, ()))
    kept(after, Change("g", empty))
    assert open_store().load("g") == StoredGroup(empty, {CLICKS: ONE})


def test_offsets_without_a_record(open_store: Open) -> None:
    store = open_store()
    store.load("g")
    kept(store, Change("g", offsets={CLICKS: ONE}))
    assert open_store().load("g") == StoredGroup(None, {CLICKS: ONE})


def test_any_name(open_store: Open) -> None:
    store = open_store()
    for number, name in enumerate(NAMES):
        assert store.load(name) is None
        kept(store, Change(name, offsets={CLICKS: ONE._replace(offset=number)}))
    after = open_store()
    assert sorted(after.names()) == sorted(NAMES)
    for number, name in enumerate(NAMES):
        assert after.load(name) == StoredGroup(None, {CLICKS: ONE._replace(offset=number)})


def test_many_groups_and_changes_at_once_in_their_order(open_store: Open) -> None:
    store = open_store()
    groups = [f"g{each}" for each in range(150)]
    for each in groups:
        store.load(each)
    changes = [
        Change(group, offsets={CLICKS: ONE._replace(offset=round_)})
        for round_ in range(3)
        for group in groups
    ]
    kept(store, *changes, Change("g0", forget=True), Change("g1", GroupRecord(1, "", 5)))
    after = open_store()
    assert sorted(after.names()) == sorted(groups[1:])
    assert after.load("g0") is None
    last = ONE._replace(offset=2)
    assert after.load("g1") == StoredGroup(GroupRecord(1, "", 5), {CLICKS: last})
    assert after.load("g149") == StoredGroup(None, {CLICKS: last})


def test_a_group_with_very_many_partitions(open_store: Open) -> None:
    store, places = open_store(), [TopicPartition("clicks", each) for each in range(450)]
    store.load("g")
    kept(store, Change("g", GroupRecord(1, "consumer", -1), dict.fromkeys(places, TWO)))
    kept(store, Change("g", offsets=dict.fromkeys(places[:440])))
    after = open_store()
    assert after.load("g") == StoredGroup(
        GroupRecord(1, "consumer", -1), dict.fromkeys(places[440:], TWO)
    )
    kept(after, Change("g", offsets=dict.fromkeys(places, TWO)))
    kept(after, Change("g", forget=True))
    assert open_store().load("g") is None


def test_what_is_not_there_can_be_forgotten(store: GroupStore) -> None:
    store.load("g")
    kept(store, Change("g", offsets={CLICKS: None}), Change("g", forget=True))
    kept(store, Change("g", forget=True))
    assert store.load("g") is None


def test_an_empty_change_changes_nothing(open_store: Open) -> None:
    store, record = open_store(), GroupRecord(3, "consumer", -1)
    store.load("g")
    store.load("h")
    kept(store, Change("g"), Change("h", record, {CLICKS: ONE}), Change("g"), Change("h"))
    after = open_store()
    assert after.names() == ["h"]
    assert after.load("h") == StoredGroup(record, {CLICKS: ONE})
    assert after.load("g") is None
    assert isinstance(open_store().write([Change("h")])[0], GroupMovedError)


def test_a_forgotten_group_can_begin_again(open_store: Open) -> None:
    store = open_store()
    store.load("g")
    kept(store, Change("g", GroupRecord(9, "consumer", -1), {CLICKS: ONE}))
    kept(store, Change("g", forget=True), Change("g", offsets={VIEWS: ONE}))
    assert open_store().load("g") == StoredGroup(None, {VIEWS: ONE})


@pytest.mark.parametrize("is_released", [True, False], ids=["released", "never loaded"])
def test_a_group_that_is_not_loaded_is_not_written(open_store: Open, is_released: bool) -> None:
    store = open_store()
    if is_released:
        store.load("g")
        store.release("g")
    store.load("other")
    changes = [Change("g", offsets={CLICKS: ONE}), Change("other", offsets={CLICKS: ONE})]
    first, second = store.write(changes)
    assert isinstance(first, GroupMovedError)
    assert second is None
    after = open_store()
    assert after.load("g") is None
    assert after.load("other") == StoredGroup(None, {CLICKS: ONE})
