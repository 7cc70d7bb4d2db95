"""The long form of the kill test: a hundred kills, each hundred on a directory of its own."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hermes_testkit import BrokerProcess
from kill_rounds import kill_rounds
from mirrored_kills import mirrored_kill_rounds
from soak import report, seed, times

_ROUNDS = 100


@pytest.mark.soak
def test_a_hundred_kills(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    first_seed, kills, acknowledged = seed(), times(_ROUNDS), 0
    for done in range(0, kills, _ROUNDS):
        log_dir = str(tmp_path / f"logs-{done}")
        broker = start_broker(num_partitions=3, segment_bytes="64KiB", log_dir=log_dir)
        rounds = min(_ROUNDS, kills - done)
        acknowledged += kill_rounds(broker, rounds=rounds, seed=first_seed + done)
        assert broker.stop() == 0
    assert acknowledged > 10 * kills
    report("kills", seed=first_seed, kills=kills, acknowledged=acknowledged, lost=0)


@pytest.mark.soak
def test_fifty_kills_under_mirrors(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    first_seed, kills = seed(), times(_ROUNDS // 2)
    broker = start_broker(
        num_partitions=3, segment_bytes="64KiB", log_dir=str(tmp_path / "mirrored")
    )
    copied = mirrored_kill_rounds(broker, rounds=kills, seed=first_seed)
    assert broker.stop() == 0
    assert min(copied.values()) > 10 * kills
    report("mirrored kills", seed=first_seed, kills=kills, **copied, twice=0, lost=0)
