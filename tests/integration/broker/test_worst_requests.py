"""The worst request known of each kind, a few of each: tests/soak/test_worst_requests.py in short.

What is held here can't depend on how fast a machine is: memory, the log's growth, that nothing is
left open, and that well-behaved clients are served throughout.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from attacked_broker import attack_everything
from fuzzed_broker import PORTS
from hermes_testkit import BrokerProcess
from worst_kafka_requests import kafka_kinds

from hermes.kafka.apis import APIS

CONNECTIONS = 2
SECONDS = 1
MAX_TOPICS = 150
# After all kinds, one after the other: kio's schemas are a part of it, and so is what expands.
MAX_RSS_MIB = {"broker": 200, "coordination": 200, "kafka": 300}


@pytest.mark.parametrize(
    "port_name",
    [pytest.param(each, marks=pytest.mark.nightly if each == "kafka" else ()) for each in PORTS],
)
def test_the_worst_requests_disturb_nobody(
    start_broker: Callable[..., BrokerProcess], tmp_path: Path, port_name: str
) -> None:
    outcomes = attack_everything(
        start_broker,
        tmp_path,
        port_name,
        CONNECTIONS,
        SECONDS,
        together=True,
        max_topics=MAX_TOPICS,
    )
    for outcome in outcomes:
        assert outcome.rss_mib < MAX_RSS_MIB[port_name], outcome
        assert outcome.log_bytes_per_frame < 100, outcome


def test_every_kind_of_kafkas_requests_is_among_them() -> None:
    keys = set()
    for each in kafka_kinds():
        after = 4 + int.from_bytes(each.data[:4])
        for frame in (each.data, each.data[after:]):  # a login is two
            if frame:
                keys.add(int.from_bytes(frame[4:6]))
    assert {api.name for key, api in APIS.items() if key not in keys} == set()
