"""Metrics of listeners with TLS."""

from collections.abc import Iterator, Sequence
from typing import Any

from hermes.listening.ports import Listener

__all__ = ["tls_values"]


def tls_values(listeners: Sequence[Listener]) -> Iterator[tuple[str, list[tuple[Any, Any]]]]:
    """Read the metrics of open listeners with TLS.

    Yields:
        The name of a family, and the labels and value of each of its series.
    """
    ends, over, under_way = [], [], []
    for listener in listeners:
        assert listener.tls is not None
        assert listener.handshakes is not None
        label = listener.label
        ends.append(((label,), listener.tls.end_seconds))
        under_way.append(((label,), len(listener.handshakes)))
        over += [((label, how), count) for how, count in listener.handshakes.outcomes.items()]
    yield "hermes_tls_certificate_end_timestamp_seconds", ends
    yield "hermes_tls_handshakes_total", over
    yield "hermes_tls_handshakes_in_progress", under_way
