"""Changes are made one at a time, and leave turns to others."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from broker_bench import BrokerBench, answers
from twisted.internet.defer import Deferred

from hermes.protocol import CreateTopicRequest


class SlowThread:
    """Holds its first call back until told."""

    def __init__(self) -> None:
        self.held: Deferred[Any] | None = None
        self._call: Callable[[], Any] | None = None

    def __call__(self, function: Callable[..., Any], *args: Any) -> "Deferred[Any]":
        done: Deferred[Any] = Deferred()
        if self.held is None:
            self.held, self._call = done, lambda: function(*args)
        else:
            done.callback(function(*args))
        return done

    def finish(self) -> None:
        assert self.held is not None
        assert self._call is not None
        self.held.callback(self._call())


def test_a_thousand_that_are_refused_at_once_are_not_refused_in_one_turn(tmp_path: Path) -> None:
    thread = SlowThread()
    bench = BrokerBench(tmp_path, in_thread=thread)
    clients = [bench.connect() for _ in range(300)]
    for connection, _ in clients:
        connection.dataReceived(CreateTopicRequest("t", ()).encode())
        bench.turns()
    before = bench.clock.put_off
    thread.finish()
    bench.turns()
    assert bench.clock.put_off - before >= 299
    outcomes = [answers(transport) for _, transport in clients]
    assert all(len(each) == 1 for each in outcomes)
    assert len({each[0] for each in outcomes}) == 2, "one has created it, the others are told so"
    bench.close()


def test_settings_far_too_long_are_refused(tmp_path: Path) -> None:
    bench = BrokerBench(tmp_path)
    connection, transport = bench.connect()
    long = (("retention_options", "{a: " + "x" * 9000 + "}"),)
    connection.dataReceived(CreateTopicRequest("t", long).encode())
    bench.turns()
    (answer,) = answers(transport)
    assert b"at most 8192" in answer
    assert not bench.broker.topics.exists("t")
    bench.close()
