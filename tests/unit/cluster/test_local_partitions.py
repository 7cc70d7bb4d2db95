"""What a broker adds to the cluster's topics, and removes from them: decided from plain values."""

from typing import Any
from uuid import UUID

import pytest

from hermes.cluster.local_partitions import Addition, LocalChanges, LocalPartitions, Removal
from hermes.coordination.kafka_topics import NOBODY, DeletedTopic, TopicNode
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.topic_tree import TreeContents

ONE, TWO = UUID(int=1), UUID(int=2)
BROKER = 5


def place(broker: int, partition: int) -> BrokerPartition:
    return BrokerPartition(broker, partition)


def of_0_7(*partitions: int) -> LocalPartitions:
    return LocalPartitions("0.7", None, partitions)


def of_kafka(topic_id: UUID, *partitions: int) -> LocalPartitions:
    return LocalPartitions("kafka", topic_id, partitions)


def contents(deleted: Any = None, **topics: TopicNode) -> TreeContents:
    return TreeContents(1, topics, deleted or {})


@pytest.fixture
def changes() -> LocalChanges:
    return LocalChanges(BROKER)


# -- what is added ------------------------------------------------------------------------------


def test_without_topics_there_is_nothing_to_change(changes: LocalChanges) -> None:
    assert changes.find({}, contents()) == []


def test_a_topic_that_the_cluster_lacks_is_added(changes: LocalChanges) -> None:
    local = {"old": of_0_7(0, 1), "new": of_kafka(ONE, 2)}

    old, new = changes.find(local, contents())

    assert old == Addition("old", BROKER, of_0_7(0, 1))
    assert new == Addition("new", BROKER, of_kafka(ONE, 2))
    made = old.apply(None)
    assert made is not None
    assert made.format == "0.7"
    assert made.partitions == (place(BROKER, 0), place(BROKER, 1))
    assert new.apply(None) == TopicNode(ONE, "kafka", (NOBODY, NOBODY, place(BROKER, 2)))


def test_partitions_that_a_topic_lacks_are_added_behind_or_in_their_place(
    changes: LocalChanges,
) -> None:
    old = TopicNode(ONE, "0.7", (place(4, 0), place(BROKER, 0)))
    new = TopicNode(TWO, "kafka", (NOBODY, place(4, 1)), {"a": "b"}, others={"later": 1})
    local = {"old": of_0_7(0, 1), "new": of_kafka(TWO, 0, 1)}

    of_old, of_new = changes.find(local, contents(old=old, new=new))

    assert of_old.apply(old) == TopicNode(
        ONE, "0.7", (place(4, 0), place(BROKER, 0), place(BROKER, 1))
    )
    assert of_new.apply(new) == TopicNode(
        TWO, "kafka", (place(BROKER, 0), place(4, 1)), {"a": "b"}, others={"later": 1}
    ), "nothing else changes, and no partition its broker"


def test_a_topic_of_0_7_that_a_broker_has_again_is_not_gone_there(changes: LocalChanges) -> None:
    node = TopicNode(ONE, "0.7", (place(4, 0), place(BROKER, 0)), gone=frozenset({4, BROKER}))

    (addition,) = changes.find({"old": of_0_7(0)}, contents(old=node))

    assert addition.apply(node) == TopicNode(ONE, "0.7", node.partitions, gone=frozenset({4}))


def test_what_is_there_already_is_left_alone(changes: LocalChanges) -> None:
    old = TopicNode(ONE, "0.7", (place(BROKER, 1), place(4, 0), place(BROKER, 0)))
    new = TopicNode(TWO, "kafka", (place(4, 0), place(BROKER, 1)))
    local = {"old": of_0_7(0, 1), "new": of_kafka(TWO, 1)}

    assert changes.find(local, contents(old=old, new=new)) == []


@pytest.mark.parametrize(
    ("node", "local"),
    [
        (TopicNode(ONE, "kafka", (place(4, 0),)), of_kafka(TWO, 0, 1)),
        (TopicNode(ONE, "kafka", (place(4, 0),)), of_0_7(0, 1)),
        (TopicNode(ONE, "0.7", (place(4, 0),)), of_kafka(ONE, 0, 1)),
    ],
)
def test_another_topic_of_the_same_name_stays_as_it_is(
    changes: LocalChanges, node: TopicNode, local: LocalPartitions
) -> None:
    assert changes.find({"clicks": local}, contents(clicks=node)) == []
    # As it may take the name between the decision and the change.
    (addition,) = changes.find({"clicks": local}, contents())
    assert addition.apply(node) is node


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a\0b"])
def test_a_topic_whose_name_fits_no_path_is_no_topic_of_the_cluster(
    changes: LocalChanges, name: str
) -> None:
    assert changes.find({name: of_0_7(0)}, contents()) == []


# -- deleted topics -----------------------------------------------------------------------------


def test_a_deleted_topic_is_not_added_while_its_files_are_still_here(
    changes: LocalChanges,
) -> None:
    local = {"clicks": of_kafka(ONE, 0), "views": of_0_7(0)}
    deleted = {
        ONE: DeletedTopic("clicks", "kafka", frozenset({4, BROKER})),
        TWO: DeletedTopic("views", "0.7", frozenset({BROKER})),
    }

    assert changes.find(local, contents(deleted)) == []
    assert [each.topic for each in changes.find(local, contents())] == ["clicks", "views"], (
        "it wasn't settled by that"
    )


