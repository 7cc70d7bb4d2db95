"""Charts as SVG paths, drawn here so that pages work without script."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hermes.console.formatting import ago
from hermes.console.rates import History

WIDTH: Final = 600
HEIGHT: Final = 120
_MOST_SECONDS: Final = 300.0
_LEAST_SECONDS: Final = 60.0
_MOST_MARKS: Final = 60
_STEPS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True)
class ChartMark:
    """A strip of a chart that shows its value, and how long ago it was, when pointed at."""

    x: float
    width: float
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """One number over the last one to five minutes.

    Attributes:
        key: unique within its page.
        now: the last value, for people; a dash before there is one.
        since: how long ago the left edge is.
        line: an SVG path; empty before there are two points.
    """

    key: str
    title: str
    now: str
    top: str
    since: str
    line: str
    area: str
    marks: tuple[ChartMark, ...]


def draw(
    key: str,
    title: str,
    history: History,
    at: float,
    text: Callable[[float | None], str],
) -> Chart:
    """Draw a number's history; `at` is the time of the right edge, monotonic, in seconds."""
    runs = _runs(history, at)
    first = runs[0][0][0] if runs else at
    seconds = min(max(at - first, _LEAST_SECONDS), _MOST_SECONDS)

    def across(when: float) -> float:
        return round(WIDTH * (1 - (at - when) / seconds), 1)

    values = [value for run in runs for _, value in run]
    top = _round_up(max(values, default=0.0))
    line, area = [], []
    for run in runs:
        points = [(across(when), round(HEIGHT - value / top * HEIGHT, 1)) for when, value in run]
        path = " ".join(f"L{x},{y}" for x, y in points)[1:]
        line.append(f"M{path}")
        area.append(f"M{points[0][0]},{HEIGHT} L{path} L{points[-1][0]},{HEIGHT}Z")
    last = values[-1] if values else None
    marks = _marks([point for run in runs for point in run], at, across, text)
    since = ago(seconds)
    return Chart(key, title, text(last), text(top), since, " ".join(line), " ".join(area), marks)


def _runs(history: History, at: float) -> list[list[tuple[float, float]]]:
    runs: list[list[tuple[float, float]]] = [[]]
    for when, value in history.points:
        if value is None:
            runs.append([])
        elif at - when <= _MOST_SECONDS:
            runs[-1].append((when, value))
    return [run for run in runs if run]


def _round_up(value: float) -> float:
    """The next round value: 1, 2, 5, 10, ... of a power of 1024."""
    unit = 1.0
    while value > unit * _STEPS[-1]:
        unit *= 1024
    return unit * next((step for step in _STEPS if step * unit >= value), 1024)


def _marks(
    points: list[tuple[float, float]],
    at: float,
    across: Callable[[float], float],
    text: Callable[[float | None], str],
) -> tuple[ChartMark, ...]:
    points = points[:: max(1, -(-len(points) // _MOST_MARKS))]
    edges = [across(when) for when, _ in points] + [float(WIDTH)]
    return tuple(
        ChartMark(x, round(max(following - x, 1), 1), f"{text(value)}, {round(at - when)} s ago")
        for (when, value), x, following in zip(points, edges, edges[1:], strict=False)
    )
