"""Results: rows with a target, as a table for people and as JSON for machines."""

import json
import os
import platform
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "Row",
    "bound_row",
    "floor_row",
    "interleaved",
    "ratio_row",
    "rows_as_json",
    "skipped_row",
    "table",
]

_HEADINGS = ("measure", "Hermes", "beside it", "ratio", "target", "met")


#: From here on a ratio reads better as a multiple than in percent.
_TIMES = 2


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure.

    Attributes:
        measure: what was measured.
        unit: the unit of both values.
        hermes: Hermes' value; None when it could not be measured.
        beside: the value of what it is held against, if anything.
        beside_name: what that is.
        target: what has to be reached, in words.
        met: whether it is; None when there is nothing to reach or nothing was measured.
        note: why it could not be measured, or what else to know.
        hermes_runs: the single runs whose median `hermes` is, in order.
        beside_runs: likewise; the nth of both were taken one right after the other.
    """

    measure: str
    unit: str
    hermes: float | None
    beside: float | None = None
    beside_name: str = ""
    target: str = ""
    met: bool | None = None
    note: str = ""
    hermes_runs: tuple[float, ...] = ()
    beside_runs: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Hermes' value as a share of the one beside it."""
        return None if self.hermes is None or not self.beside else self.hermes / self.beside


def interleaved(
    rounds: int, *runs: Callable[[], float], warm_up: bool = True
) -> list[tuple[float, ...]]:
    """Take several measurements in turns: A B A B ..., so that a busy moment meets all of them.

    Args:
        rounds: how often each is taken, >= 1.
        runs: each takes one measurement and returns its figure.
        warm_up: take one round before, which doesn't count.

    Returns:
        For each of `runs` its figures, in order.
    """
    if warm_up:
        for run in runs:
            run()
    return list(zip(*([run() for run in runs] for _ in range(rounds)), strict=True))


def ratio_row(
    measure: str,
    unit: str,
    hermes_runs: Sequence[float],
    beside_runs: Sequence[float],
    *,
    beside_name: str,
    at_least: float | None,
    note: str = "",
) -> Row:
    """Hold the medians of interleaved runs against each other.

    Args:
        measure: what was measured.
        unit: the unit of the runs; more is better.
        hermes_runs: Hermes' figures.
        beside_runs: the other's.
        beside_name: what the other is.
        at_least: the share of the other's median that has to be reached; None: just to know.
        note: what else to know.
    """
    hermes, beside = statistics.median(hermes_runs), statistics.median(beside_runs)
    best_hermes, best_beside = (_value(max(runs), unit) for runs in (hermes_runs, beside_runs))
    best = f"best runs: {best_hermes}, {beside_name} {best_beside}"
    return Row(
        measure,
        unit,
        hermes,
        beside,
        beside_name,
        target="" if at_least is None else f">= {at_least:.0%}",
        met=None if at_least is None else hermes >= at_least * beside,
        note="; ".join(filter(None, (best, note))),
        hermes_runs=tuple(hermes_runs),
        beside_runs=tuple(beside_runs),
    )


def bound_row(
    measure: str,
    unit: str,
    value: float,
    *,
    below: float,
    beside: float | None = None,
    beside_name: str = "",
    note: str = "",
) -> Row:
    """Hold a figure against an absolute bound.

    Args:
        measure: what was measured.
        unit: its unit; less is better.
        value: the figure.
        below: what it has to stay below.
        beside: another figure to compare with, which decides nothing.
        beside_name: what that is.
        note: what else to know.
    """
    return Row(
        measure, unit, value, beside, beside_name, f"< {below:g} {unit}", value < below, note
    )


def floor_row(
    measure: str, unit: str, runs: Sequence[float], *, at_least: float, note: str = ""
) -> Row:
    """Hold the median of several runs against an absolute bound from below.

    Args:
        measure: what was measured.
        unit: the unit of the runs; more is better.
        runs: the figures.
        at_least: what the median has to reach.
        note: what else to know.
    """
    value = statistics.median(runs)
    return Row(
        measure,
        unit,
        value,
        target=f">= {at_least:,.0f}",
        met=value >= at_least,
        note=note,
        hermes_runs=tuple(runs),
    )


def skipped_row(measure: str, reason: str) -> Row:
    """Say that something was not measured, and why."""
    return Row(measure, "", None, note=f"not measured: {reason}")


def table(rows: Sequence[Row]) -> str:
    """Lay the rows out for a terminal, notes below."""
    cells = [_HEADINGS, *(_cells(row) for row in rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(_HEADINGS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, *(f"{row.measure}: {row.note}" for row in rows if row.note)])


def rows_as_json(rows: Sequence[Row]) -> str:
    """Give everything that is known of the rows, and of the machine, as JSON."""
    machine: dict[str, Any] = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    return json.dumps(
        {"machine": machine, "rows": [{**asdict(row), "ratio": row.ratio} for row in rows]},
        indent=2,
    )


def _cells(row: Row) -> tuple[str, ...]:
    beside = _value(row.beside, row.unit)
    return (
        row.measure,
        _value(row.hermes, row.unit),
        f"{beside} ({row.beside_name})" if row.beside_name and beside else beside,
        _ratio(row.ratio),
        row.target,
        {True: "yes", False: "NO", None: ""}[row.met],
    )


def _ratio(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.0%}" if ratio < _TIMES else f"{ratio:.1f} x"


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:.{digits}f} {unit}".rstrip()
