"""The pages about the whole cluster: the overview and the brokers."""

from collections.abc import Iterator
from typing import Final
from urllib.parse import quote

from hermes.client import SimpleConsumer
from hermes.console.cluster_client import BrokerState
from hermes.console.group_reader import GroupReader
from hermes.console.group_views import group_path
from hermes.console.overview import Concern, overview
from hermes.console.page_request import (
    THEME_COOKIE,
    InputError,
    NoSuchPageError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
    redirect,
)
from hermes.console.replica_views import ReplicaView
from hermes.console.sources import Sources
from hermes.console.viewer import Viewer
from hermes.console.visibility import visible_cluster, visible_replicas
from hermes.errors import HermesError
from hermes.protocol import (
    DescribeSettingsRequest,
    LogLine,
    RecentLogLinesRequest,
    SettingDescription,
)

_LEVELS: Final = ("debug", "info", "warn", "error", "critical")
_LINES: Final = 300
# Of one mirror.
_MOST: Final = 5


def _overview(sources: Sources, request: PageRequest) -> PageResponse:
    cluster, viewer = sources.sampler.view(), request.viewer
    groups, error = None, sources.cluster.coordination_error()
    concerns: list[Concern] = []
    if not error:
        try:
            for reader in sources.all_groups:
                groups = (groups or 0) + sum(map(viewer.sees_group, reader.names()))
                concerns += _group_concerns(reader, viewer)
            for level, text, shown in _copies(sources, request).problems():
                link = f"/replicas?show={shown}" if viewer.sees_cluster else ""
                concerns.append(Concern(level, text[0].upper() + text[1:], link))
            for mirror in sources.mirrors.view().mirrors if viewer.sees_cluster else ():
                concerns += [Concern("warn", text, "/mirrors") for text in mirror.problems[:_MOST]]
        except HermesError as failure:
            error = str(failure)
    for topic, text in sources.topics.problems(cluster.brokers, list(cluster.topics)):
        if viewer.sees_topic(topic):
            link = f"/topics/{quote(topic, safe='')}"
            concerns.append(Concern("bad", f"{topic} {text}", link))
    seen = visible_cluster(cluster, viewer)
    view = overview(seen, groups, error, concerns, shows_brokers=viewer.sees_cluster)
    return sources.page(request, "overview", "overview.html", view=view)


def _group_concerns(reader: GroupReader, viewer: Viewer) -> Iterator[Concern]:
    for name, text, topics in reader.concerns():
        if viewer.sees_group(name) and all(map(viewer.sees_topic, topics)):
            yield Concern("warn", f"Group {name}: {text}", group_path(name, reader.kind))


def _brokers(sources: Sources, request: PageRequest) -> PageResponse:
    view = visible_cluster(sources.sampler.view(), request.viewer)
    copies = _copies(sources, request).by_broker()
    return sources.page(request, "brokers", "brokers.html", view=view, copies=copies)


def _copies(sources: Sources, request: PageRequest) -> ReplicaView:
    try:
        return visible_replicas(sources.replicas.view(), request.viewer)
    except HermesError:  # without coordination there are none
        return ReplicaView(())


def _broker(sources: Sources, request: PageRequest, name: str) -> PageResponse:
    brokers = visible_cluster(sources.sampler.view(), request.viewer).brokers
    broker = next((each for each in brokers if str(each.broker_id) == name), None)
    if broker is None:
        raise NoSuchPageError(f"There is no broker {name[:20]}.")
    level = request.text("level", "info")
    if level not in _LEVELS:
        raise InputError(f"level: expected one of {', '.join(_LEVELS)}")
    settings: list[SettingDescription] = []
    lines: list[LogLine] | None = None
    errors: list[str] = []
    if request.viewer.administers:
        settings, lines, errors = sources.cache.get(
            ("broker", broker.broker_id), lambda: _only_its_own(sources, broker)
        )
    wanted = set(_LEVELS[_LEVELS.index(level) :])
    return sources.page(
        request,
        "brokers",
        "broker.html",
        broker=broker,
        copies=_copies(sources, request).by_broker().get(broker.broker_id),
        settings=settings,
        lines=None if lines is None else [each for each in lines if each.level in wanted],
        levels=_LEVELS,
        level=level,
        errors=errors,
    )


def _only_its_own(
    sources: Sources, broker: BrokerState
) -> tuple[list[SettingDescription], list[LogLine] | None, list[str]]:
    settings: list[SettingDescription] = []
    lines: list[LogLine] | None = None
    try:
        if broker.supports(DescribeSettingsRequest.TYPE):
            settings = sources.cluster.ask(broker.address, SimpleConsumer.describe_settings)
        if broker.supports(RecentLogLinesRequest.TYPE):
            read = sources.cluster.ask(
                broker.address, lambda consumer: consumer.recent_log_lines(None, _LINES)
            )
            lines = list(reversed(read.lines))
    except HermesError as error:
        return settings, lines, [str(error)]
    return settings, lines, []


def _theme(_: Sources, request: PageRequest) -> PageResponse:
    """Remember the colours. A harmless preference, so a GET may set it."""
    wanted = request.text("to")
    cookie = wanted if wanted in ("light", "dark") else ""
    return redirect(request.text("back", "/"), cookies={THEME_COOKIE: cookie})


ROUTES: Final = (
    PageRoute("GET", (), _overview, PagePermission.OWN_CHOICE),
    PageRoute("GET", ("brokers",), _brokers, PagePermission.CLUSTER),
    PageRoute("GET", ("brokers", "*"), _broker, PagePermission.CLUSTER),
    PageRoute("GET", ("theme",), _theme, PagePermission.OWN_CHOICE),
)
