"""Kill a loaded broker again and again while it is scraped, and compare each scrape with the last.

Within one life of the process no counter falls. After a kill each begins anew, and then is what
the test has counted in that life; offsets and sizes go on from where they were.
"""

import threading
from http.client import HTTPException

from hermes_testkit import BrokerProcess, RawClient, message, produce_acknowledged
from scraping import Scrape, scrape

__all__ = ["scraped_kills"]

_PRODUCED = 40


def scraped_kills(broker: BrokerProcess, kills: int) -> None:
    """Run the rounds."""
    before = -1.0
    for _ in range(kills):
        address = _http(broker)
        stop, failures = threading.Event(), list[str]()
        watching = threading.Thread(target=_watch, args=(address, stop, failures))
        watching.start()
        try:
            with RawClient(broker.port) as client:
                for _ in range(_PRODUCED):
                    answer = client.call(produce_acknowledged(("kills", 0, message(b"x" * 30))))
                    assert answer[12:14] == b"\0\0"
                found = scrape(address)
        finally:
            broker.kill()
            stop.set()
            watching.join(60)
        assert not failures
        assert found("hermes_topic_messages_in_total", topic="kills") == _PRODUCED
        assert found("hermes_requests_total", type="acknowledged_produce") == _PRODUCED
        size = found("hermes_log_size_bytes", topic="kills", partition="0")
        assert size == found("hermes_log_high_watermark", topic="kills", partition="0") > before
        before = size
        broker.start()
    after = scrape(_http(broker))
    assert after("hermes_log_high_watermark", topic="kills", partition="0") >= before
    assert after("hermes_requests_total", type="acknowledged_produce") == 0


def _watch(address: str, stop: threading.Event, failures: list[str]) -> None:
    """Scrape until the broker is gone; note what falls."""
    last: Scrape | None = None
    while not stop.is_set():
        try:
            found = scrape(address)
        except (OSError, HTTPException):
            return  # killed: what came of the scrape is dropped, as by Prometheus
        if last is not None:
            failures += _fallen(last, found)
        last = found


def _fallen(last: Scrape, found: Scrape) -> list[str]:
    now = found.only_growing()
    return [
        f"{key}: {value} became {now.get(key)}"
        for key, value in last.only_growing().items()
        if not now.get(key, -1.0) >= value
    ]


def _http(broker: BrokerProcess) -> str:
    line = broker.wait_for_line("is ready: Hermes")
    return "http://" + line.partition("HTTP on ")[2].partition(",")[0]
