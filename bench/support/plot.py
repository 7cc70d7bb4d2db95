"""Drawing curves of throughput with matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.peers.system import Point

__all__ = ["draw"]


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
        curves: for each label the average in messages per second, and the points.

    Raises:
        ImportError: matplotlib is not installed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(figsize=(8, 5), dpi=120)
    right = max(points[-1].megabytes for _average, points in curves.values())
    for label, (average, points) in curves.items():
        x = [point.megabytes for point in points]
        y = [point.messages_per_second for point in points]
        (line,) = axes.plot(x, y, marker="o", markersize=3, label=f"{label}: {_short(average)}/s")
        if x[-1] < right:
            axes.plot([x[-1], right], [average, average], ":", color=line.get_color())
    axes.set(
        title=title, xlabel=x_label, ylabel="messages per second", yscale="log", xlim=(0, None)
    )
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _position: _short(value)))
    axes.grid(visible=True, which="both", alpha=0.25)
    axes.legend(title="average", loc="best")
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


def _short(value: float) -> str:
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value / 1e3:.3g} k"
