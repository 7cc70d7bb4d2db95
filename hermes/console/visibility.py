"""Takes what a viewer may not describe out of what pages show.

It is in no list, count or sum, and its own page is the one for things that don't exist. The views
are made once for everybody; these are copies.
"""

from dataclasses import replace
from typing import Final

from hermes.console.audit_views import AuditView
from hermes.console.cluster_sampler import ClusterView
from hermes.console.group_views import GroupView, TopicLag
from hermes.console.replica_views import ReplicaView
from hermes.console.viewer import Viewer

_NOT_SHOWN: Final = "what may not be shown"


def visible_cluster(view: ClusterView, viewer: Viewer) -> ClusterView:
    """The visible part; sums over all topics only for those who see all."""
    topics = {name: row for name, row in view.topics.items() if viewer.sees_topic(name)}
    faults = view.faults if viewer.sees_cluster else ()
    if len(topics) == len(view.topics):
        return replace(view, faults=faults)
    brokers = tuple(
        broker
        if broker.metadata is None
        else replace(
            broker,
            metadata=replace(
                broker.metadata,
                topics=tuple(each for each in broker.metadata.topics if each.topic in topics),
            ),
        )
        for broker in view.brokers
    )
    rates = [row.rate for row in topics.values() if row.rate is not None]
    rate = sum(rates) if rates else None
    return replace(view, brokers=brokers, topics=topics, rate=rate, charts=(), faults=faults)


def visible_group(view: GroupView, viewer: Viewer) -> GroupView:
    names = {row.topic for row in view.rows}
    for member in view.members:
        names |= member.topics
    hidden = {name for name in names if not viewer.sees_topic(name)}
    is_partial = bool(hidden) or any(
        member.has_filter and not viewer.sees_cluster for member in view.members
    )
    if not is_partial:
        return view
    return replace(
        view,
        members=tuple(
            replace(
                member,
                wants=_NOT_SHOWN if member.has_filter or member.topics & hidden else member.wants,
                owns=sum(
                    row.member == member.name and row.topic not in hidden for row in view.rows
                ),
            )
            for member in view.members
        ),
        rows=tuple(row for row in view.rows if row.topic not in hidden),
        charts=(),
        faults=(),
    )


def visible_lags(lags: list[TopicLag], viewer: Viewer) -> list[TopicLag]:
    return [each for each in lags if viewer.sees_group(each.group)]


def visible_replicas(view: ReplicaView, viewer: Viewer) -> ReplicaView:
    return ReplicaView(tuple(row for row in view.rows if viewer.sees_topic(row.topic)))


def visible_audit(view: AuditView, viewer: Viewer) -> AuditView:
    if viewer.rights is None:
        return view
    rows = tuple(row for row in view.rows if viewer.sees_topic(row.topic))
    return replace(
        view,
        rows=rows,
        windows=tuple(each for each in view.windows if viewer.sees_topic(each.topic)),
        hidden=view.hidden if len(rows) == len(view.rows) else 0,
        losses=tuple(each for each in view.losses if viewer.sees_topic(each.topic)),
        totals=tuple(each for each in view.totals if viewer.sees_topic(each.topic)),
        removed=tuple(each for each in view.removed if viewer.sees_topic(each[1])),
        unavailable=view.unavailable if viewer.sees_cluster else (),
    )
