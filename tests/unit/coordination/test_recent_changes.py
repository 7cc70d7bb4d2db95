"""The list of the topics that changed last, and what a reader that missed some reads again."""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import uuid4

import pytest
from memory_coordination import MemoryCoordination, MemorySession

from hermes.coordination.kafka_topics import (
    KAFKA_CHANGES,
    KAFKA_TOPICS,
    RECENT_CHANGES,
    TopicNode,
    topic_node_path,
)
from hermes.coordination.nodes import Node
from hermes.coordination.recent_changes import (
    MOST_BYTES,
    MOST_CHANGES,
    RecentChanges,
    changes_up_to,
    format_changes,
    parse_changes,
)
from hermes.coordination.topic_tree import TopicTree

ABC = RecentChanges(7, ("a", "b", "c"))


def test_each_name_is_of_the_version_before_the_next() -> None:
    assert ABC.since(7) is None, "nothing is missing"
    assert ABC.since(6) == {"c"}
    assert ABC.since(5) == {"b", "c"}
    assert ABC.since(4) == {"a", "b", "c"}
    assert ABC.since(3) is None
    assert ABC.since(8) is None, "the node was made anew"
    assert ABC.followed_by("a").since(4) == {"a", "b", "c"}
    assert RecentChanges(2, ("", "a/b")).since(0) is None, "no names of topics"


@pytest.mark.parametrize(
    ("version", "name", "noted", "known"),
    [
        (0, "", None, RecentChanges(0, ())),
        (0, "", ABC, RecentChanges(0, ())),
        (7, "c", ABC, ABC),
        # Written by an earlier version's broker, once or more often.
        (8, "d", ABC, RecentChanges(8, ("a", "b", "c", "d"))),
        (9, "e", ABC, RecentChanges(9, ("e",))),
        (9, "e", None, RecentChanges(9, ("e",))),
        # Read after more has changed.
        (6, "b", ABC, RecentChanges(6, ("a", "b"))),
        (5, "a", ABC, RecentChanges(5, ("a",))),
        (4, "z", ABC, RecentChanges(4, ("z",))),
        (3, "z", ABC, RecentChanges(3, ("z",))),
        # Of another node in its place.
        (7, "z", ABC, RecentChanges(7, ("z",))),
        (6, "z", ABC, RecentChanges(6, ("z",))),
        (1, "a", ABC, RecentChanges(1, ("a",))),
        (7, "c", RecentChanges(7, ()), RecentChanges(7, ("c",))),
    ],
)
def test_what_is_told_completes_what_is_listed(
    version: int, name: str, noted: RecentChanges | None, known: RecentChanges
) -> None:
    assert changes_up_to(version, name, noted) == known


def test_the_list_is_json_in_a_known_form() -> None:
    value = b'{"version":7,"names":["a","b","c"]}'
    assert format_changes(ABC) == value
    assert parse_changes(value) == ABC
    assert parse_changes(b'{"later": 1, "names": [], "version": 0}') == RecentChanges(0, ())


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"a",
        b"[]",
        b"7",
        b"{}",
        b'{"version": 7}',
        b'{"version": "7", "names": []}',
        b'{"version": true, "names": []}',
        b'{"version": 7, "names": 1}',
        b'{"version": 7, "names": [1]}',
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_anything_else_lists_nothing(value: bytes) -> None:
    assert parse_changes(value) is None


def test_of_changes_together_more_are_listed() -> None:
    """So that who misses some transactions of a broker that leads many topics reads these only."""
    names = tuple(f"t{number}" for number in range(10 * MOST_CHANGES + 100))
    for count, most in ((9, MOST_CHANGES), (10, 10 * MOST_CHANGES)):
        listed = parse_changes(format_changes(RecentChanges(5000, names), count))
        assert listed == RecentChanges(5000, names[-most:])


@pytest.mark.parametrize("name", ["x", "x" * 30, "x" * 249, "京" * 249, '"' * 200, "y" * 9000])
def test_the_list_is_bounded_in_number_and_in_bytes(name: str) -> None:
    names = tuple(f"{name}{number:03}" for number in range(MOST_CHANGES + 100))
    value = format_changes(RecentChanges(1000, names))
    listed = parse_changes(value)
    assert listed is not None
    assert listed == RecentChanges(1000, names[len(names) - len(listed.names) :])
    assert len(value) <= MOST_BYTES
    assert len(listed.names) <= MOST_CHANGES
    if len(listed.names) < MOST_CHANGES:
        one_more = len(json.dumps(names[0])) + 1
        assert len(value) + one_more > MOST_BYTES


# -- what is read again -------------------------------------------------------------------------


