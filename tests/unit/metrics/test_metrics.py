"""Numbers, and how they are written: checked with prometheus_client's own parsers."""

from collections.abc import Iterable

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from hermes.metrics import (
    OPENMETRICS,
    TEXT,
    FamiliesCollector,
    Family,
    Histogram,
    Series,
    content_type,
    generate,
    write_series,
)
from hermes.metrics.exposition import label_text

COUNTER = Family("things_total", "counter", "Things.", ("name",))
GAUGE = Family("size_bytes", "gauge", "Size.")
TIMES = Family("wait_seconds", "histogram", "Waits.", ("kind",))


def parse(text: str, format_: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = (
        openmetrics.text_string_to_metric_families(text)
        if format_ == OPENMETRICS
        else text_string_to_metric_families(text)
    )
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.parametrize("format_", [TEXT, OPENMETRICS])
def test_what_is_written_is_read_back(format_: str) -> None:
    names = ["plain", 'quote"', "back\\slash", "new\nline", "ü", ""]
    samples = [(label_text(("name",), (name,)), number) for number, name in enumerate(names)]
    text = b"".join(
        [*write_series(COUNTER, samples, format_), *write_series(GAUGE, [("", 1.5)], format_)]
    ).decode()
    found = parse(text + ("# EOF\n" if format_ == OPENMETRICS else ""), format_)
    assert found == {
        ("size_bytes", ()): 1.5,
        **{("things_total", (("name", name),)): n for n, name in enumerate(names)},
    }


def test_very_many_series_are_written_in_pieces_as_they_are_read() -> None:
    taken = 0

    def samples() -> Iterable[tuple[str, float]]:
        nonlocal taken
        for number in range(10_000):
            taken += 1
            yield "", number

    pieces = write_series(GAUGE, samples(), TEXT)
    assert b"# TYPE" in next(pieces)
    before = 0
    for piece in pieces:
        assert piece.count(b"\n") == taken - before <= 128
        before = taken
    assert taken == 10_000


@pytest.mark.parametrize("format_", [TEXT, OPENMETRICS])
def test_a_collector_gives_the_same_numbers(format_: str) -> None:
    histogram = Histogram((0.1, 1.0))
    for value, times in ((0.1, 1), (0.5, 2), (7.0, 1)):
        histogram.observe(value, times)

    def families() -> Iterable[Series]:
        yield COUNTER, [(("a",), 3)]
        yield GAUGE, [((), 2.5)]
        yield TIMES, [(("x",), histogram)]

    text = generate(FamiliesCollector(families), format_).decode()
    found = parse(text + ("# EOF\n" if format_ == OPENMETRICS else ""), format_)
    bucket = "wait_seconds_bucket"
    assert found == {
        ("things_total", (("name", "a"),)): 3,
        ("size_bytes", ()): 2.5,
        (bucket, (("kind", "x"), ("le", "0.1"))): 1,
        (bucket, (("kind", "x"), ("le", "1.0"))): 3,
        (bucket, (("kind", "x"), ("le", "+Inf"))): 4,
        ("wait_seconds_count", (("kind", "x"),)): 4,
        ("wait_seconds_sum", (("kind", "x"),)): 8.1,
    }
    assert histogram.count == 4


def test_the_format_is_chosen_by_what_the_client_reads() -> None:
    prometheus = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*"
    assert content_type(prometheus) == OPENMETRICS
    assert content_type("text/html, */*") == TEXT
    assert content_type("") == TEXT
