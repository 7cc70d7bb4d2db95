"""What pages read from and are rendered with; one for a console."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hermes.config.broker import BrokerConfig
from hermes.console.audit_views import AuditReader
from hermes.console.cache import ReadCache
from hermes.console.cluster_client import ClusterClient
from hermes.console.cluster_sampler import ClusterSampler
from hermes.console.forms import Form
from hermes.console.group_changes import GroupChanger
from hermes.console.group_reader import GroupReader
from hermes.console.message_sender import MessageSender
from hermes.console.mirror_views import MirrorReader
from hermes.console.page_request import PageRequest, PageResponse
from hermes.console.redrive import Redrives
from hermes.console.registry_records import RegistryRecords
from hermes.console.rendering import PageRenderer
from hermes.console.replica_changes import ReplicaChanger
from hermes.console.replica_views import ReplicaReader
from hermes.console.topic_changes import TopicChanger
from hermes.console.topic_views import TopicReader
from hermes.console.viewer import Viewer
from hermes.security import ANONYMOUS

#: What a page that comes after a change says of it.
_DONE: Final = {
    "created": "The topic was created.",
    "altered": "The topic’s settings were changed.",  # noqa: RUF001
    "grown": "The topic has more partitions now.",
    "deleted": "The topic was deleted.",
    "moved": "The group’s offsets were changed.",  # noqa: RUF001
    "group-deleted": "The group was deleted.",
    "replicas": "It has begun: this page shows how far it is.",
    "elected": "Leaders were elected.",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Passed to the function of every route.

    Attributes:
        groups: groups of Hermes' own clients.
        kafka_groups: those of Kafka's.
        group_changes: by kind.
        records: None where there is no registry.
        broker_config: the settings in force of the broker whose console it is; None for one that
            stands alone.
        may_act: whether the console may change anything, at this moment.
    """

    cluster: ClusterClient
    cache: ReadCache
    sampler: ClusterSampler
    topics: TopicReader
    topic_changes: TopicChanger
    groups: GroupReader
    kafka_groups: GroupReader
    sender: MessageSender
    redrives: Redrives
    group_changes: Mapping[str, GroupChanger]
    replicas: ReplicaReader
    replica_changes: ReplicaChanger
    mirrors: MirrorReader
    audits: AuditReader
    records: RegistryRecords | None
    broker_config: Callable[[], BrokerConfig] | None
    renderer: PageRenderer
    may_act: Callable[[], bool]

    @property
    def all_groups(self) -> tuple[GroupReader, ...]:
        return self.groups, self.kafka_groups

    def records_for(self, viewer: Viewer) -> RegistryRecords | None:
        """The registry, unless the viewer may not see its schemas."""
        return self.records if self.records is not None and viewer.sees_schemas else None

    def page(
        self, request: PageRequest, section: str, template: str, **values: object
    ) -> PageResponse:
        shared = self.shared(request, section)
        return PageResponse(self.renderer.page(template, **shared, **values))

    def form_page(
        self, request: PageRequest, section: str, template: str, form: Form, **values: object
    ) -> PageResponse:
        page = self.page(request, section, template, form=form, **values)
        return replace(page, status=400) if form.errors else page

    def shared(self, request: PageRequest, section: str) -> dict[str, object]:
        return {
            "section": section,
            "here": request.here,
            "theme": request.theme,
            "csrf": request.csrf,
            "may_log_out": request.may_log_out,
            "user": "" if request.viewer.principal == ANONYMOUS else request.viewer.principal,
            "allows_actions": self.may_act(),
            "viewer": request.viewer,
            "shows_security": self.broker_config is not None and request.viewer.administers,
            "shows_schemas": self.records_for(request.viewer) is not None,
            "done": _DONE.get(request.query.get("done", ""), ""),
        }
