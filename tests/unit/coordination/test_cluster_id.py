"""The UUID of a cluster: one for all that need it at once, and nothing else in its place."""

from typing import Any
from uuid import UUID

import pytest

from hermes.coordination.cluster_id import CLUSTER_ID_NODE, cluster_id, id_of_addresses
from hermes.coordination.nodes import Node
from hermes.errors import InvalidNodeError


class Nodes:
    """What two sessions have in common, as `Session` shows it; the other may be faster."""

    def __init__(self, faster: bytes | None = None) -> None:
        self.values: dict[str, bytes] = {}
        self._faster = faster

    def get(self, path: str) -> Node | None:
        value = self.values.get(path)
        return None if value is None else Node(value, 0, 0)

    def create(self, path: str, value: bytes) -> bool:
        if self._faster is not None:
            self.values[path] = self._faster
            return False
        self.values[path] = value
        return True


def read(nodes: Any) -> str:
    return cluster_id(nodes)


def test_it_is_created_once() -> None:
    nodes = Nodes()
    first = read(nodes)
    assert str(UUID(first)) == first
    assert nodes.values == {CLUSTER_ID_NODE: first.encode()}
    assert read(nodes) == first


def test_of_two_who_create_it_one_is_first() -> None:
    other = "0f8fad5b-d9cb-469f-a165-70867728950e"
    assert read(Nodes(faster=other.encode())) == other


@pytest.mark.parametrize("value", [b"", b"ours", b"\xff" * 16, b"0f8fad5b-d9cb-469f-a165"])
def test_anything_else_is_refused(value: bytes) -> None:
    nodes = Nodes()
    nodes.values[CLUSTER_ID_NODE] = value
    with pytest.raises(InvalidNodeError, match=r"/cluster/id holds .* not a UUID"):
        read(nodes)
    assert nodes.values[CLUSTER_ID_NODE] == value


def test_addresses_make_an_id_whatever_their_order() -> None:
    one = id_of_addresses([("A", 1), ("b", 2)])
    assert one == id_of_addresses(iter([("b", 2), ("a", 1), ("b", 2)]))
    assert one != id_of_addresses([("a", 1)])
    assert str(UUID(one)) == one
