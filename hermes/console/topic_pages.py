"""The pages about topics: the list, and one topic."""

from typing import Final

from hermes.console.group_views import TopicLag
from hermes.console.page_request import PagePermission, PageRequest, PageResponse, PageRoute
from hermes.console.replica_views import ReplicaRow
from hermes.console.sources import Sources
from hermes.console.topic_views import TopicView, topic_list
from hermes.console.visibility import visible_cluster, visible_lags
from hermes.errors import HermesError
from hermes.protocol import NOBODY
from hermes.quoting import shell_line


def _topics(sources: Sources, request: PageRequest) -> PageResponse:
    view = visible_cluster(sources.sampler.view(), request.viewer)
    rows = topic_list(
        view,
        request.text("q"),
        request.text("sort"),
        request.text("order"),
        request.number("page", 1),
    )
    return sources.page(request, "topics", "topics.html", list=rows, pause_ms=view.pause_ms)


def _topic(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    view = sources.topics.measured(name)
    commands = [
        shell_line(["hermes", "topics", "describe", "-b", str(address), "--", name])
        for address in view.addresses.values()
    ]
    groups: list[TopicLag] = []
    groups_error = ""
    try:
        found = [each for reader in sources.all_groups for each in reader.of_topic(name)]
        groups = visible_lags(found, request.viewer)
        groups.sort(key=lambda each: each.lag.order, reverse=True)
    except HermesError as error:
        groups_error = str(error)
    return sources.page(
        request,
        "topics",
        "topic.html",
        view=view,
        nobody=NOBODY,
        copied=_copied(sources, view),
        commands=commands,
        groups=groups,
        groups_error=groups_error,
        settings=sources.topics.settings(view),
    )


def _copied(sources: Sources, topic: TopicView) -> dict[int, ReplicaRow]:
    """Who has copies of its partitions, by number; none where they have one each."""
    if all(row.leader is None for row in topic.partitions):
        return {}
    try:
        return sources.replicas.view().of_topic(topic.name)
    except HermesError:  # who leads is known from brokers
        return {}


ROUTES: Final = (
    PageRoute("GET", ("topics",), _topics, PagePermission.OWN_CHOICE),
    PageRoute("GET", ("topics", "*"), _topic, PagePermission.TOPIC),
)
