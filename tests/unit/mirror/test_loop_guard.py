"""Loops, with coordination that is a dictionary."""

import json
from typing import Any

import pytest

from hermes.coordination.nodes import Node
from hermes.coordination.origins import TreeOrigins
from hermes.errors import CoordinationUnavailableError
from hermes.mirror.loop_guard import LoopGuard


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Tree:
    """What the guard needs of a session with a cluster's coordination."""

    def __init__(self) -> None:
        self.nodes: dict[str, tuple[bytes, int]] = {}
        self.is_down = False
        self.before_write: list[Any] = []

    def _answer(self) -> None:
        if self.is_down:
            raise CoordinationUnavailableError("no answer")

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        self._answer()
        return Node(*self.nodes[path], 0) if path in self.nodes else None

    def create(self, path: str, value: bytes) -> bool:
        self._answer()
        if self.before_write:
            self.before_write.pop()()
        if path in self.nodes:
            return False
        self.nodes[path] = value, 0
        return True

    def set(self, path: str, value: bytes, version: int) -> int:
        self._answer()
        if self.nodes[path][1] != version:
            raise CoordinationUnavailableError("it was changed meanwhile")
        self.nodes[path] = value, version + 1
        return version + 1

    def delete(self, path: str, version: int) -> bool:
        return self.nodes.pop(path, None) is not None

    def origins(self, topic: str) -> Any:
        node = self.nodes.get(f"/cluster/origins/{topic}")
        return set(json.loads(node[0])["origins"]) if node else set()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def trees() -> dict[str, Tree]:
    return {name: Tree() for name in "ABC"}


@pytest.fixture
def guard(trees: dict[str, Tree], clock: Clock) -> Any:
    def make(source: str, target: str) -> LoopGuard:
        sessions: Any = trees
        kept = TreeOrigins(sessions[source]), TreeOrigins(sessions[target])
        return LoopGuard(f"{source}-to-{target}", source, target, *kept, clock)

    return make


def test_the_way_back_is_refused(guard: Any, trees: dict[str, Tree]) -> None:
    assert guard("A", "B").admit("t", "t") == ""
    assert trees["B"].origins("t") == {"A"}
    reason = guard("B", "A").admit("t", "t")
    assert "t comes from the target cluster A already, by the mirror 'A-to-B'" in reason
    assert trees["A"].origins("t") == set()


def test_the_way_back_through_a_third_cluster_is_refused(
    guard: Any, trees: dict[str, Tree]
) -> None:
    assert guard("A", "B").admit("t", "t") == ""
    assert guard("B", "C").admit("t", "t") == ""
    assert trees["C"].origins("t") == {"A", "B"}
    assert "by the mirror 'A-to-B'" in guard("C", "A").admit("t", "t")
    assert guard("C", "A").admit("of C", "of C") == ""


def test_a_circle_that_is_closed_in_another_place_is_found_soon(
    guard: Any, trees: dict[str, Tree], clock: Clock
) -> None:
    middle, last = guard("B", "C"), guard("C", "A")
    assert middle.admit("t", "t") == ""
    assert last.admit("t", "t") == ""
    first = guard("A", "B")
    assert "loop" in first.admit("t", "t")
    assert trees["B"].origins("t") == set()
    clock.now += 10
    assert middle.admit("t", "t") == ""
    assert last.admit("t", "t") == ""


def test_names_that_differ_make_a_loop_as_well(guard: Any) -> None:
    assert guard("A", "B").admit("t", "a.t") == ""
    assert "loop" in guard("B", "A").admit("a.t", "b.a.t")
    assert guard("B", "A").admit("t", "b.t") == ""


def test_of_two_that_begin_at_once_one_is_refused(
    guard: Any, trees: dict[str, Tree], clock: Clock
) -> None:
    there, back = guard("A", "B"), guard("B", "A")
    trees["B"].before_write.append(lambda: back.admit("t", "t"))
    assert "loop" in there.admit("t", "t")
    assert trees["B"].origins("t") == set()
    clock.now += 10
    assert back.admit("t", "t") == ""


def test_a_cluster_is_not_mirrored_into_itself(trees: dict[str, Tree]) -> None:
    assert "the target itself" in LoopGuard("m", "A", "A", None, None).admit("t", "t")


def test_schemas_are_not_mixed(guard: Any) -> None:
    assert "schema registry" in guard("A", "B").admit("hermes-schemas", "hermes-schemas")
    assert guard("A", "B").admit("hermes-schemas", "a.hermes-schemas") == ""
    topic = "hermes-mirror-origins"  # as `whitelist: .*` allows
    assert "mirrors" in guard("A", "B").admit(topic, topic)
    assert guard("A", "B").admit(topic, f"a.{topic}") == ""


def test_what_is_known_holds_while_coordination_is_away(
    guard: Any, trees: dict[str, Tree], clock: Clock
) -> None:
    there = guard("A", "B")
    trees["A"].is_down = True
    with pytest.raises(CoordinationUnavailableError):
        there.admit("t", "t")
    trees["A"].is_down = False
    assert there.admit("t", "t") == ""
    trees["A"].is_down = True
    clock.now += 10
    assert there.admit("t", "t") == ""


def test_what_cannot_be_read_is_refused(guard: Any, trees: dict[str, Tree]) -> None:
    trees["A"].nodes["/cluster/origins/t"] = b"{", 0
    assert "nobody can say" in guard("A", "B").admit("t", "t")
