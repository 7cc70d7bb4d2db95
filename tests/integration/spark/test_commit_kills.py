"""Programs killed with -9 in the midst of commits, here and on S3; the soak suite has hundreds."""

import random

import pytest
from commit_kills import check_commits
from s3_server import S3Server


@pytest.fixture
def s3(tmp_path):
    server = S3Server(tmp_path / "s3")
    server.start()
    yield server
    server.stop()


def test_kills_during_commits_lose_and_double_nothing(s3, tmp_path) -> None:
    """Eight here, and two with Spark in tests/spark/test_kills.py."""
    found = check_commits(tmp_path, s3, random.getrandbits(32), kills=8)
    assert found["messages"] > 0
