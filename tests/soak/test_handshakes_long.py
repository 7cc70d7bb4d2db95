"""A hundred thousand handshakes of SCRAM that are almost right."""

from collections.abc import Callable
from pathlib import Path

import pytest
from fuzzed_handshakes import fuzz_handshakes
from hermes_testkit import BrokerProcess
from soak import report, seed, times


@pytest.mark.soak
def test_handshakes(start_broker: Callable[..., BrokerProcess], tmp_path: Path) -> None:
    figures = fuzz_handshakes(start_broker, tmp_path / "users", times(100_000), seed())
    report("handshakes", **figures)
