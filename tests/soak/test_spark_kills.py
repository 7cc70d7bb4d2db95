"""Kills of loads and streams, fifty of each kind of sink, here and on S3; kills of drivers."""

import random
from collections.abc import Iterator

import pytest
import soak
from commit_kills import KINDS, check_commits
from driver_kills import check_exactly_once
from kills_under_a_producer import RestartableBroker
from s3_server import S3Server


@pytest.fixture
def s3(tmp_path) -> Iterator[S3Server]:
    server = S3Server(tmp_path / "s3")
    server.start()
    yield server
    server.stop()


@pytest.mark.soak
def test_commits_of_one_to_three_programs_at_once_are_exact(s3, tmp_path) -> None:
    chosen = soak.seed()
    kills = soak.times(50 * 2 * len(KINDS))
    found = check_commits(tmp_path, s3, chosen, kills)
    soak.report("commit kills", seed=chosen, **found)


@pytest.mark.soak
def test_each_message_is_in_each_sink_once(s3, tmp_path) -> None:
    """Drivers are killed, each with eight sinks, and the broker between; loads race."""
    chosen = soak.seed()
    settings = {"log_dir": str(tmp_path / "broker" / "data"), "num_partitions": 2}
    broker = RestartableBroker(tmp_path / "broker", settings)
    racing, kills, restarts = random.Random(chosen).choice((2, 3)), soak.times(50), 0

    def kill_broker() -> None:
        nonlocal restarts
        restarts += 1
        broker.kill_and_restart()

    folder = tmp_path / "sinks"
    folder.mkdir()
    try:
        found = check_exactly_once(broker.port, folder, chosen, kills, s3, kill_broker, racing)
    finally:
        broker.stop()
    soak.report("driver kills", seed=chosen, racing=racing, broker_kills=restarts, **found)
