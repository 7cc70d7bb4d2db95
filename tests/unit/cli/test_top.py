"""`hermes top`: what a look shows, and whom it waits for."""

import json
import socket
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import Any

from hermes.cli import top
from hermes.cli.options import CommandConnection
from hermes.cli.top_samples import LagSample, TopicSample, TopSampler
from hermes.client import SimpleConsumer
from hermes.coordination.layout import broker_path, format_broker
from hermes.coordination.sessions import Session
from hermes.security import PLAIN
from hermes.testing import running_broker


def test_long_names_leave_room_for_the_figures_on_a_terminal() -> None:
    topics = [TopicSample("t" * 200, 1000, 10**12, 1e9)]
    lags = [LagSample("g" * 200, "t" * 200, 100, 10**12, None, 1e9)]
    for line in top._lines("headline", topics, lags, 80)[3::3]:
        assert "…" in line
        assert line.endswith("/s")
        assert len(line) < 80


def test_a_long_name_is_told_from_others_by_its_end() -> None:
    assert top._short("orders.of.the.european.shops.by.day.retry", 24) == "orders.of.the.eu…y.retry"
    assert top._short("orders", 24) == "orders"


def test_in_a_file_a_table_has_a_width_too(run: Any, tmp_path: Path) -> None:
    """One long name would push the figures of all rows out of sight."""
    name = "t" * 200
    with running_broker(tmp_path) as broker, SimpleConsumer(broker.host, broker.port) as client:
        for each in (name, "clicks"):
            client.create_topic(each)
        place = "-b", f"{broker.host}:{broker.port}", "--once", "-i", "0.1"
        lines = run("top", *place, env={"COLUMNS": ""}).stdout.splitlines()
        assert [len(line) < 120 for line in lines] == [True] * len(lines)
        assert lines[2].index("PARTITIONS") == lines[3].index("         1")
        narrow = run("top", *place, env={"COLUMNS": "90"}).stdout.splitlines()
        assert max(map(len, narrow)) < 90
        rows = json.loads(run("top", *place, "--json").stdout)["topics"]
        assert {each["topic"] for each in rows} == {name, "clicks"}


def test_a_silent_machine_holds_up_no_look() -> None:
    """Asked once, it is left out until it answers, which it may take an hour for here."""
    settings = {"coordination": "embedded", "coordination_listen": "tcp:0:interface=127.0.0.1"}
    with (
        running_broker(None, settings) as broker,
        socket.create_server(("127.0.0.1", 0)) as silent,
        ExitStack() as stack,
    ):
        session = Session(str(broker.zookeeper_connect))
        session.start()
        stack.callback(session.stop)
        host, port = silent.getsockname()
        assert session.create_ephemeral(broker_path(7), format_broker(host, port, 1)) is None
        sampler = TopSampler(
            None, broker.zookeeper_connect, CommandConnection(PLAIN, 3600), patience_seconds=0.1
        )
        with closing(sampler):
            looks = [sampler.take(number, needs_one=number == 0) for number in range(5)]
        assert [each.unanswered for each in looks] == [{7}] * 5
        assert [each.answered for each in looks] == [{broker.broker_id}] * 5
        assert {*chain(*(each.faults for each in looks))} == {
            f"broker 7 does not answer: nothing comes from {host}:{port}"
        }
