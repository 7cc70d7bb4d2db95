"""The audit's metrics; docs/monitoring.md has the same rows."""

from collections.abc import Iterator
from typing import Final

from hermes.audit.comparing import DIFFERENT, Report
from hermes.metrics import Family, write_series
from hermes.metrics.exposition import label_text

_TIER: Final = ("topic", "tier")

WINDOWS: Final = Family(
    "hermes_audit_windows", "gauge",
    "Windows of the last 24 hours by their state: complete, short, over, changed, uncertain, "
    "behind or open.",
    (*_TIER, "state"),
)  # fmt: skip
MISSING: Final = Family(
    "hermes_audit_missing_messages", "gauge",
    "Messages that are missing for certain, in these windows.", _TIER,
)  # fmt: skip
DOUBLED: Final = Family(
    "hermes_audit_doubled_messages", "gauge",
    "Messages that are there once too often for certain, in these windows.", _TIER,
)  # fmt: skip
LATE: Final = Family(
    "hermes_audit_late_messages", "gauge",
    "Messages that came after their window had been counted to its end.", _TIER,
)  # fmt: skip
COMPLETE_UNTIL: Final = Family(
    "hermes_audit_complete_until_seconds", "gauge",
    "The end of the newest window that is complete, in seconds since 1970.", _TIER,
)  # fmt: skip
LOSSES: Final = Family(
    "hermes_audit_lost_ranges", "gauge",
    "Ranges of logs that could not be counted: lost by retention, damaged, with messages missing, "
    "or in no report; counted ones that are gone; and those that a group gets again.",
    ("topic", "tier", "why"),
)  # fmt: skip
FAULTS: Final = Family(
    "hermes_audit_unread", "gauge", "What of the reports could not be read at the last look.",
)  # fmt: skip

#: Everything, by name.
FAMILIES: Final = {
    family.name: family
    for family in (WINDOWS, MISSING, DOUBLED, LATE, COMPLETE_UNTIL, LOSSES, FAULTS)
}


def write_families(report: Report, unread: int, format_: str) -> Iterator[bytes]:
    states: dict[tuple[str, ...], float] = {}
    sums: dict[str, dict[tuple[str, ...], float]] = {"short": {}, "over": {}, "late": {}}
    until: dict[tuple[str, ...], float] = {}
    for each in report.windows:
        tier = each.topic, each.tier
        states[*tier, each.state] = states.get((*tier, each.state), 0) + 1
        is_different = each.state in DIFFERENT
        for name, numbers in sums.items():
            counts = is_different or name == "late"
            numbers[tier] = numbers.get(tier, 0) + (getattr(each, name) if counts else 0)
        if each.state == "complete":
            end = (each.start_ms + report.window_ms) / 1000
            until[tier] = max(until.get(tier, 0), end)
    losses: dict[tuple[str, ...], float] = {}
    for loss in report.losses:
        place = loss.topic, loss.tier, loss.why
        losses[place] = losses.get(place, 0) + 1
    for family, found in (
        (WINDOWS, states),
        (MISSING, sums["short"]),
        (DOUBLED, sums["over"]),
        (LATE, sums["late"]),
        (COMPLETE_UNTIL, until),
        (LOSSES, losses),
        (FAULTS, {(): float(unread)}),
    ):
        series = [(label_text(family.labels, key), number) for key, number in sorted(found.items())]
        yield from write_series(family, series, format_)
