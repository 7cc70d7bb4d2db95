"""The names of the audit's metrics, and what they tell of a comparison."""

from pathlib import Path

from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hermes.audit.audit_metrics import FAMILIES, write_families
from hermes.audit.comparing import Loss, Report, Window
from hermes.metrics import OPENMETRICS

ROOT = Path(__file__).parents[3]


def test_the_document_has_all_families():
    def row(family):
        labels = ", ".join(f"`{label}`" for label in family.labels)
        return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"

    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = [line for line in document.splitlines() if line.startswith("| `hermes_audit_")]
    assert rows == [row(each) for each in FAMILIES.values()]


def test_a_comparison_is_told():
    windows = [
        Window("clicks", 0, "cluster:a", "producers", "complete", late=3),
        Window("clicks", 60_000, "cluster:a", "producers", "complete"),
        Window("clicks", 120_000, "cluster:a", "producers", "changed", short=2, over=1),
        Window("clicks", 180_000, "cluster:a", "producers", "behind", short=9),
    ]
    losses = [Loss("cluster:a", "clicks", "0-0", 0, 5, "lost")]
    report = Report(200_000, 60_000, windows, [], losses)
    text = b"".join(write_families(report, 4, OPENMETRICS)).decode() + "# EOF\n"
    found = {
        (sample.name.removeprefix("hermes_audit_"), sample.labels.get("state")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert found == {
        ("windows", "complete"): 2,
        ("windows", "changed"): 1,
        ("windows", "behind"): 1,
        ("missing_messages", None): 2,
        ("doubled_messages", None): 1,
        ("late_messages", None): 3,
        ("complete_until_seconds", None): 120,
        ("lost_ranges", None): 1,
        ("unread", None): 4,
    }
