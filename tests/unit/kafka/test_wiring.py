"""What a broker loads for Kafka's clients: without them nothing, and of kio not before one asks."""

import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

from hermes.coordination.listeners import BrokerListeners, ListenerNode
from hermes.kafka.wiring import _other_broker
from hermes.security import PLAIN

LOADED = "import sys; print(sorted({name.split('.')[0] if name.startswith('kio') else name \
for name in sys.modules if name.startswith(('kio', 'hermes.kafka'))}))"


@pytest.mark.parametrize(
    ("imported", "expected"),
    [
        ("import hermes.tap, hermes.twistd, hermes.testing", "[]"),
        ("import hermes.kafka.wiring", "hermes.kafka.wiring"),
    ],
)
def test_who_has_no_use_for_it_loads_none_of_it(imported: str, expected: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", f"{imported}\n{LOADED}"], capture_output=True, text=True, check=True
    )
    assert expected in run.stdout
    assert "kio" not in run.stdout


@pytest.mark.parametrize(("largest", "limit"), [(1 << 20, 64 << 20), (200 << 20, 208 << 20)])
def test_followers_get_batches_as_large_as_producers_may_send_them(
    largest: int, limit: int
) -> None:
    config = SimpleNamespace(replication_listener=None, max_request_bytes=largest)
    run: Any = SimpleNamespace(config=config, reactor=None, in_thread=None)
    listener = ListenerNode("0", "127.0.0.1", 9092, False, "none")
    other = _other_broker(run, PLAIN, BrokerListeners((), kafka=(listener,)))
    assert other is not None
    assert other._limits.response_bytes == limit
