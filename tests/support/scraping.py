"""Scrapes, as a test looks at them."""

import time
import urllib.error
import urllib.request
from collections.abc import Callable

from prometheus_client.parser import text_string_to_metric_families

__all__ = ["Scrape", "get", "scrape", "until"]

_DEADLINE_SECONDS = 60.0


class Scrape:
    """The samples of one scrape.

    Attributes:
        samples: numbers by name and labels.
        kinds: `counter`, `gauge` or `histogram` by family.
    """

    def __init__(self, text: str) -> None:
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.kinds: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            self.kinds[family.name] = family.type
            for sample in family.samples:
                key = sample.name, frozenset(sample.labels.items())
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value

    def __call__(self, name: str, **labels: str) -> float:
        """The number of a series; KeyError when there is none."""
        return self.samples[name, frozenset(labels.items())]

    def only_growing(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        """The samples that a reset alone may lower."""
        counters = {f"{name}_total" for name, kind in self.kinds.items() if kind == "counter"}
        histograms = [name for name, kind in self.kinds.items() if kind == "histogram"]
        counters |= {f"{name}{end}" for name in histograms for end in ("_bucket", "_count", "_sum")}
        return {key: value for key, value in self.samples.items() if key[0] in counters}


def get(url: str, **headers: str) -> tuple[int, str]:
    """Ask for a page; its status and text."""
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_DEADLINE_SECONDS) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scrape(address: str) -> Scrape:
    """Scrape a broker, at `http://HOST:PORT`."""
    status, text = get(f"{address}/metrics")
    assert status == 200
    return Scrape(text)


def until(address: str, condition: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until a condition holds; that scrape. Counters may follow a response by a moment."""
    end = time.monotonic() + _DEADLINE_SECONDS
    while True:
        found = scrape(address)
        if condition(found):
            return found
        assert time.monotonic() < end, "the metrics never said so"
