"""Deletions of topics that don't go as they should, each found by a schedule."""

import requests
from stage import Stage, on_stage

from hermes.cluster.topic_cluster import ClusterState
from hermes.coordination.kafka_topics import KAFKA_DELETED, DeletedTopic
from hermes.errors import CoordinationUnavailableError
from hermes.protocol.records import Record, encode_batch


def no_answer(*_: object) -> None:
    raise CoordinationUnavailableError("no answer came")


def what_is_to_be_deleted(stage: Stage) -> list[str]:
    return sorted(stage.coordination.nodes(KAFKA_DELETED))[1:]


def test_a_broker_that_could_not_say_that_it_has_deleted_a_topic_says_it_later() -> None:
    with on_stage() as stage:
        stage.create("clicks", 3)
        tree = stage.brokers[2].run.cluster._part.cluster._tree
        says, tree.has_deleted = tree.has_deleted, no_answer
        stage.ask(1, requests.delete, "clicks")
        stage.wait(1)
        tree.has_deleted = says
        assert len(what_is_to_be_deleted(stage)) == 1
        stage.wait(20)
        assert what_is_to_be_deleted(stage) == []
        assert stage.directories("clicks") == []


def test_a_topic_that_a_disk_refused_to_delete_does_not_come_back() -> None:
    with on_stage() as stage:
        old = stage.create("clicks", 3)
        stage.brokers[3].disk.failing = 1
        stage.ask(1, requests.delete, "clicks")
        stage.wait(0.5)
        assert len(stage.directories("clicks")) == 1
        # Another one of its name makes brokers look again; it has nothing on the third.
        new = stage.create("clicks", 2)
        stage.wait(10)
        assert what_is_to_be_deleted(stage) == []
        assert len(stage.directories("clicks")) == 2
        stage.brokers[3].machine.kill()
        stage.brokers[3].start()
        stage.wait(10)
        assert stage.ask(3, requests.metadata, "clicks") == new
        assert new.id != old.id


def test_the_partitions_of_the_next_topic_wait_until_the_last_one_is_deleted() -> None:
    with on_stage() as stage:
        old = stage.create("clicks", 3)
        number = old.leaders.index(3)
        batch = encode_batch([Record(0, 0, None, b"of the last topic")])
        stage.ask(3, requests.produce, old.id, number, batch)
        third = stage.brokers[3]
        third.disk.failing = 2
        stage.ask(1, requests.delete, "clicks")
        stage.wait(0.5)
        new = stage.create("clicks", 3)
        stage.wait(10)
        fetched = stage.ask(3, requests.fetch, "clicks", number, None)
        assert fetched == requests.Fetched(new.id, 0, 0, [])
        assert stage.ask(3, requests.produce, new.id, number, batch).base_offset == 0


def test_a_topic_that_was_deleted_while_topics_were_read_is_not_used() -> None:
    with on_stage() as stage:
        topic = stage.create("clicks", 3)
        first = stage.brokers[1]
        part = first.run.cluster._part
        contents = part.cluster._state.contents
        deleted = DeletedTopic("clicks", "kafka", frozenset({1, 2, 3}))
        state = ClusterState(
            contents._replace(deleted={topic.id: deleted}), part.cluster._state.brokers
        )
        first.machine.process.at(0, part.on_state, state)
        stage.wait(0.001)
        assert first.server.topics.get("clicks") is None
        assert first.server.topics.by_id(topic.id) is None


def test_no_copy_of_a_topic_is_made_that_was_deleted_while_it_was_read() -> None:
    with on_stage(default_replication_factor=3) as stage:
        topic = stage.create("clicks", 1)
        first = stage.brokers[1]
        part, contents = first.run.cluster._part, first.copies._state.contents
        deleted = {topic.id: DeletedTopic("clicks", "kafka", frozenset({1, 2, 3}))}
        state = first.copies._state._replace(contents=contents._replace(deleted=deleted))
        first.machine.process.at(0, part.on_state, state)
        stage.wait(0.001)
        assert first.copies._copies == {}


def test_a_topic_that_was_deleted_does_not_come_back_by_what_the_power_has_left() -> None:
    """Empty directories, and nothing that says of which format they were."""
    with on_stage(default_replication_factor=3) as stage:
        stage.create("clicks", 1)
        third = stage.brokers[3]
        third.machine.kill()
        stage.ask(1, requests.delete, "clicks")
        files = third.disk.files
        for name in files.listdir("/data/logs/clicks-0"):
            files.unlink(f"/data/logs/clicks-0/{name}")
        files.unlink("/data/logs/.hermes_topics")
        third.start()
        stage.wait(10)
        assert stage.directories("clicks") == []
        assert what_is_to_be_deleted(stage) == []


def test_copies_that_are_dismissed_before_their_topic_is_known_to_be_deleted_all_go() -> None:
    with on_stage(default_replication_factor=3) as stage:
        stage.create("clicks", 3)
        first = stage.brokers[1]
        tree = first.run.cluster._part.cluster._tree
        reads, tree.read = tree.read, no_answer
        stage.ask(2, requests.delete, "clicks")
        for copy in list(first.copies._copies.values()):
            first.machine.process.at(0, first.copies._logs.dismissed, copy)
        stage.wait(1)
        assert stage.directories("clicks") == []
        assert not first.run.shared.topics.exists("clicks")
        tree.read = reads
        stage.wait(10)
        assert what_is_to_be_deleted(stage) == []


def test_a_copy_that_a_disk_refused_to_delete_goes_later() -> None:
    with on_stage(default_replication_factor=3) as stage:
        stage.create("clicks", 1)
        first = stage.brokers[1]
        first.disk.failing = 1
        stage.ask(2, requests.move, "clicks", 0, [2, 3])
        stage.wait(10)
        assert stage.directories("clicks") == ["2: clicks-0", "3: clicks-0"]
