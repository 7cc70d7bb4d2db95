"""A broker with copies loses what wasn't on its disk: nothing is acknowledged too early."""

from stage import on_stage


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