class CountedSession(MemorySession):
    """Remembers which topics' nodes were read."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.read: set[str] = set()

    def get_all(self, paths: Sequence[str]) -> list[Node | None]:
        self.read |= {path for path in paths if path.startswith(f"{KAFKA_TOPICS}/")}
        return super().get_all(paths)


@pytest.fixture
def coordination() -> MemoryCoordination:
    return MemoryCoordination()


@pytest.fixture
def tree(coordination: MemoryCoordination) -> TopicTree:
    """Its topics: t0 to t299."""
    tree = TopicTree(coordination.session())
    tree.prepare()
    for number in range(300):
        assert tree.create(f"t{number}", TopicNode(uuid4(), "kafka", ()))
    return tree


@pytest.fixture
def read_after(
    coordination: MemoryCoordination, tree: TopicTree
) -> Iterator[Callable[[Callable[[], object]], set[str] | None]]:
    """Which topics a reader that was up to date reads once something was done; None: all."""
    session = CountedSession(coordination, lambda: None)
    reader = TopicTree(session)

    def read(do: Callable[[], object]) -> set[str] | None:
        known = reader.read()
        session.read = set()
        do()
        every = tree.read()
        assert reader.read(known) == every
        read = {each.rpartition("/")[2] for each in session.read}
        return None if read == every.topics.keys() else read

    return read


def touch(tree: TopicTree, *numbers: int) -> None:
    for number in numbers:
        name = f"t{number}"
        node = TopicNode(uuid4(), "kafka", ())
        assert tree.change(name, lambda _, node=node: node) is node


def earlier_broker(coordination: MemoryCoordination, *numbers: int) -> None:
    """What a broker of an earlier version writes."""
    session = coordination.session()
    for number in numbers:
        name = f"t{number}"
        value = session.get(topic_node_path(name)).value.replace(b'"kafka"', b'"0.7"')

        def fill(transaction: Any, name: str = name, value: bytes = value) -> None:
            transaction.set_data(topic_node_path(name), value)
            transaction.set_data(KAFKA_CHANGES, name.encode())

        session.transact(fill)


def test_who_missed_up_to_200_changes_reads_those(tree: TopicTree, read_after: Any) -> None:
    assert read_after(lambda: None) == set()
    assert read_after(lambda: touch(tree, 7)) == {"t7"}
    assert read_after(lambda: touch(tree, 7, 8, 7)) == {"t7", "t8"}
    assert read_after(lambda: tree.delete("t9", lambda _: True)) == {"t9"}
    assert read_after(lambda: touch(tree, *range(200))) == {f"t{n}" for n in range(200)}
    assert read_after(lambda: touch(tree, *range(201))) is None


def test_who_missed_more_of_long_names_than_fit_reads_all(
    coordination: MemoryCoordination, read_after: Any
) -> None:
    tree = TopicTree(coordination.session())
    names = [f"{number:02}".ljust(249, "x") for number in range(60)]

    def create(count: int) -> None:
        for _ in range(count):
            tree.create(names.pop(), TopicNode(uuid4(), "kafka", ()))

    assert len(read_after(lambda: create(30))) == 30
    assert read_after(lambda: create(30)) is not None
    assert len(names) == 0
    for number in range(40):
        names.append(f"again {number:02}".ljust(249, "x"))
    assert read_after(lambda: create(40)) is None


def test_what_earlier_brokers_write_is_understood(
    coordination: MemoryCoordination, tree: TopicTree, read_after: Any
) -> None:
    def earlier(*numbers: int) -> None:
        earlier_broker(coordination, *numbers)

    assert read_after(lambda: earlier(1)) == {"t1"}
    assert read_after(lambda: (touch(tree, 2, 3), earlier(4))) == {"t2", "t3", "t4"}
    assert read_after(lambda: (touch(tree, 2), earlier(4), touch(tree, 5))) == {"t2", "t4", "t5"}
    assert read_after(lambda: earlier(1, 2)) is None
    assert read_after(lambda: (touch(tree, 2), earlier(3, 4), touch(tree, 5))) is None
    assert read_after(lambda: touch(tree, 6, 7)) == {"t6", "t7"}, "it goes on from there"


def test_without_a_list_or_with_another_one_all_is_read(
    coordination: MemoryCoordination, tree: TopicTree, read_after: Any
) -> None:
    session = coordination.session()
    assert read_after(lambda: (touch(tree, 1, 2), session.delete(RECENT_CHANGES, -1))) is None
    assert read_after(lambda: touch(tree, 1, 2)) == {"t1", "t2"}, "it was made again"
    assert read_after(lambda: (touch(tree, 1, 2), session.set(RECENT_CHANGES, b"t2"))) is None
    assert read_after(lambda: touch(tree, 1, 2)) == {"t1", "t2"}


def test_a_change_that_others_keep_getting_in_the_way_of_is_made_unlisted(
    coordination: MemoryCoordination, tree: TopicTree, read_after: Any
) -> None:
    class Overtaken(MemorySession):
        """Before each of its transactions another topic changes."""

        def transact(self, fill: Callable[[Any], object]) -> list[Any]:
            touch(tree, 1)
            return super().transact(fill)

    overtaken = TopicTree(Overtaken(coordination, lambda: None))

    assert read_after(lambda: touch(overtaken, 2)) == {"t1", "t2"}
    assert read_after(lambda: (touch(overtaken, 2), touch(tree, 3))) == {"t1", "t2", "t3"}


def test_a_node_for_changes_that_was_made_anew_is_no_continuation(
    coordination: MemoryCoordination, tree: TopicTree, read_after: Any
) -> None:
    session = coordination.session()

    def begin_anew(*numbers: int) -> None:
        session.delete(KAFKA_CHANGES, -1)
        tree.prepare()
        touch(tree, *numbers)

    assert read_after(lambda: begin_anew(1, 2)) is None
    assert read_after(lambda: touch(tree, 3, 4)) == {"t3", "t4"}
