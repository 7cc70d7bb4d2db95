"""Dispatches requests: finds the page, checks permissions, turns errors into pages."""

import mimetypes
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from hermes import __version__
from hermes.config.broker import BrokerConfig
from hermes.console import (
    audit_pages,
    cluster_pages,
    group_forms,
    group_pages,
    message_forms,
    message_pages,
    mirror_pages,
    redrive_pages,
    replica_pages,
    schema_pages,
    security_pages,
    topic_forms,
    topic_pages,
)
from hermes.console.audit_views import AuditReader
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.cluster_sampler import ClusterSampler
from hermes.console.group_changes import OwnGroupChanger
from hermes.console.group_reader import GroupReader
from hermes.console.group_sources import KafkaGroupSource
from hermes.console.group_views import KAFKA, OWN
from hermes.console.kafka_group_changes import KafkaGroupChanger
from hermes.console.message_sender import MessageSender
from hermes.console.mirror_views import MirrorReader
from hermes.console.page_request import (
    InputError,
    NoSuchPageError,
    PagePermission,
    PageRequest,
    PageResponse,
    PageRoute,
)
from hermes.console.redrive import Redrives
from hermes.console.registry_records import RegistryRecords
from hermes.console.rendering import PageRenderer
from hermes.console.replica_changes import ReplicaChanger
from hermes.console.replica_views import ReplicaReader
from hermes.console.sessions import NO_ACTIONS, SESSION_COOKIE, Access
from hermes.console.sources import Sources
from hermes.console.topic_changes import TopicChanger
from hermes.console.topic_views import TopicReader
from hermes.console.viewer import NotAllowedError, Viewer
from hermes.errors import (
    BrokerError,
    GroupActiveError,
    HermesError,
    InvalidTopicError,
    UnknownTopicError,
)
from hermes.protocol import ErrorCode, error_for
from hermes.quoting import printable, quoted

_NAVIGATION: Final = (
    ("overview", "/", "Overview"),
    ("topics", "/topics", "Topics"),
    ("groups", "/groups", "Groups"),
    ("dead-letters", "/dead-letters", "Dead letters"),
    ("schemas", "/schemas", "Schemas"),
    ("brokers", "/brokers", "Brokers"),
    ("replicas", "/replicas", "Replicas"),
    ("mirrors", "/mirrors", "Mirrors"),
    ("audit", "/audit", "Audit"),
    ("security", "/security", "Security"),
)
_ROUTES: Final[Sequence[PageRoute]] = (
    *cluster_pages.ROUTES,
    *topic_pages.ROUTES,
    *topic_forms.ROUTES,
    *message_pages.ROUTES,
    *message_forms.ROUTES,
    *redrive_pages.ROUTES,
    *group_pages.ROUTES,
    *group_forms.ROUTES,
    *schema_pages.ROUTES,
    *replica_pages.ROUTES,
    *mirror_pages.ROUTES,
    *audit_pages.ROUTES,
    *security_pages.ROUTES,
)
_ABOUT_TOPICS: Final = (PagePermission.TOPIC, PagePermission.MESSAGES, PagePermission.PRODUCING)
_STATIC: Final = files("hermes.console") / "static"
_A_YEAR: Final = 365 * 86_400


