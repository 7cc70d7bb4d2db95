"""The overview page's data: problems first, then rates and sizes, then the busiest topics."""

from dataclasses import dataclass
from typing import Final

from hermes.console.cluster_sampler import ClusterView, TopicRow

_BUSIEST: Final = 8


@dataclass(frozen=True, slots=True)
class Concern:
    """Something that needs attention.

    Attributes:
        level: `bad` for what is broken, `warn` for what may become so.
        text: what it is and what to do about it.
        link: the page that shows more; empty for none.
    """

    level: str
    text: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class OverviewView:
    """The overview.

    Attributes:
        concerns: the worst first.
        busiest: the topics with the highest rates; the largest while no rate is known.
        groups: how many there are; None where that isn't known.
    """

    cluster: ClusterView
    concerns: tuple[Concern, ...]
    busiest: tuple[TopicRow, ...]
    groups: int | None


def overview(
    cluster: ClusterView,
    groups: int | None,
    coordination_error: str,
    others: list[Concern],
    *,
    shows_brokers: bool = True,
) -> OverviewView:
    """Put the overview together.

    Args:
        groups: how many there are; None where that isn't known.
        coordination_error: why groups can't be shown; empty when they can.
        shows_brokers: whether brokers' problems are shown.
    """
    concerns = [
        Concern("bad", f"Broker {broker.address} does not answer: {broker.error}", "/brokers")
        for broker in cluster.brokers
        if broker.metadata is None and shows_brokers
    ]
    if coordination_error:
        concerns.append(Concern("warn", f"Groups can't be shown: {coordination_error}", "/groups"))
    concerns += [Concern("warn", fault) for fault in cluster.faults]
    concerns += others
    concerns.sort(key=lambda each: each.level != "bad")
    topics = cluster.topics.values()
    busiest = sorted(topics, key=lambda row: (row.rate or 0.0, row.size_bytes), reverse=True)
    return OverviewView(cluster, tuple(concerns), tuple(busiest[:_BUSIEST]), groups)