@pytest.mark.parametrize(
    "deleted",
    [
        DeletedTopic("other", "kafka", frozenset({BROKER})),
        DeletedTopic("clicks", "kafka", frozenset({4})),
        DeletedTopic("clicks", "0.7", frozenset({BROKER})),
    ],
)
def test_what_else_was_deleted_doesnt_matter(changes: LocalChanges, deleted: DeletedTopic) -> None:
    local = of_kafka(ONE, 0)
    addition = Addition("clicks", BROKER, local)

    assert changes.find({"clicks": local}, contents({ONE: deleted})) == [addition]


def test_a_topic_that_took_the_name_of_a_deleted_one_is_added(changes: LocalChanges) -> None:
    deleted = {ONE: DeletedTopic("clicks", "kafka", frozenset({BROKER}))}
    local = of_kafka(TWO, 0)

    assert changes.find({"clicks": local}, contents(deleted)) == [Addition("clicks", BROKER, local)]


# -- what is removed ----------------------------------------------------------------------------


def test_a_topic_of_0_7_without_partitions_here_is_marked(changes: LocalChanges) -> None:
    places = place(4, 0), place(BROKER, 0)
    node = TopicNode(ONE, "0.7", places, {"a": "b"}, frozenset({3}), {"later": 1})

    (removal,) = changes.find({}, contents(old=node))

    assert removal == Removal("old", BROKER)
    after = TopicNode(ONE, "0.7", places, {"a": "b"}, frozenset({3, BROKER}), {"later": 1})
    assert removal.apply(node) == after
    assert removal.apply(after) is after
    assert not removal.is_gone_everywhere(after)
    assert removal.is_gone_everywhere(TopicNode(ONE, "0.7", places, gone=frozenset({4, BROKER})))


def test_a_removal_changes_nothing_of_what_came_meanwhile(changes: LocalChanges) -> None:
    (removal,) = changes.find({}, contents(old=TopicNode(ONE, "0.7", (place(BROKER, 0),))))
    other = TopicNode(TWO, "kafka", (place(BROKER, 0),))

    assert removal.apply(other) is other
    assert removal.apply(None) is None


@pytest.mark.parametrize(
    "node",
    [
        TopicNode(ONE, "0.7", (place(4, 0),)),
        TopicNode(ONE, "0.7", (place(BROKER, 0),), gone=frozenset({BROKER})),
        TopicNode(ONE, "kafka", (place(BROKER, 0),)),
    ],
    ids=["never here", "marked already", "Kafka's, which only the cluster deletes"],
)
def test_other_topics_without_partitions_here_are_left_alone(
    changes: LocalChanges, node: TopicNode
) -> None:
    assert changes.find({}, contents(clicks=node)) == []


def test_additions_come_before_removals(changes: LocalChanges) -> None:
    gone = TopicNode(ONE, "0.7", (place(BROKER, 0),))

    found = changes.find({"b": of_0_7(0), "a": of_0_7(0)}, contents(gone=gone))

    assert [(type(each), each.topic) for each in found] == [
        (Addition, "b"),
        (Addition, "a"),
        (Removal, "gone"),
    ]


# -- what is settled ----------------------------------------------------------------------------


class CountedPartitions(LocalPartitions):
    """Counts how often they are compared with a topic."""

    looks = 0

    def is_of(self, *topic: Any) -> bool:
        CountedPartitions.looks += 1
        return super().is_of(*topic)


def test_what_is_settled_is_not_looked_at_again(changes: LocalChanges) -> None:
    node = TopicNode(ONE, "kafka", (place(BROKER, 0),))
    local = CountedPartitions("kafka", ONE, (0,))
    CountedPartitions.looks = 0

    def look(local: LocalPartitions, node: TopicNode, **others: TopicNode) -> int:
        before = CountedPartitions.looks
        published = {"clicks": local, **{name: of_0_7(0) for name in others}}
        found = changes.find(published, contents(clicks=node, **others))
        assert found == []
        return CountedPartitions.looks - before

    assert look(local, node) == 1
    assert look(local, node) == 0
    other = TopicNode(TWO, "0.7", (place(BROKER, 0),))
    assert look(local, node, views=other) == 0, "another topic costs nothing"
    again = TopicNode(ONE, "kafka", node.partitions)
    assert look(local, again) == 1, "the node was read again"
    assert look(CountedPartitions("kafka", ONE, (0,)), again) == 1, "it was published again"
    grown = of_kafka(ONE, 0, 1)
    assert changes.find({"clicks": grown}, contents(clicks=again)) == [
        Addition("clicks", BROKER, grown)
    ]


def test_a_change_is_asked_for_until_it_is_seen(changes: LocalChanges) -> None:
    local = {"clicks": of_kafka(ONE, 0)}

    (addition,) = changes.find(local, contents())
    assert changes.find(local, contents()) == [addition], "it may have failed"

    made = addition.apply(None)
    assert made is not None
    seen = contents(clicks=made)
    assert changes.find(local, seen) == []
    assert changes.find(local, contents()) == [addition], "the node is lost"


def test_a_topic_that_went_and_came_back_is_looked_at(changes: LocalChanges) -> None:
    node = TopicNode(ONE, "0.7", (place(BROKER, 0),))
    local = of_0_7(0)
    assert changes.find({"old": local}, contents(old=node)) == []

    (removal,) = changes.find({}, contents(old=node))
    after = removal.apply(node)
    assert after is not None
    (addition,) = changes.find({"old": local}, contents(old=after))

    assert addition.apply(after) == node
