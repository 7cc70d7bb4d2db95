"""Handshakes that are almost right: the short form of tests/soak/test_handshakes_long.py."""

from collections.abc import Callable
from pathlib import Path

from fuzzed_handshakes import fuzz_handshakes
from hermes_testkit import BrokerProcess


def test_fuzzed_handshakes_disturb_nobody(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    figures = fuzz_handshakes(start_broker, tmp_path / "users", 500, seed=20110611)
    assert figures["handshakes"] == 500
    assert figures["right"] > 0
