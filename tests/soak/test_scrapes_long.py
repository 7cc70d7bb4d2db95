"""What a scrape costs at ten thousand partitions, and counters over ten kills."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hermes_testkit import BrokerProcess, message
from scraped_kills import scraped_kills
from scraping import Scrape
from soak import report, times
from twisted.internet.testing import MemoryReactorClock

from hermes.broker.monitoring import Monitoring
from hermes.broker.service import raise_descriptor_limit
from hermes.broker.serving import ServingBroker
from hermes.config.loading import parse_broker_config
from hermes.metrics import OPENMETRICS, TEXT
from hermes.web.responses import TURN_SECONDS

_PARTITIONS = 10_000
_LONGEST_TURN_SECONDS = 0.020
_SCRAPE_SECONDS = 0.500


@pytest.mark.soak
def test_ten_kills_under_scrapes(start_broker: Callable[..., BrokerProcess]) -> None:
    kills = times(10)
    scraped_kills(start_broker(http_listen="tcp:0:interface=127.0.0.1"), kills=kills)
    report("scraped kills", kills=kills)


@pytest.mark.soak
@pytest.mark.parametrize("format_", [TEXT, OPENMETRICS], ids=["text", "openmetrics"])
def test_ten_thousand_partitions_are_scraped_in_short_turns(tmp_path: Path, format_: str) -> None:
    raise_descriptor_limit()
    settings = {"broker_id": 0, "log_dir": str(tmp_path), "coordination": "none"}
    reactor: Any = MemoryReactorClock()
    run = ServingBroker(parse_broker_config(settings), reactor, lambda: 1, (), lambda _: None)  # type: ignore[arg-type, return-value]
    one = message(b"x" * 100)
    for number in range(_PARTITIONS):
        log = run.directory.create(f"topic-{number // 100}", number % 100)
        log.append((one,), len(one), 1, 1)
        run.broker.metrics.topic(log.topic).messages_in += 1
    monitoring = Monitoring(run)
    texts, longest, total = [], 0.0, 0.0
    pieces = monitoring.pieces(format_)
    while True:
        began = time.thread_time()
        piece = next(pieces, None)
        took = time.thread_time() - began
        longest, total = max(longest, took), total + took
        if piece is None:
            break
        texts.append(piece)
    monitoring.stop()
    run.directory.close()
    run._stop_threads()
    if format_ == TEXT:
        found = Scrape(b"".join(texts).decode())
        assert found("hermes_logs") == _PARTITIONS
        series = [name for name, _ in found.samples if name == "hermes_log_size_bytes"]
        assert len(series) == _PARTITIONS
    report("a scrape", format=format_[:20], seconds=total, longest_piece_seconds=longest)
    assert total < _SCRAPE_SECONDS
    assert TURN_SECONDS + longest < _LONGEST_TURN_SECONDS  # a turn ends with the piece that is late
