"""Drawing curves of throughput with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.system import Point

__all__ = ["draw"]


#: The same system has the same colour in every figure.
_COLOURS = {"Hermes": "tab:blue", "RabbitMQ": "tab:orange", "ActiveMQ": "tab:green"}


def draw(
    path: Path, title: str, x_label: str, curves: Mapping[str, tuple[float, Sequence[Point]]]
) -> None:
    """Draw throughput over data sent.

    The scale is logarithmic, since the systems lie orders of magnitude apart. A curve that ends
    early, because fewer messages were measured, goes on as a dotted line at its average.

    Args:
        path: the PNG to write.
        title: stands above.
        x_label: stands below.
        curves: for each label, which begins with the system's name, the average in messages per
            second and the points.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(8, 5.5), dpi=120)
    right = max(points[-1].megabytes for _average, points in curves.values())
    marks = iter("os^vD<>")
    for label, (average, points) in curves.items():
        x = [point.megabytes for point in points]
        y = [point.messages_per_second for point in points]
        colour = _COLOURS.get(label.partition(",")[0])
        text = f"{label}: {_short(average)}/s on average"
        axes.plot(x, y, marker=next(marks), markersize=4, color=colour, label=text)
        if x[-1] < right:
            axes.plot([x[-1], right], [average, average], ":", color=colour)
    axes.set(title=title, xlabel=x_label, ylabel="messages per second", yscale="log")
    axes.set_xlim(0, right * 1.02)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: _short(value)))
    axes.grid(visible=True, which="major", alpha=0.4)
    axes.grid(visible=True, which="minor", alpha=0.15)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2, frameon=False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _short(value: float) -> str:
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"