class Console:
    """Answers requests for pages. Methods may block.

    `may_act`: whether the console may change anything, at this moment. `cluster` and `records` are
    closed with the console.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        access: Access,
        may_act: Callable[[], bool],
        records: RegistryRecords | None = None,
        broker_config: Callable[[], BrokerConfig] | None = None,
    ) -> None:
        self._access = access
        cache = ReadCache()
        groups = GroupReader(cluster, cache)
        topics = TopicReader(cluster, cache)
        renderer = PageRenderer(
            navigation=_NAVIGATION,
            cluster_name=cluster.name,
            version=__version__,
            static_key=_static_key(),
        )
        self.sources = Sources(
            cluster,
            cache,
            ClusterSampler(cluster, cache),
            topics,
            TopicChanger(cluster, cache),
            groups,
            GroupReader(cluster, cache, KafkaGroupSource()),
            MessageSender(cluster, cache, records),
            Redrives(cluster, topics),
            {
                OWN: OwnGroupChanger(cluster, cache, groups),
                KAFKA: KafkaGroupChanger(cluster, cache),
            },
            ReplicaReader(cluster, cache),
            ReplicaChanger(cluster, cache),
            MirrorReader(cluster, cache),
            AuditReader(cluster, cache),
            records,
            broker_config,
            renderer,
            may_act,
        )

    def answer(self, request: PageRequest) -> PageResponse:
        """Answer a request; an error becomes a page."""
        if request.path[:1] == ("static",):
            return self._static(request)
        given = request.cookies.get(SESSION_COOKIE)
        try:
            request, answer = self._access.check(request, self.sources)
        except HermesError as error:  # users can't be looked up now
            return self._problem(request, 503, "No answer", error)
        if answer is None:
            answer = self._serve(request)
        session = request.cookies[SESSION_COOKIE]
        if session == given:  # the browser may have a newer one by now: somebody has logged in
            return answer
        return replace(answer, cookies={SESSION_COOKIE: session, **answer.cookies})

    def close(self) -> None:
        self.sources.redrives.close()
        self.sources.audits.close()
        self.sources.cluster.close()
        if self.sources.records is not None:
            self.sources.records.close()

    def _serve(self, request: PageRequest) -> PageResponse:
        try:
            for route in _ROUTES:
                parts = route.match(request)
                if parts is not None:
                    if route.acts and not self.sources.may_act():
                        raise NotAllowedError(NO_ACTIONS)
                    _check(route.needs, request.viewer, *parts)
                    return route.serve(self.sources, request, *parts)
            raise NoSuchPageError("There is no such page.")
        except (NoSuchPageError, UnknownTopicError) as error:
            return self._problem(request, 404, "Not found", error)
        except NotAllowedError as error:
            return self._problem(request, 403, "Refused", error)
        except (InputError, InvalidTopicError, BrokerError, GroupActiveError) as error:
            return self._problem(request, 400, "That can't be done", error)
        except HermesError as error:
            return self._problem(request, 502, "No answer", error)

    def _problem(
        self, request: PageRequest, status: int, heading: str, error: HermesError
    ) -> PageResponse:
        section = request.path[0] if request.path else "overview"
        page = self.sources.page(request, section, "problem.html", heading=heading, text=str(error))
        return PageResponse(page.body, status)

    def _static(self, request: PageRequest) -> PageResponse:
        name = request.path[-1]
        content = (
            _static_files().get(name)
            if len(request.path) == 2 and request.method == "GET"
            else None
        )
        if content is None:
            return PageResponse(b"There is no such file.\n", 404, "text/plain; charset=utf-8")
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        cached = {"Cache-Control": f"public, max-age={_A_YEAR}, immutable"}
        return PageResponse(content, 200, f"{kind}; charset=utf-8", cached)


def _check(needs: PagePermission, viewer: Viewer, name: str = "", *_: str) -> None:
    """Check a viewer's permission for a page.

    Raises NotAllowedError: the viewer may know that it exists; UnknownTopicError,
    NoSuchPageError: to the viewer there is no such topic or group.
    """
    if needs is PagePermission.CLUSTER and not viewer.sees_cluster:
        raise viewer.refusal("describe the cluster")
    if needs in _ABOUT_TOPICS and not viewer.sees_topic(name):
        raise error_for(ErrorCode.UNKNOWN_TOPIC, f"topic {name!r}")
    if needs is PagePermission.MESSAGES and not viewer.reads_topic(name):
        raise viewer.refusal(f"consume from topic {quoted(name)}")
    if needs is PagePermission.PRODUCING and not viewer.produces_to(name):
        raise viewer.refusal(f"produce to topic {quoted(name)}")
    if needs is PagePermission.ADMIN and not viewer.administers:
        raise viewer.refusal("administer the cluster")
    if needs is PagePermission.SCHEMAS and not viewer.sees_schemas:
        raise viewer.refusal("see schemas")
    if needs in (PagePermission.GROUP, PagePermission.MOVING) and not viewer.sees_group(name):
        raise NoSuchPageError(f"There is no group {printable(name, 200)}.")
    if needs is PagePermission.MOVING and not viewer.moves_group(name):
        raise viewer.refusal(f"change the offsets of group {quoted(name)}")


@cache
def _static_files() -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in _STATIC.iterdir() if each.is_file()}


def _static_key() -> str:
    """Changes with the files, so that browsers may cache them for good."""
    contents = [content for _, content in sorted(_static_files().items())]
    return sha256(b"".join(contents)).hexdigest()[:12]
