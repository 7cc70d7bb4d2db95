"""The metrics of Kafka's clients: counted by request, and described where operators look."""

from pathlib import Path

from kafka_bench import KafkaBench

from hermes.kafka.group_wiring import FAMILIES as OF_GROUPS
from hermes.kafka.monitoring import FAMILIES, series

ROOT = Path(__file__).parents[3]


def test_every_family_is_in_the_document_and_no_other() -> None:
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = [line for line in document.splitlines() if line.startswith("| `hermes_kafka_")]
    families = (*FAMILIES.values(), *OF_GROUPS.values())
    assert rows == [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} "
        f"| {each.help} |"
        for each in families
    ]


def test_requests_are_counted_by_their_names(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path)
    bench.ask("ApiVersions", 0)
    bench.ask("Metadata", 0, topics=())
    bench.ask("Metadata", 0, topics=())
    found = series(bench.dispatcher.kinds, bench.server.fetch_sessions)
    counts = {family.name: dict(numbers) for family, numbers in found}
    assert counts["hermes_kafka_requests_total"] == {("Metadata",): 2, ("ApiVersions",): 1}
    times = counts["hermes_kafka_request_seconds"]
    assert {name: times[name].count for name in times} == {("Metadata",): 2, ("ApiVersions",): 1}
    bench.close()
