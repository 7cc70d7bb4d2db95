"""A broker with copies loses what wasn't on its disk: nothing is acknowledged too early."""

import pytest
from exchanges import exchange
from stage import on_stage

from hermes.cluster.cluster_part import ClusterPart
from hermes.protocol.kafka_errors import Code
from hermes.replication.replica import Role


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
