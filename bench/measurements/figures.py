"""The two figures of the paper's section 5, from our own measurements.

Producer throughput, and consumer throughput, in messages per second over the megabytes sent: one
producer, then one consumer, 200-byte messages, at most about 200 KB a pull. RabbitMQ and ActiveMQ
stand beside Hermes where they are installed; they carry fewer messages, to keep the time bounded.
"""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from bench.peers import activemq, hermes, rabbitmq
from bench.peers.system import Meter, NotInstalled, Point, System
from bench.support.plot import draw
from bench.support.report import Row, skipped_row
from bench.support.settings import Settings
from hermes.extras import install_command

__all__ = ["measure"]

_MILLION = 1_000_000
_DATA = "section-5.json"


@dataclass(frozen=True, slots=True)
class _Curve:
    """One line of a figure: `figure` is "producer" or "consumer"."""

    figure: str
    system: str
    average: float
    points: list[Point]


def measure(settings: Settings) -> list[Row]:
    """Run every system that is there, one after the other, and draw both figures."""
    many = int(settings.figure_messages * _MILLION)
    few = int(settings.peer_messages * _MILLION)
    curves: list[_Curve] = []
    rows: list[Row] = []
    for name, running, messages, batches in (
        ("Hermes", hermes.running, many, (50, 1)),
        ("RabbitMQ", rabbitmq.running, few, (1,)),
        ("ActiveMQ", activemq.running, few, (1,)),
    ):
        try:
            curves += _curves(settings, name, running, messages, batches)
        except NotInstalled as missing:
            rows.append(skipped_row(name, str(missing)))
    settings.results.mkdir(parents=True, exist_ok=True)
    data = [asdict(curve) for curve in curves]
    (settings.results / _DATA).write_text(json.dumps(data, indent=1) + "\n")
    return [*_rows(curves), *rows, *_draw_both(curves, settings.results)]


def _curves(
    settings: Settings,
    name: str,
    running: Callable[[Path], AbstractContextManager[System]],
    messages: int,
    batches: tuple[int, ...],
) -> list[_Curve]:
    with settings.workspace() as directory, running(directory) as system:
        curves = [
            _curve(
                "producer",
                f"{name}, batch {batch}" if len(batches) > 1 else name,
                messages,
                partial(system.publish, batch=batch),
            )
            for batch in batches
        ]
        return [*curves, _curve("consumer", name, messages, system.consume)]


def _curve(figure: str, label: str, messages: int, run: Callable[[Meter], None]) -> _Curve:
    meter = Meter(messages)
    run(meter)
    return _Curve(figure, label, meter.average, meter.points)


def _rows(curves: list[_Curve]) -> list[Row]:
    """The averages as rows, each of Hermes' lines beside each peer's."""
    rows = []
    for figure in ("producer", "consumer"):
        lines = [curve for curve in curves if curve.figure == figure]
        ours = [line for line in lines if line.system.startswith("Hermes")]
        peers: list[tuple[float | None, str]] = [
            (line.average / 1e3, line.system) for line in lines if line not in ours
        ]
        rows += [
            Row(f"{figure}, {line.system}", "k messages/s", line.average / 1e3, *peer)
            for line in ours
            for peer in peers or [(None, "")]
        ]
    return rows


def _draw_both(curves: list[_Curve], results: Path) -> list[Row]:
    """Draw the figures, or say in a row that matplotlib is missing."""
    try:
        for figure, verb in (("producer", "sent"), ("consumer", "consumed")):
            lines = [curve for curve in curves if curve.figure == figure]
            draw(
                results / f"section-5-{figure}.png",
                f"{figure.capitalize()} throughput, 200-byte messages",
                f"data {verb} (MB)",
                {line.system: (line.average, line.points) for line in lines},
            )
    except ImportError:
        return [skipped_row("figures", f"matplotlib is missing: {install_command('bench')}")]
    return []
