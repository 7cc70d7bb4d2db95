"""Twenty kills of a consumer that retries."""

import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from coordination_servers import KINDS
from group_cluster import Cluster
from retry_rounds import check_nothing_is_lost
from soak import report, seed, times

pytestmark = pytest.mark.soak


@pytest.mark.parametrize("kind", KINDS)
def test_every_message_is_handled_or_dead(tmp_path: Path, kind: str) -> None:
    chosen_seed, kills = seed(), times(20)
    report(f"kills of a retrying consumer on {kind}", seed=chosen_seed, kills=kills)
    server = KINDS[kind](tmp_path / "server")
    with ExitStack() as stack:
        server.start()
        stack.callback(server.kill)
        broker = Cluster(server.address, stack).broker()
        again = check_nothing_is_lost(
            broker,
            server.address,
            tmp_path / "output",
            _eventually,
            kills=kills,
            seed=chosen_seed,
        )
    report(f"kills of a retrying consumer on {kind}", lost=0, handled_again=again)


def _eventually(condition: Callable[[], Any], what: str = "") -> Any:
    deadline, pause = time.monotonic() + 300, threading.Event()
    while not (found := condition()):
        assert time.monotonic() < deadline, what
        pause.wait(0.05)
    return found
