"""Kills of loads and streams, fifty of each kind of sink, here and on S3: commits and drivers."""

from collections.abc import Iterator

import pytest
import soak
from commit_kills import KINDS, check_commits
from kills_under_a_producer import RestartableBroker
from s3_server import S3Server
from session_kills import check_sessions


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
    """Drivers are killed, alone and with their JVM, and the broker between; loads race."""
    chosen = soak.seed()
    settings = {"log_dir": str(tmp_path / "broker" / "data"), "num_partitions": 2}
    broker = RestartableBroker(tmp_path / "broker", settings)
    try:
        kills, counted = check_sessions(
            broker.port, tmp_path / "sinks", chosen, soak.times(50), s3, broker.kill_and_restart
        )
    finally:
        broker.stop()
    # Lines whose figures can be added up over runs.
    for name, each in kills.items():
        soak.report(f"driver kills, {name}", seed=chosen, **each.figures())
    soak.report("driver kills, all", seed=chosen, **counted)
