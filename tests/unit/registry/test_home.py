"""Which broker gets the topic, and what stands in the way."""

from typing import Any

import pytest

from hermes.coordination.nodes import Node
from hermes.errors import InvalidNodeError
from hermes.registry.home import HOME_PATH, HomeBroker, HomeError, RecordedHome

OWN = HomeBroker(3, "own", 9092)


class Tree:
    """The nodes of a session."""

    def __init__(self, nodes: dict[str, bytes]) -> None:
        self.nodes = nodes

    def get(self, path: str, *, watch: bool = False) -> Node | None:
        value = self.nodes.get(path)
        return None if value is None else Node(value, 0, 0)

    def children(self, path: str, *, watch: bool = False) -> list[str]:
        below = (each[len(path) + 1 :] for each in self.nodes if each.startswith(f"{path}/"))
        return sorted({each.partition("/")[0] for each in below})

    def create(self, path: str, value: bytes) -> bool:
        return self.nodes.setdefault(path, value) is value


def brokers(*ids: int) -> dict[str, bytes]:
    return {f"/brokers/ids/{each}": f"c:host{each}:909{each}".encode() for each in ids}


def recorded(nodes: dict[str, bytes], own: HomeBroker | None = OWN) -> tuple[RecordedHome, Tree]:
    tree: Any = Tree(nodes)
    return RecordedHome(lambda: tree, own), tree


def test_the_first_to_write_is_the_home() -> None:
    homes, tree = recorded(brokers(1, 3))
    assert homes.find() is None
    assert homes.choose() == homes.find() == OWN
    assert tree.nodes[HOME_PATH] == b'{"broker": 3}'
    assert recorded(tree.nodes, HomeBroker(1, "one", 9092))[0].choose() == HomeBroker(
        3, "host3", 9093
    )


def test_a_process_without_a_broker_chooses_one_that_runs() -> None:
    assert recorded(brokers(4, 2), None)[0].choose() == HomeBroker(2, "host2", 9092)
    with pytest.raises(HomeError, match="no broker is registered"):
        recorded({}, None)[0].choose()


def test_where_the_topic_is_already_it_stays() -> None:
    nodes = {**brokers(1, 3), "/brokers/topics/hermes-schemas/1": b"1"}
    assert recorded({**nodes})[0].choose() == HomeBroker(1, "host1", 9091)
    two = {**nodes, "/brokers/topics/hermes-schemas/3": b"1"}
    homes, tree = recorded(two)
    with pytest.raises(HomeError, match="brokers 1, 3 all have a topic"):
        homes.choose()
    assert HOME_PATH not in tree.nodes
    homes.remember(1)  # from a snapshot
    assert homes.choose().broker_id == 1


def test_a_home_that_does_not_run_is_named() -> None:
    homes, _ = recorded({**brokers(1), HOME_PATH: b'{"broker": 7}'})
    for ask in (homes.find, homes.choose):
        with pytest.raises(HomeError, match="home, broker 7, does not run"):
            ask()


@pytest.mark.parametrize(
    "value", [b"", b"7", b"[" * 10_000, b'{"broker": "1"}', b'{"broker": -1}', b'{"broker": true}']
)
def test_a_node_that_says_nothing_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidNodeError, match="/registry/home: expected"):
        recorded({**brokers(1), HOME_PATH: value})[0].find()
