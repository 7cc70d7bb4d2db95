"""The metrics of transactions: open, being ended, ended, silent; and described for operators."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka_bench import KafkaBench
from storage_logs import NOW_MS
from transacted_logs import Writer
from twisted.internet.defer import Deferred

from hermes.kafka.transactions.transaction_metrics import FAMILIES, series
from hermes.transactions.deciding import EPOCH_GROWS, Producer
from hermes.transactions.state import group_place

ROOT = Path(__file__).parents[3]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[KafkaBench]:
    bench = KafkaBench(tmp_path / "a log", topics={"new": {"format": "kafka"}})
    bench.shared.topics.create_declared("new")
    now_ms = bench.shared.now_ms()
    bench.shared.now_ms = lambda: now_ms
    yield bench
    bench.server.transactions.stop()
    bench.close()


def later(bench: KafkaBench, seconds: float) -> None:
    now_ms = bench.shared.now_ms() + round(1000 * seconds)
    bench.shared.now_ms = lambda: now_ms


def made(bench: KafkaBench, work: Any) -> Any:
    done = Deferred.fromCoroutine(work)
    bench.turns()
    assert done.called, "it waits for something"
    return done.result


def begun(bench: KafkaBench, name: str, *groups: str) -> Producer:
    """Begin a transaction in a partition and in groups."""
    coordinator = bench.server.transactions.coordinator
    made(bench, coordinator.coordinator_of(name))
    known = made(bench, coordinator.initialize(name, 60_000, None))
    producer = Producer(known.producer_id, known.epoch)
    places = [("new", 0), *map(group_place, groups)]
    made(bench, coordinator.join(name, producer, places, EPOCH_GROWS))
    return producer


def end(bench: KafkaBench, name: str, producer: Producer, *, commits: bool) -> None:
    coordinator = bench.server.transactions.coordinator
    made(bench, coordinator.end(name, producer, EPOCH_GROWS, commits=commits))


def shown(bench: KafkaBench) -> dict[str, dict[tuple[str, ...], Any]]:
    found = series(bench.server.transactions, bench.shared)
    return {family.name: dict(samples) for family, samples in found}


def test_every_family_is_in_the_document_and_no_other() -> None:
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = [line for line in document.splitlines() if line.startswith("| `hermes_transactions")]
    assert rows == [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} "
        f"| {each.help} |"
        for each in FAMILIES.values()
    ]


def test_nothing_is_open_at_first(bench: KafkaBench) -> None:
    found = shown(bench)
    assert found.keys() == FAMILIES.keys()
    assert {value for samples in found.values() for value in samples.values()} == {0}


def test_those_that_are_open_and_being_ended_are_counted_with_their_ages(
    bench: KafkaBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = begun(bench, "first", "a group", "another")
    later(bench, 5)
    begun(bench, "second")
    later(bench, 2)
    found = shown(bench)
    assert found["hermes_transactions"] == {("ongoing",): 2, ("ending",): 0}
    assert found["hermes_transactions_oldest_seconds"] == {("ongoing",): 7, ("ending",): 0}
    held = Deferred[Any]()
    monkeypatch.setattr(bench.server.transactions.markers, "write", lambda *_: held)
    end(bench, "first", first, commits=True)
    later(bench, 3)
    found = shown(bench)
    assert found["hermes_transactions"] == {("ongoing",): 1, ("ending",): 1}
    assert found["hermes_transactions_oldest_seconds"] == {("ongoing",): 5, ("ending",): 3}
    assert found["hermes_transactions_markers_waiting"] == {(): 3}
    monkeypatch.undo()
    held.callback({})
    bench.clock.advance(0.1)
    bench.turns()
    found = shown(bench)
    assert found["hermes_transactions"] == {("ongoing",): 1, ("ending",): 0}
    assert found["hermes_transactions_markers_waiting"] == {(): 0}


def test_ends_are_counted_by_how_they_came(bench: KafkaBench) -> None:
    coordinator = bench.server.transactions.coordinator
    for name, commits in (("a", True), ("b", True), ("c", True), ("d", False), ("e", False)):
        producer = begun(bench, name)
        end(bench, name, producer, commits=commits)
        end(bench, name, producer, commits=commits)  # which asks again, and changes nothing
    begun(bench, "replaced")
    made(bench, coordinator.initialize("replaced", 60_000, None))
    begun(bench, "late")
    later(bench, 61)
    coordinator.begin()
    bench.clock.advance(0.5)
    bench.turns()
    assert shown(bench)["hermes_transactions_ended_total"] == {
        ("committed",): 3,
        ("aborted",): 2,
        ("timed_out",): 1,
        ("fenced",): 1,
    }


def test_what_a_silent_producer_withholds_is_seen(bench: KafkaBench) -> None:
    log = bench.cluster.topics.log("new", 0)
    writer = Writer(log)
    writer.send(7, 2)
    writer.send(8)
    bench.flush(log)
    bench.shared.now_ms = lambda: NOW_MS + 1_300_000
    found = shown(bench)
    assert found["hermes_transactions_silent_seconds"] == {(): 1300}
    assert found["hermes_transactions_lag_messages"] == {("new", "0"): 3}
    for producer in (7, 8):
        writer.end(producer)
    assert shown(bench)["hermes_transactions_silent_seconds"] == {(): 0}
    assert shown(bench)["hermes_transactions_lag_messages"] == {("new", "0"): 3}
    bench.flush(log)
    assert shown(bench)["hermes_transactions_lag_messages"] == {}
