"""The tree of Kafka's topics: several brokers that write at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import pytest

from hermes.coordination.kafka_topics import (
    KAFKA_CHANGES,
    KAFKA_DELETED,
    KAFKA_TOPICS,
    NOBODY,
    PRODUCER_IDS,
    DeletedTopic,
    TopicNode,
    deleted_path,
    format_deleted,
    with_broker_partitions,
)
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.topic_tree import MOST_DELETED, TopicTree
from hermes.errors import InvalidNodeError, UnknownTopicError
from hermes.replication.state import TopicReplicas, first_state

WRITERS = 6


def kafka_topic(*brokers: int, **more: Any) -> TopicNode:
    places = tuple(BrokerPartition(each, number) for number, each in enumerate(brokers))
    return TopicNode(uuid4(), "kafka", places, **more)


@pytest.fixture
def trees(start: Any) -> list[TopicTree]:
    made = [TopicTree(start()) for _ in range(WRITERS)]
    for tree in made:
        tree.prepare()
    return made


@pytest.fixture
def at_once(trees: list[TopicTree], kind: str) -> Callable[[Any], list[Any]]:
    """Calls something with each tree and its number, all at the same moment.

    In memory, where there are no threads, one after the other.
    """
    barrier = Barrier(len(trees))

    def begin(work: Any, number: int) -> Any:
        barrier.wait()
        return work(trees[number], number)

    def call(work: Any) -> list[Any]:
        if kind == "memory":
            return [work(tree, number) for number, tree in enumerate(trees)]
        with ThreadPoolExecutor(len(trees)) as pool:
            return list(pool.map(partial(begin, work), range(len(trees))))

    return call


def test_of_several_who_create_a_topic_one_does(trees: list[TopicTree], at_once: Any) -> None:
    nodes = [kafka_topic(number, 1) for number in range(WRITERS)]

    made = at_once(lambda tree, number: tree.create("clicks", nodes[number]))

    assert sum(made) == 1
    assert trees[0].read().topics == {"clicks": nodes[made.index(True)]}
    assert trees[0].create("clicks", nodes[made.index(True)]), "a second try of the same"


def test_the_shares_of_all_get_places_that_stay(trees: list[TopicTree], at_once: Any) -> None:
    """Each adds its two partitions of a 0.7 topic, then a third, while the others do the same."""
    empty = TopicNode(uuid4(), "0.7", ())

    def register(count: int) -> Any:
        return lambda tree, number: tree.change(
            "clicks", lambda node: with_broker_partitions(node, empty, number, range(count))
        )

    at_once(register(2))
    first = trees[0].read().topics["clicks"]
    at_once(register(3))
    second = trees[0].read().topics["clicks"]

    assert sorted(first.partitions) == [
        BrokerPartition(broker, each) for broker in range(WRITERS) for each in range(2)
    ]
    assert second.partitions[: 2 * WRITERS] == first.partitions
    assert second.id == first.id
    assert all(second.of(number) == (0, 1, 2) for number in range(WRITERS))
    version = trees[0].read().version
    at_once(register(3))
    assert trees[0].read().version == version, "nothing is written where all is well"


def test_what_has_changed_is_read_and_only_that(trees: list[TopicTree]) -> None:
    one, other, *_ = trees
    known = one.read()
    other.create("a", kafka_topic(0, 1))
    known = one.read(known)
    assert set(known.topics) == {"a"}
    other.create("b", kafka_topic(1))
    other.create("c", kafka_topic(1, settings={"retention_time": "1h"}, gone=frozenset({4})))
    known = one.read(known)
    assert set(known.topics) == {"a", "b", "c"}
    assert known.topics["c"].settings == {"retention_time": "1h"}
    assert known.topics["c"].gone == {4}
    assert one.read(known) is known
    assert other.delete("b", lambda node: True) is not None
    assert set(one.read(known).topics) == {"a", "c"}


def test_a_change_wakes_those_who_have_read(start: Any, seen: Any) -> None:
    watching = TopicTree(start(lambda: seen(1)))
    watching.prepare()
    watching.read()
    before = len(seen.items)

    TopicTree(start()).create("clicks", kafka_topic(0))

    seen.wait_for(before + 1)


def test_a_deleted_topic_is_remembered_until_all_its_brokers_have_deleted_it(
    trees: list[TopicTree],
    at_once: Any,
) -> None:
    tree = trees[0]
    node = kafka_topic(0, 1, 2, 1)
    tree.create("clicks", node)

    assert tree.delete("clicks", lambda found: found.id == uuid4()) is None
    assert "clicks" in tree.read().topics
    deletes = at_once(lambda each, _: each.delete("clicks", lambda found: True))

    assert [each for each in deletes if each is not None] == [node]
    assert tree.read().deleted == {node.id: DeletedTopic("clicks", "kafka", frozenset({0, 1, 2}))}
    again = kafka_topic(1)
    assert tree.create("clicks", again)
    at_once(lambda each, number: each.has_deleted([node.id], number % 2))
    contents = tree.read()
    assert contents.deleted[node.id].brokers == {2}
    assert contents.topics["clicks"] == again
    tree.has_deleted([node.id], 2)
    tree.has_deleted([node.id], 2)
    after = tree.read(contents)  # no topic has changed since
    assert after == contents._replace(deleted={})
    assert after.topics is contents.topics
    assert tree.read(after) is after


def test_many_topics_are_deleted_in_one_step(trees: list[TopicTree], session: Any) -> None:
    tree = trees[0]
    nodes = {f"topic-{number}": kafka_topic(0, 1) for number in range(MOST_DELETED - 1)}
    copied = kafka_topic(0)
    for name, node in nodes.items():
        tree.create(name, node)
    tree.create("copied", copied, TopicReplicas(copied.id, (first_state((0, 2), {0: 7}),)))
    tree.create("kept", kafka_topic(0))
    session.put(f"{KAFKA_TOPICS}/damaged", b"{")
    followed = tree.read()

    wanted = {name: partial(_is, node) for name, node in {**nodes, "copied": copied}.items()}
    others = dict.fromkeys(("kept", "damaged", "absent"), lambda node: False)
    deleted = tree.delete_all(dict([*wanted.items()][:-1]) | others)

    assert isinstance(deleted.pop("damaged"), InvalidNodeError)
    assert deleted == nodes
    assert tree.delete_all({"copied": wanted["copied"]}) == {"copied": copied}
    contents = tree.read(followed)
    assert contents == tree.read()
    assert (contents.topics.keys(), contents.replicas) == ({"kept"}, {})
    assert {each.name for each in contents.deleted.values()} == {*nodes, "copied"}
    assert contents.deleted[copied.id].brokers == {0, 2}
    ids = [node.id for node in nodes.values()]
    for broker in (0, 1):
        tree.has_deleted(ids, broker)
    assert tree.read().deleted.keys() == {copied.id}


def test_copies_and_what_was_noted_before_go_with_many_topics(
    trees: list[TopicTree], session: Any
) -> None:
    tree, nodes = trees[0], {f"topic-{number}": kafka_topic(0) for number in range(70)}
    noted, copied = nodes["topic-3"], nodes["topic-5"]
    for name, node in nodes.items():
        tree.create(name, node)
    assert tree.replicas.create(
        "topic-5", TopicReplicas(copied.id, (first_state((7, 8), {7: 1, 8: 1}),))
    )
    left = DeletedTopic("topic-3", "kafka", frozenset({9}))
    session.create(deleted_path(noted.id), format_deleted(left))

    assert tree.delete_all(dict.fromkeys(nodes, lambda _: True)) == nodes

    contents = trees[1].read()
    assert (contents.topics, contents.replicas) == ({}, {})
    brokers = {each.name: each.brokers for each in contents.deleted.values()}
    assert brokers.pop("topic-3") == {0, 9}
    assert brokers.pop("topic-5") == {0, 7, 8}
    assert set(brokers.values()) == {frozenset({0})}


def test_who_has_deleted_its_part_knows_it_whatever_others_have_noted(
    trees: list[TopicTree], session: Any
) -> None:
    tree, nodes = trees[0], [kafka_topic(0) for _ in range(3)]
    for number, node in enumerate(nodes):
        tree.create(f"topic-{number}", node)
        tree.delete(f"topic-{number}", lambda _: True)
    known = tree.read()
    tree.has_deleted([nodes[0].id], 0)
    known = tree.read(known)
    assert known.deleted.keys() == {node.id for node in nodes[1:]}
    # A broker of an earlier version has brought one back, and deleted it again.
    more = DeletedTopic("topic-1", "kafka", frozenset({0, 5}))
    session.set(deleted_path(nodes[1].id), format_deleted(more))

    tree.has_deleted([node.id for node in nodes[1:]], 0)

    assert tree.read(known).deleted == {nodes[1].id: more._replace(brokers=frozenset({5}))}
    assert tree.read(known) == tree.read()


def _is(wanted: TopicNode, found: TopicNode) -> bool:
    return found == wanted


def test_a_0_7_topic_that_all_have_deleted_leaves_nothing(trees: list[TopicTree]) -> None:
    tree = trees[0]
    places = (BrokerPartition(0, 0), BrokerPartition(1, 0))
    tree.create("clicks", TopicNode(uuid4(), "0.7", places, gone=frozenset({0, 1})))

    assert tree.delete("clicks", lambda node: node.gone == node.brokers) is not None

    assert tree.read()[1:] == ({}, {}, {}, set())


def test_producer_ids_are_taken_once(trees: list[TopicTree], at_once: Any) -> None:
    taken = at_once(lambda tree, number: [tree.claim_producer_ids(10) for _ in range(5)])

    firsts = sorted(first for each in taken for first in each)
    assert firsts == list(range(0, 10 * 5 * WRITERS, 10))
    assert trees[0].claim_producer_ids(10, at_least=5000) == 5000
    assert trees[0].claim_producer_ids(10) == 5010


def test_the_last_producer_ids_are_not_gone_beyond(trees: list[TopicTree], session: Any) -> None:
    session.put(PRODUCER_IDS, b"%d" % (2**63 - 11))

    assert trees[0].claim_producer_ids(10) == 2**63 - 11
    with pytest.raises(InvalidNodeError, match="no producer id is left"):
        trees[0].claim_producer_ids(1)


def test_what_cannot_be_understood_is_left_out_and_never_written_over(
    session: Any,
) -> None:
    faults: list[InvalidNodeError] = []
    tree = TopicTree(session, faults.append)
    tree.prepare()
    session.put("/hermes/kafka/topics/odd", b"{}")
    session.put(f"{KAFKA_DELETED}/odd", b"{}")
    session.put(f"{KAFKA_DELETED}/{UUID(int=1)}", b'{"name": 1')
    session.put(KAFKA_CHANGES, b"odd")

    assert tree.read()[1:] == ({}, {}, {}, {"odd"})
    assert len(faults) == 3
    with pytest.raises(InvalidNodeError):
        tree.create("odd", kafka_topic(0))
    with pytest.raises(InvalidNodeError):
        tree.delete("odd", lambda node: True)
    assert session.get("/hermes/kafka/topics/odd").value == b"{}"


def test_a_partition_that_nobody_knows_of_any_more_keeps_its_place(trees: list[TopicTree]) -> None:
    """Coordination was lost: each broker tells again what it has."""
    empty = TopicNode(uuid4(), "kafka", ())

    trees[0].change("clicks", lambda node: with_broker_partitions(node, empty, 1, (1, 3)))
    lost = trees[0].read().topics["clicks"]
    trees[0].change("clicks", lambda node: with_broker_partitions(node, empty, 0, (0,)))

    one = BrokerPartition(1, 1), NOBODY, BrokerPartition(1, 3)
    assert lost.partitions == (NOBODY, *one)
    assert trees[0].read().topics["clicks"].partitions == (BrokerPartition(0, 0), *one)
    assert lost.brokers == {1}


# -- copies -------------------------------------------------------------------------------------


def test_the_first_copies_of_partitions_are_made_once_each(
    trees: list[TopicTree], at_once: Any
) -> None:
    node = kafka_topic(*range(WRITERS))
    trees[0].create("copied", node)

    def add(tree: TopicTree, number: int) -> None:
        def change(topic: TopicNode, before: TopicReplicas | None) -> TopicReplicas:
            known = before or TopicReplicas(topic.id, ())
            return known.with_state(number, first_state((number,), {number: 1}))

        tree.change_replicas("copied", change)

    at_once(add)

    read = trees[0].read()
    states = read.replicas["copied"].partitions
    assert [each and each.replicas for each in states] == [(n,) for n in range(WRITERS)]
    assert read.topics["copied"] == node


def test_copies_of_a_topic_that_grows_meanwhile_are_decided_again(trees: list[TopicTree]) -> None:
    first, other = trees[:2]
    first.create("growing", kafka_topic(0))
    seen: list[int] = []

    def change(topic: TopicNode, before: TopicReplicas | None) -> TopicReplicas:
        if not seen:
            grown = (*topic.partitions, BrokerPartition(1, 1))
            other.change("growing", lambda _: replace(topic, partitions=grown))
        seen.append(len(topic.partitions))
        return TopicReplicas(topic.id, (first_state((0,), {0: 1}),))

    first.change_replicas("growing", change)

    assert seen == [1, 2]
    assert first.read().replicas.keys() == {"growing"}


def test_there_are_no_copies_of_what_is_not_there(trees: list[TopicTree], session: Any) -> None:
    with pytest.raises(UnknownTopicError):
        trees[0].change_replicas("nowhere", lambda topic, before: TopicReplicas(topic.id, ()))
    trees[0].create("same", kafka_topic(0))
    version = trees[0].read().version
    trees[0].change_replicas("same", lambda topic, before: before)
    assert trees[0].read()[0::3] == (version, {})
