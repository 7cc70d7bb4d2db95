"""The console's page about the audit, of reports that a broker holds."""

import time

import pytest

from hermes.audit.events import Alive, Committed, CountsEvent, Event, Gap, encode_event
from hermes.client import Producer, ProducerConfig
from hermes.config.addresses import BrokerAddress
from hermes.console import Access, ClusterClient, Console
from hermes.console.page_request import PageRequest
from hermes.testing import running_broker

HOUR_MS = 3_600_000
START_MS = (time.time_ns() // 1_000_000 - 2 * HOUR_MS) // 60_000 * 60_000
AT_MS = START_MS + HOUR_MS


def event(tier, process, sequence, body, host="<b>web"):
    return encode_event(Event(tier, process, sequence, AT_MS, 60_000, host, body))


@pytest.fixture
def page():
    with running_broker(settings={"coordination": "embedded"}) as broker:

        def report(*payloads):
            with Producer(ProducerConfig(broker_list=broker.broker_list)) as producer:
                producer.send("hermes-audit", list(payloads))

        console = Console(
            ClusterClient(BrokerAddress(broker.host, broker.port)), Access(None), lambda: False
        )

        def shown():
            answer = console.answer(
                PageRequest(
                    "GET", ("audit",), {}, cookies={"hermes_session": "s" * 43}, here="/audit"
                )
            )
            pieces = [answer.body] if isinstance(answer.body, bytes) else answer.body
            assert answer.status == 200
            return b"".join(pieces).decode().partition("<main")[2]

        try:
            yield report, shown
        finally:
            console.close()


def test_windows_that_are_short_are_shown_with_what_explains_them(page):
    report, shown = page
    assert "No two tiers have reported" in shown()
    second = START_MS + 60_000
    report(
        event("producers", 7, 0, CountsEvent("clicks", windows={(START_MS, 7): (5, 50)})),
        event("producers", 7, 1, CountsEvent("clicks", windows={(second, 7): (9, 90)})),
        event("producers", 7, 2, Alive(True, AT_MS)),
        event(
            "cluster:<i>",
            8,
            0,
            CountsEvent(
                "clicks",
                log="0-0",
                end=100,
                since_ms=0,
                windows={(START_MS, 7): (5, 50), (second, 7): (8, 80), (0, 0): (3, 1)},
            ),
        ),
        event("cluster:<i>", 8, 1, Gap("clicks", "0-0", 100, 200, "lost")),
        event("cluster:<i>", 8, 2, Alive(False, reached={"clicks": {"0-0": (200, AT_MS)}})),
        b"no event",
    )
    deadline = time.monotonic() + 30
    while "short" not in (text := shown()):  # what was read a moment ago is remembered
        assert time.monotonic() < deadline, text
    assert "1 complete" in text
    assert "1 short" in text
    assert "100 to 200 were deleted by retention" in text
    assert "&lt;b&gt;web 0000000000000007 -1" in text
    assert "<b>" not in text
    assert "<i>" not in text


def test_what_is_only_known_of_kafkas_format_is_told(page):
    report, shown = page
    windows, spans = {(START_MS, 0): (5, 50)}, {START_MS: (0, 10)}
    whole = CountsEvent(
        "table", log="0-0", end=10, since_ms=0, windows=windows, removed=1234, spans=spans
    )
    lossy = CountsEvent("clicks", log="0-0", end=9, since_ms=0, windows=windows, missing=4)
    report(
        event("cluster:main", 8, 0, whole),
        event("cluster:main", 8, 1, lossy),
        event("cluster:main", 8, 2, Alive(False, reached={"table": {"0-0": (10, AT_MS)}})),
        event("group:g", 9, 0, Committed("table", "cluster:main", {"0-0": (10, 0)})),
        event(
            "group:g", 9, 1, Committed("table", "cluster:main", {"0-0": (7, 0)}, {"0-0": (7, 10)})
        ),
    )
    deadline = time.monotonic() + 30
    while "set back" not in (text := shown()):
        assert time.monotonic() < deadline, text
    assert "1,234 messages were compacted away" in text
    assert "0 to 9 lack messages" in text
    assert "7 to 10 come to the group again" in text
    assert "group:g" in text


def test_without_coordination_the_page_says_so():
    with running_broker() as broker:
        console = Console(
            ClusterClient(BrokerAddress(broker.host, broker.port)), Access(None), lambda: False
        )
        ask = PageRequest(
            "GET", ("audit",), {}, cookies={"hermes_session": "s" * 43}, here="/audit"
        )
        answer = console.answer(ask)
        console.close()
    assert answer.status == 200
    assert b"notice warn" in answer.body
