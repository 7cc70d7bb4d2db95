"""A hundred connections that all send the worst request known of each kind."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from attacked_broker import attack_everything
from fuzzed_broker import PORTS
from hermes_testkit import BrokerProcess
from soak import report, times

pytestmark = pytest.mark.soak

MAX_TURN_MS = 50
#: Kafka's port brings the schemas of its messages along.
MAX_RSS_MIB = {"kafka": 300}
USUAL_RSS_MIB = 200
MAX_WAIT_MS = 1000
MAX_LOG_BYTES_PER_FRAME = 100


@pytest.mark.parametrize("port_name", PORTS)
def test_the_worst_request_of_each_kind(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, port_name: str
) -> None:
    connections = times(100)
    outcomes = []
    only = os.environ.get("HERMES_SOAK_KIND", "")
    for outcome in attack_everything(start_broker, tmp_path, port_name, connections, 30, only=only):
        print(outcome, flush=True)  # noqa: T201
        outcomes.append(outcome)
    report(
        f"worst requests, {port_name} port",
        kinds=len(outcomes),
        connections=connections,
        turn_ms=max(each.turn_ms for each in outcomes),
        rss_mib=max(each.rss_mib for each in outcomes),
        slowest_ms=max(each.slowest_ms for each in outcomes),
        log_bytes_per_frame=max(each.log_bytes_per_frame for each in outcomes),
        unfinished=sum(not each.finished for each in outcomes),
    )
    bad = [
        str(each)
        for each in outcomes
        if each.turn_ms > MAX_TURN_MS
        or each.rss_mib > MAX_RSS_MIB.get(port_name, USUAL_RSS_MIB)
        or each.slowest_ms > MAX_WAIT_MS
        or each.log_bytes_per_frame > MAX_LOG_BYTES_PER_FRAME
    ]
    assert not bad, "\n".join(bad)
