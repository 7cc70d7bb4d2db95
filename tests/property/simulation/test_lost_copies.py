"""A broker with copies loses what wasn't on its disk: nothing is acknowledged too early."""

import pytest
import requests
from exchanges import exchange
from stage import on_stage

from hermes.cluster.cluster_part import ClusterPart
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import LENGTH_END
from hermes.protocol.records import Record, encode_batch
from hermes.replication.replica import Role

BATCH = encode_batch([Record(0, 0, None, b"one")])


def test_a_copy_whose_log_is_made_anew_waits_for_the_others() -> None:
    with on_stage(default_replication_factor=3) as stage:
        topic = stage.create("clicks", 1)
        leader = stage.brokers[topic.leaders[0]]
        leader.machine.kill()
        # An empty log goes with the power; how much of it was committed is written down.
        leader.disk.files = leader.disk.files.after_power_loss(None)
        leader.start()
        stage.wait(5)
        assert not leader.run.directory.get("clicks", 0).is_sole_copy


def test_a_copy_is_made_where_the_power_has_left_an_empty_directory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A start can't know of which format it was: the disk was full, and settings weren't kept."""
    # Once another copy of the topic has been made, it isn't seen any more.
    monkeypatch.setattr(ClusterPart, "_is_mistaken", lambda part, name: False)
    with on_stage(default_replication_factor=3) as stage:
        third = stage.brokers[3]
        third.disk.is_full = True
        topic = stage.create("clicks", 2)
        third.machine.kill()
        third.disk.is_full = False
        third.disk.files.mkdir("/data/logs/clicks-1")
        third.start()
        stage.wait(10)
        for number in range(2):
            log = third.run.directory.get("clicks", number)
            assert (log.topic_id, log.is_sole_copy) == (topic.id, False)


def test_a_broker_with_an_empty_disk_trusts_what_it_has_since_got() -> None:
    """It was the last one in sync when it was killed, soon after: nobody else could lead."""
    settings = {"zookeeper_session_timeout": "2s", "replica_lag_time": "3s"}
    with on_stage(default_replication_factor=3, **settings) as stage:
        stage.create("clicks", 2)
        lost = stage.brokers[2]
        lost.machine.kill()
        lost.disk.wipe()
        lost.start()
        stage.wait(0.7)
        for number in (1, 3):
            stage.brokers[number].machine.kill()
        stage.wait(2.5)
        copies = [lost.copies._copies["clicks", number] for number in (0, 1)]
        assert [each.replica.state.isr for each in copies] == [{2}, {2}]
        lost.machine.kill()
        lost.start()
        stage.wait(3)
        copies = [lost.copies._copies["clicks", number] for number in (0, 1)]
        assert [each.replica.role for each in copies] == [Role.LEADING] * 2


@pytest.mark.parametrize("is_served", [False, True], ids=["at its start", "served"])
def test_another_leads_where_a_leaders_disk_gives_its_log_back_no_more(is_served: bool) -> None:
    """The broker itself is there, and so nobody takes it for gone."""
    with on_stage(default_replication_factor=3) as stage:
        topic = stage.create("clicks", 1)
        number = topic.leaders[0]
        leader = stage.brokers[number]
        for _ in range(3):
            stage.ask(number, requests.produce, topic.id, 0, BATCH)
        if not is_served:
            leader.machine.kill()
        files = leader.disk.files
        (name,) = (each for each in files.listdir("/data/logs/clicks-0") if each.endswith(".log"))
        files.fail_reads(f"/data/logs/clicks-0/{name}", 0, 1 << 20)
        if is_served:
            log = leader.run.directory.get("clicks", 0)
            leader.machine.process.at(0, log.state.go_offline, "its disk has failed")
        else:
            leader.start()
        stage.wait(5)
        (heir,) = stage.ask(number % 3 + 1, requests.metadata, "clicks").leaders
        assert heir not in (number, -1)
        assert stage.ask(heir, requests.produce, topic.id, 0, BATCH).base_offset == 3
        stage.wait(30)
        assert leader.copies._copies["clicks", 0].replica.state.isr == {1, 2, 3}
        assert leader.run.directory.get("clicks", 0).end_offset == 4


def test_a_copy_begins_again_where_its_first_leader_could_not_read_a_batch() -> None:
    """What was deleted ends inside of that batch; the next leader sends all of it."""
    three = encode_batch([Record(number, 0, None, b"%d" % number) for number in range(3)])
    with on_stage(default_replication_factor=3) as stage:
        topic = stage.create("clicks", 1)
        number = topic.leaders[0]
        leader, other, wiped = (stage.brokers[(number + each) % 3 + 1] for each in (2, 0, 1))
        for _ in range(3):
            stage.ask(number, requests.produce, topic.id, 0, three)
        stage.ask(number, requests.delete_records, "clicks", 0, 4)
        stage.wait(10)
        for each in (leader, other, wiped):
            each.machine.kill()
        wiped.disk.wipe()
        path = f"/data/logs/clicks-0/{0:020}.log"
        leader.disk.files.rot(path, len(three) + LENGTH_END + 4, 1)
        leader.start()
        stage.wait(5)
        wiped.start()
        stage.wait(5)
        assert wiped.run.directory.get("clicks", 0).earliest == 4
        other.start()
        stage.wait(30)
        assert wiped.copies._copies["clicks", 0].replica.state.isr == {1, 2, 3}
        log = wiped.run.directory.get("clicks", 0)
        assert (log.earliest, log.replica.first_base()) == (4, 3)
        assert [each.offset for each in requests.read_whole(log)] == [4, 5, 6, 7, 8]


def test_a_copy_that_is_named_again_before_it_is_deleted_goes_on() -> None:
    with on_stage(default_replication_factor=3) as stage:
        topic = stage.create("clicks", 1)
        follower = stage.brokers[next(each for each in (1, 2, 3) if each not in topic.leaders)]
        copy = follower.copies._copies["clicks", 0]
        follower.machine.process.at(0, follower.copies._logs.dismissed, copy)
        stage.wait(3)
        assert copy.replica.role is Role.FOLLOWING


def test_what_is_kept_of_transactions_gets_no_single_copy_while_a_cluster_starts() -> None:
    """A loss of its disk would forget all transactional ids, and leave transactions open."""
    wanted = {"coordinator_keys": ("loader",), "key_type": 1}
    with on_stage(default_replication_factor=3) as stage:
        for number in (2, 3):
            stage.brokers[number].machine.kill()
        stage.wait(10)
        (answer,) = stage.ask(1, exchange, "FindCoordinator", 4, wanted).coordinators
        assert answer.error_code == Code.COORDINATOR_NOT_AVAILABLE
        for number in (2, 3):
            stage.brokers[number].start()
        stage.wait(5)
        stage.ask(1, exchange, "FindCoordinator", 4, wanted)
        copies = stage.brokers[1].server.topics.get("__transaction_state").copies
        assert {len(each.replicas) for each in copies} == {3}
