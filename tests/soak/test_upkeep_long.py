"""Fifty kills of programs that load, compact, let expire and clean up a target at once."""

import os

import pytest
import soak
from s3_server import S3Server
from upkeep_kills import check_upkeep


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_upkeep_of_a_directory(tmp_path, sink) -> None:
    kills, seed = soak.times(50), soak.seed()
    messages = check_upkeep(str(tmp_path / "target"), tmp_path, sink, kills, seed)
    soak.report("upkeep", sink=sink, kills=kills, seed=seed, messages=messages)


@pytest.mark.soak
@pytest.mark.parametrize("sink", ["parquet", "delta"])
def test_upkeep_on_s3(tmp_path, monkeypatch, sink) -> None:
    kills, seed = soak.times(50), soak.seed()
    server = S3Server(tmp_path / "server")
    server.start()
    try:
        for name, value in server.environment.items():
            monkeypatch.setitem(os.environ, name, value)
        messages = check_upkeep(
            server.address_of(sink),
            tmp_path,
            sink,
            kills,
            seed,
            directory=lambda: server.copy_out(sink, tmp_path / "copied"),
            environment=server.environment,
        )
    finally:
        server.stop()
    soak.report("upkeep on S3", sink=sink, kills=kills, seed=seed, messages=messages)
