"""Questions that a thread looks up: what becomes of a fault of Hermes there."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines

from hermes.protocol import (
    AppendTimesRequest,
    BoundaryRequest,
    DescribePartitionsRequest,
    MetadataRequest,
    encode_message_set,
)
from hermes.server.fairness import QUANTUM_ENTRIES
from hermes.storage import Log
from hermes.v0_7 import describing, lookups

SET = encode_message_set([b"m"])


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BrokerBench]:
    bench = BrokerBench(tmp_path)
    log = bench.broker.topics.for_produce("t", 0)
    log.append((SET,), len(SET), 1, 0)
    log.flush()
    yield bench
    bench.close()


def fail(*_: object) -> None:
    raise ValueError("a fault")


@pytest.mark.parametrize(
    ("request_", "owner", "name"),
    [
        (BoundaryRequest("t", 0, 0), Log, "boundary_before"),
        (AppendTimesRequest("t", 0, 0, 10, 1000), Log, "append_times"),
        (DescribePartitionsRequest("t", 0), lookups, "_describe"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_fault_is_told_to_the_operator_and_not_answered_as_if_it_were_known(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch, request_: Any, owner: Any, name: str
) -> None:
    monkeypatch.setattr(owner, name, fail)
    connection, transport = bench.connect()
    with log_lines() as lines:
        connection.dataReceived(request_.encode())
        bench.turns(transport)
    assert any("ValueError: a fault" in line for line in lines)
    assert transport.disconnecting
    assert answers(transport) == []


def test_nor_is_one_that_comes_when_metadata_takes_turns(
    bench: BrokerBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = tuple(map(str, range(2 * QUANTUM_ENTRIES)))
    broken = iter([*[()] * (len(names) - 1), None])  # of the last one nothing can be said
    monkeypatch.setattr(describing, "_leaders", lambda _: next(broken))
    connection, transport = bench.connect()
    with log_lines() as lines:
        connection.dataReceived(MetadataRequest(names).encode())
        bench.turns(transport)
    assert any("TypeError" in line for line in lines)
    assert transport.disconnecting
    assert answers(transport) == []
