"""The pages about topics: the list, and one topic."""

from typing import Final

from hermes.console.asking import PageRequest, PageResponse, PageRoute, Permission
from hermes.console.group_views import TopicLag
from hermes.console.hiding import seen_cluster, seen_lags
from hermes.console.sources import Sources
from hermes.console.topics import topic_list
from hermes.errors import HermesError
from hermes.quoting import shell_line


def _topics(sources: Sources, ask: PageRequest) -> PageResponse:
    view = seen_cluster(sources.sampler.view(), ask.viewer)
    rows = topic_list(
        view, ask.text("q"), ask.text("sort"), ask.text("order"), ask.number("page", 1)
    )
    return sources.page(ask, "topics", "topics.html", list=rows, pause_ms=view.pause_ms)


def _topic(sources: Sources, ask: PageRequest, name: str) -> PageResponse:
    view = sources.topics.measured(name)
    commands = [
        shell_line(["hermes", "topics", "describe", "-b", str(address), "--", name])
        for address in view.addresses.values()
    ]
    groups: list[TopicLag] = []
    groups_error = ""
    try:
        found = [each for reader in sources.all_groups for each in reader.of_topic(name)]
        groups = seen_lags(found, ask.viewer)
        groups.sort(key=lambda each: each.lag.order, reverse=True)
    except HermesError as error:
        groups_error = str(error)
    return sources.page(
        ask,
        "topics",
        "topic.html",
        view=view,
        commands=commands,
        groups=groups,
        groups_error=groups_error,
        settings=sources.topics.settings(view),
    )


ROUTES: Final = (
    PageRoute("GET", ("topics",), _topics, Permission.OWN_CHOICE),
    PageRoute("GET", ("topics", "*"), _topic, Permission.TOPIC),
)
