"""A thousand peers at a time that begin TLS and don't go on, and damaged hellos without end."""

import random
import time
from collections.abc import Callable

import pytest
from certificates import Certificates
from hermes_testkit import BrokerProcess
from soak import report, seed, times
from tls_attacks import half_open, hostile_handshakes, served_by
from tls_clients import client_context, tls_listener

_HALF_OPEN = 1000

#: Of the allocator, and of what the broker keeps of lines that it has logged.
_FLAT_BYTES = 4_000_000


@pytest.mark.soak
def test_a_thousand_half_open_handshakes_leave_memory_flat_and_others_served(
    start_broker: Callable[..., BrokerProcess], certificates: Certificates
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    context = client_context(certificates.ca)
    rounds, slowest, after = times(10), 0.0, list[int]()
    for _ in range(rounds + 2):
        with half_open(broker, _HALF_OPEN):
            for _ in range(20):
                began = time.monotonic()
                assert served_by(broker, context)
                slowest = max(slowest, time.monotonic() - began)
            peak = broker.memory_bytes()
        assert served_by(broker, context)
        after.append(broker.memory_bytes())
    growth = after[-1] - after[1]  # the first ones fill the allocator
    report(
        "half-open handshakes",
        rounds=rounds,
        at_a_time=_HALF_OPEN,
        peak_mb=peak // 1_000_000,
        growth_kb=growth // 1000,
        slowest_ms=round(1000 * slowest),
    )
    assert growth < _FLAT_BYTES
    assert broker.stop() == 0


@pytest.mark.soak
def test_damaged_hellos_leave_memory_flat_and_others_served(
    start_broker: Callable[..., BrokerProcess], certificates: Certificates
) -> None:
    broker = start_broker(listen=[tls_listener(certificates.server)])
    context, chosen = client_context(certificates.ca), seed()
    print(f"\nHERMES_SOAK_SEED={chosen}")  # noqa: T201
    source, count = random.Random(chosen), times(20_000)
    hostile_handshakes(broker, source, count // 10)
    before = broker.memory_bytes()
    for _ in range(9):
        hostile_handshakes(broker, source, count // 10)
        assert served_by(broker, context)
    growth = broker.memory_bytes() - before
    report("damaged hellos", count=count, growth_kb=growth // 1000)
    assert growth < _FLAT_BYTES
    assert "Traceback" not in "".join(broker.lines)
    assert broker.stop() == 0
