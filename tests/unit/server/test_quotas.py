"""Quotas: who goes over is delayed by the clock, loses nothing, and shares with its own."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines

from hermes.config.loading import parse_broker_config
from hermes.config.quotas import Quota, quota_of
from hermes.errors import ConfigError
from hermes.protocol import (
    AcknowledgedProduceRequest,
    Acks,
    FetchRequest,
    ProduceRequest,
    encode_message_set,
)
from hermes.security import INTERNAL
from hermes.server.clients import Client
from hermes.server.quotas import Quotas

SET = encode_message_set([b"x" * 990])
PRODUCE = ProduceRequest("t", 0, SET).encode()
ACKNOWLEDGED = AcknowledgedProduceRequest(Acks.WRITTEN, 0, (ProduceRequest("t", 0, SET),)).encode()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., BrokerBench]]:
    made: list[BrokerBench] = []

    def make(**quotas: Any) -> BrokerBench:
        bench = BrokerBench(tmp_path / f"logs{len(made)}", quotas=quotas)
        bench.broker.topics.for_produce("t", 0)
        made.append(bench)
        return bench

    yield make
    for bench in made:
        bench.close()


def stored(bench: BrokerBench) -> int:
    return sum(log.end_offset for log in bench.directory.logs.values()) // len(SET)


def reload(bench: BrokerBench, **quotas: Any) -> None:
    values = {"broker_id": 0, "log_dir": str(bench.settings.config.log_dir), "quotas": quotas}
    bench.settings.use(parse_broker_config(values))


def burst(bench: BrokerBench, connection: Any, count: int = 1) -> None:
    """Use up what may be used at once."""
    connection.dataReceived(PRODUCE * count)


class TestBytesIn:
    def test_reading_pauses_until_the_rate_is_met(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1000})
        connection, transport = bench.connect()
        burst(bench, connection)
        assert transport.producerState == "paused" or len(PRODUCE) <= 1000
        connection.dataReceived(PRODUCE)
        assert transport.producerState == "paused"
        owed = 2 * len(PRODUCE) - 1000
        bench.clock.advance(owed / 1000 - 0.01)
        assert transport.producerState == "paused"
        bench.clock.advance(0.02)
        assert transport.producerState == "producing"
        quotas = bench.connections.quotas
        assert quotas.delays == {("anonymous", "bytes_in"): 1}
        assert quotas.delayed_seconds["anonymous", "bytes_in"] == pytest.approx(
            owed / 1000, abs=0.02
        )

    def test_what_arrived_is_stored_and_answered_at_once(self, make: Any) -> None:
        bench = make(default={"bytes_in": 100})
        connection, transport = bench.connect()
        connection.dataReceived(ACKNOWLEDGED * 5)
        assert stored(bench) == 5
        assert len(answers(transport)) == 5
        assert transport.producerState == "paused"

    def test_nothing_is_lost_however_much_is_sent(self, make: Any) -> None:
        bench = make(default={"bytes_in": 3000, "requests": 2})
        connection, transport = bench.connect()
        data, rounds = ACKNOWLEDGED * 40, 0
        while data or stored(bench) < 40:
            if transport.producerState == "producing":
                connection.dataReceived(data[:700])  # within requests, too
                data = data[700:]
            bench.clock.advance(0.1)
            rounds += 1
            assert rounds < 10_000
        assert len(answers(transport)) == 40
        assert not transport.disconnecting
        assert bench.clock.seconds() >= (40 - 2) / 2 - 0.5

    def test_a_client_that_leaves_is_not_waited_for(self, make: Any) -> None:
        bench = make(default={"requests": 1})
        connection, _ = bench.connect()
        burst(bench, connection, 3)
        connection.dataReceived(PRODUCE * 2)  # whole, and held by the quota
        assert stored(bench) == 3
        connection.connectionLost()
        assert stored(bench) == 5


class TestRequests:
    def test_more_are_taken_when_it_is_time(self, make: Any) -> None:
        bench = make(anonymous={"requests": 10})
        connection, transport = bench.connect()
        fetch = FetchRequest("t", 0, 0, 10).encode()
        for _ in range(11):
            connection.dataReceived(fetch)
        assert len(answers(transport)) == 11
        connection.dataReceived(fetch)
        assert answers(transport) == []
        bench.clock.advance(0.05)
        assert answers(transport) == []
        bench.clock.advance(0.06)
        assert len(answers(transport)) == 1

    def test_each_of_a_run_counts(self, make: Any) -> None:
        bench = make(anonymous={"requests": 10})
        connection, transport = bench.connect()
        connection.dataReceived(PRODUCE * 30)
        bench.clock.advance(1.9)
        assert transport.producerState == "paused"
        bench.clock.advance(0.2)
        assert transport.producerState == "producing"


class TestBytesOut:
    def test_the_next_response_waits(self, make: Any) -> None:
        bench = make(anonymous={"bytes_out": 1000})
        writer, _ = bench.connect()
        writer.dataReceived(PRODUCE * 10)
        connection, transport = bench.connect()
        fetch = FetchRequest("t", 0, 0, 5 * len(SET)).encode()
        connection.dataReceived(fetch)
        bench.turns(transport)
        assert len(transport.value()) == 5 * len(SET) + 6
        transport.clear()
        connection.dataReceived(fetch)
        bench.turns(transport)
        assert transport.value() == b""
        bench.clock.advance(4.01)
        bench.turns(transport)
        assert len(transport.value()) == 5 * len(SET) + 6

    def test_who_waits_is_not_idle(self, make: Any) -> None:
        bench = make(anonymous={"bytes_out": 1})
        connection, transport = bench.connect()
        connection.dataReceived(FetchRequest("t", 0, 0, 5).encode())
        for _ in range(3):
            bench.connections.sweep_idle()
        assert not transport.disconnecting


class TestSharing:
    def test_connections_of_one_principal_share_fairly(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1000})
        (greedy, first), (modest, second) = bench.connect(), bench.connect()
        greedy.dataReceived(PRODUCE * 100)
        modest.dataReceived(PRODUCE[:100])
        assert (first.producerState, second.producerState) == ("paused", "paused")
        bench.clock.advance(0.21)
        assert (first.producerState, second.producerState) == ("paused", "producing")

    def test_principals_do_not_share(self, make: Any) -> None:
        bench = make(default={"bytes_in": 1000})
        (alice, first), (bob, second) = bench.connect(), bench.connect()
        for connection, name in ((alice, "alice"), (bob, "bob")):
            connection._throttle.leave()
            connection._client.principal = name
            connection._enter()
        alice.dataReceived(PRODUCE * 100)
        bob.dataReceived(PRODUCE[:900])
        assert (first.producerState, second.producerState) == ("paused", "producing")

    def test_a_debt_is_not_left_by_connecting_anew(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1000})
        connection, _ = bench.connect()
        connection.dataReceived(PRODUCE * 10)
        connection.connectionLost()
        _, transport = bench.connect()
        _, second = bench.connect()
        assert (transport.producerState, second.producerState) == ("paused", "producing")
        bench.clock.advance(8)
        assert transport.producerState == "paused"
        bench.clock.advance(2)
        assert transport.producerState == "producing"

    def test_the_broker_itself_has_no_quota(self, make: Any) -> None:
        bench = make(default={"requests": 1})
        client = Client(None)
        client.principal = INTERNAL
        assert bench.connections.quotas.join(client, lambda: None) is None


class TestConnections:
    def test_further_ones_are_closed(self, make: Any) -> None:
        bench = make(anonymous={"connections": 2})
        (first, _), _ = bench.connect(), bench.connect()
        with log_lines() as lines:
            _, transport = bench.connect()
        assert transport.disconnecting
        assert "'anonymous' has 2 connections open, as many as its quota allows" in lines[0]
        assert bench.connections.quotas.refused == {"anonymous": 1}
        assert bench.broker.metrics.refusals == {("connection", "quota"): 1}
        first.connectionLost()
        _, transport = bench.connect()
        assert not transport.disconnecting

    def test_a_lower_limit_closes_none(self, make: Any) -> None:
        bench = make(anonymous={"connections": 3})
        transports = [bench.connect()[1] for _ in range(3)]
        reload(bench, anonymous={"connections": 1})
        assert not any(each.disconnecting for each in transports)
        assert bench.connect()[1].disconnecting


class TestChanges:
    def test_a_higher_rate_ends_a_delay_sooner(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1000})
        connection, transport = bench.connect()
        connection.dataReceived(PRODUCE * 100)
        reload(bench, anonymous={"bytes_in": 1_000_000})
        bench.clock.advance(0.2)
        assert transport.producerState == "producing"

    def test_without_a_quota_nobody_waits(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1})
        connection, transport = bench.connect()
        connection.dataReceived(PRODUCE * 2)
        reload(bench)
        bench.clock.advance(0)
        assert transport.producerState == "producing"
        connection.dataReceived(PRODUCE * 2)
        assert stored(bench) == 4
        assert connection._throttle is None or connection._throttle.usage is None
        assert bench.connections.quotas._usages == {}

    def test_a_limit_that_goes_lets_go_of_those_that_it_delays(self, make: Any) -> None:
        bench = make(anonymous={"bytes_in": 1, "requests": 100})
        connection, transport = bench.connect()
        connection.dataReceived(PRODUCE * 2)
        reload(bench, anonymous={"requests": 100})
        bench.clock.advance(0)
        assert transport.producerState == "producing"

    def test_a_first_quota_applies_to_open_connections(self, make: Any) -> None:
        bench = make()
        connection, transport = bench.connect()
        connection.dataReceived(PRODUCE)
        reload(bench, default={"bytes_in": 100})
        connection.dataReceived(PRODUCE)
        assert transport.producerState == "paused"

    def test_a_first_quota_does_not_count_what_was_answered_before(self, make: Any) -> None:
        bench = make()
        writer, _ = bench.connect()
        writer.dataReceived(PRODUCE * 10)
        connection, transport = bench.connect()
        fetch = FetchRequest("t", 0, 0, 5 * len(SET)).encode()
        for _ in range(10):
            connection.dataReceived(fetch)
            bench.turns(transport)
        transport.clear()
        reload(bench, default={"bytes_out": 1000})
        for _ in range(2):
            connection.dataReceived(fetch)
            bench.turns(transport)
        assert len(transport.value()) == 5 * len(SET) + 6
        bench.clock.advance(4.01)
        bench.turns(transport)
        assert len(transport.value()) == 2 * (5 * len(SET) + 6)


def test_while_memory_is_short_a_part_of_a_request_is_read_on(make: Any) -> None:
    bench = make(anonymous={"bytes_in": 100})
    bench.connections.memory.limit_bytes = 400
    connection, transport = bench.connect()
    connection.dataReceived(PRODUCE[:300])
    assert transport.producerState == "paused"
    other, _ = bench.connect()
    other.dataReceived(PRODUCE[:300])
    assert bench.connections.memory.over_budget
    assert transport.producerState == "producing"


def test_usage_of_many_principals_is_forgotten(make: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("hermes.server.quotas._MOST_KEPT", 10)
    bench = make(default={"requests": 5})
    quotas: Quotas = bench.connections.quotas
    for number in range(100):
        client = Client(None)
        client.principal = f"user-{number}"
        throttle = quotas.join(client, lambda: None)
        assert throttle is not None
        throttle.took(6)
        throttle.charge(0)
        throttle.leave()
        bench.clock.advance(2)
    assert len(quotas._usages) <= 11
    assert len(quotas.delays) == 11
    assert quotas.delays["others", "requests"] == 90
    assert not bench.clock.getDelayedCalls()


@pytest.mark.parametrize(
    ("principal", "found"),
    [("alice", 1), ("web-1", 2), ("web-app-1", 3), ("bob", 4), ("default", 4)],
)
def test_the_quota_of_a_principal(principal: str, found: int) -> None:
    names = ("alice", "web-*", "web-app-*", "default")
    quotas = {name: Quota(requests=n) for n, name in enumerate(names, 1)}
    assert quota_of(quotas, principal) == Quota(requests=found)
    del quotas["default"]
    assert (quota_of(quotas, principal) is None) == (found == 4)


@pytest.mark.parametrize(
    ("quotas", "complaint"),
    [
        ([], "expected principals with quotas such as"),
        ({5: {}}, "expected the name of a principal in quotes, got 5"),
        ({"alice": None}, "'alice': expected some of bytes_in, bytes_out, requests, connections"),
        ({"alice": {}}, "'alice': expected some of"),
        ({"alice": {"bytes": 5}}, "'alice': unknown key 'bytes'"),
        ({"alice": {"bytes_in": "64k"}}, "'alice': bytes_in: "),
        ({"alice": {"requests": 0}}, "'alice': requests: expected a whole number >= 1"),
    ],
)
def test_what_is_no_quota_is_refused(quotas: Any, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_broker_config({"broker_id": 0, "log_dir": "/x", "quotas": quotas})
    assert raised.value.key == "quotas"
    assert complaint in str(raised.value)


def test_a_quota_is_shown_as_it_is_written() -> None:
    assert str(Quota(bytes_in=1 << 20, requests=5)) == "{bytes_in: 1MiB, requests: 5}"
    assert Quota(bytes_in=1 << 20).as_given() == {"bytes_in": 1 << 20}


def test_a_lost_connection_is_not_kept_by_its_debt(make: Any) -> None:
    bench = make(anonymous={"bytes_in": 1})
    connection, _ = bench.connect()
    connection.dataReceived(PRODUCE * 10)
    throttle = connection._throttle
    connection.connectionLost()
    assert connection not in gc.get_referents(throttle)
    assert getattr(throttle.resume, "__self__", None) is None
