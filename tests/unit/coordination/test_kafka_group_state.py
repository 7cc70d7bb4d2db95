"""What tools read of groups of Kafka's consumers while their coordinator writes."""

import json
import struct
import zlib
from typing import Any

import pytest

from hermes.coordination.kafka_group_state import assigned_partitions, count_members
from hermes.coordination.kafka_groups import MEMBERS_NAME, group_node_path
from hermes.coordination.nodes import Node

RECORD = group_node_path("g")
MEMBERS = f"{RECORD}/{MEMBERS_NAME}"


class FakeSession:
    """Two nodes that a coordinator writes between two reads, as often as it is told."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._version = 0
        self.writes_left = 0
        self.reads_before_write = 1
        self._reads = 0
        self._nodes: dict[str, Node] = {}
        self.write()

    def write(self) -> None:
        """Go on to the next generation, in one step."""
        self._version = generation = self._version + 1
        member: list[Any] = ["c-1", None, "c", "/127.0.0.1", 1, 1, "range", [], ""]
        value: dict[str, Any] = {"generation": generation, "members": [member]}
        if self._kind == "consumer":
            member = ["c-1", None, None, "c", "/127.0.0.1", 1, 0, None, [], [], []]
            value = {"kind": "consumer", "epoch": generation, "ids": [], "topics": {}}
            value |= {"lists": [[]], "members": [member]}
        record = json.dumps({"generation": generation}).encode()
        self._nodes = {
            RECORD: Node(record, self._version, 0),
            MEMBERS: Node(zlib.compress(json.dumps(value).encode()), self._version, 0),
        }

    def get(self, path: str) -> Node | None:
        node = self._nodes.get(path)
        self._reads += 1
        if self.writes_left and self._reads % self.reads_before_write == 0:
            self.writes_left -= 1
            self.write()
        return node

    def get_all(self, paths: list[str]) -> list[Node | None]:
        return [self.get(each) for each in paths]

    def lose(self, path: str) -> None:
        """Have a node of an earlier generation, or none."""
        self._nodes[path] = Node(json.dumps({"generation": 99}).encode(), 99, 0)


@pytest.fixture(params=["classic", "consumer"])
def session(request: pytest.FixtureRequest) -> Any:
    return FakeSession(request.param)


@pytest.mark.parametrize("reads_before_write", [1, 2, 3, 4])
@pytest.mark.parametrize("writes", [0, 1, 2])
def test_a_group_that_is_written_meanwhile_is_read_as_it_was_at_some_moment(
    session: Any, reads_before_write: int, writes: int
) -> None:
    session.reads_before_write, session.writes_left = reads_before_write, writes
    assert count_members(session, "g") == 1


def test_reading_ends_though_a_group_is_written_all_the_time(session: Any) -> None:
    session.writes_left = 10_000
    count_members(session, "g")
    assert session.writes_left > 9_900


def test_members_of_another_generation_are_none(session: Any) -> None:
    session.lose(RECORD)
    assert count_members(session, "g") == 0


def test_an_assignment_that_leads_back_to_its_beginning_is_read_once() -> None:
    """A member's leader writes it: 32 KiB could keep whoever looks at the group for minutes."""
    count = 50
    # Names of these lengths lead to the count of topics, which is taken for one of partitions.
    lengths = [struct.pack(">h", each) for each in (-6, -(4 * count + 6))]
    back = struct.pack(">hi", 0, count) + bytes(4 * count - 2).join(lengths) + bytes(8)
    assert len(list(assigned_partitions(back))) <= count
    own = struct.pack(">hih6si2i", 0, 1, 6, b"orders", 2, 0, 3)
    assert list(assigned_partitions(own)) == [("orders", 0), ("orders", 3)]
