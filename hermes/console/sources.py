"""What pages read from, and what they are rendered with: made once for a console."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hermes.config import BrokerConfig
from hermes.console.asking import PageRequest, PageResponse
from hermes.console.audits import AuditReader
from hermes.console.cluster import ClusterClient
from hermes.console.forms import Form
from hermes.console.groups import GroupReader
from hermes.console.mirrors import MirrorReader
from hermes.console.producing import MessageSender
from hermes.console.recent import ReadCache
from hermes.console.records import RegistryRecords
from hermes.console.rendering import PageRenderer
from hermes.console.resets import GroupChanger
from hermes.console.sampling import ClusterSampler
from hermes.console.topic_changes import TopicChanger
from hermes.console.topics import TopicReader
from hermes.security import ANONYMOUS

#: What a page that comes after a change says of it.
_DONE: Final = {
    "created": "The topic was created.",
    "altered": "The topic’s settings were changed.",  # noqa: RUF001
    "grown": "The topic has more partitions now.",
    "deleted": "The topic was deleted.",
    "moved": "The group’s offsets were changed.",  # noqa: RUF001
    "group-deleted": "The group was deleted.",
}


@dataclass(frozen=True, slots=True)
class Sources:
    """Passed to the function of every route.

    Attributes:
        cluster: the brokers and the coordination.
        recent: remembers for a second what was read.
        sampler: the whole cluster.
        topics: single topics.
        topic_changes: creates, alters and deletes them.
        groups: consumer groups of Hermes' own clients.
        kafka_groups: those of Kafka's.
        sender: sends single messages.
        group_changes: moves and deletes groups, by their kind.
        mirrors: what mirrors tell.
        audits: what the tiers of the audit report.
        records: reads messages with the schemas of a registry; None where there is none.
        broker_config: the settings in force of the broker that this is the console of; None for
            one that stands alone.
        renderer: the templates.
        may_act: whether anything may be changed from here, at this moment.
    """

    cluster: ClusterClient
    recent: ReadCache
    sampler: ClusterSampler
    topics: TopicReader
    topic_changes: TopicChanger
    groups: GroupReader
    kafka_groups: GroupReader
    sender: MessageSender
    group_changes: Mapping[str, GroupChanger]
    mirrors: MirrorReader
    audits: AuditReader
    records: RegistryRecords | None
    broker_config: Callable[[], BrokerConfig] | None
    renderer: PageRenderer
    may_act: Callable[[], bool]

    @property
    def all_groups(self) -> tuple[GroupReader, ...]:
        """The groups of both kinds."""
        return self.groups, self.kafka_groups

    def page(self, ask: PageRequest, section: str, template: str, **values: object) -> PageResponse:
        """Answer with a page.

        Args:
            ask: the request.
            section: the key of the entry in the navigation that the page belongs to.
            template: the file's name.
            values: what it shows.
        """
        shared = self.shared(ask, section)
        return PageResponse(self.renderer.page(template, **shared, **values))

    def form_page(
        self, ask: PageRequest, section: str, template: str, form: Form, **values: object
    ) -> PageResponse:
        """Answer with a page whose form is as it was sent, with what is wrong with it, if anything.

        Args:
            ask: the request.
            section: as for `page`, and so are the next and the last.
            template: the file's name.
            form: what the form holds.
            values: what else it shows.
        """
        page = self.page(ask, section, template, form=form, **values)
        return replace(page, status=400) if form.errors else page

    def shared(self, ask: PageRequest, section: str) -> dict[str, object]:
        """What base.html needs of a request."""
        return {
            "section": section,
            "here": ask.here,
            "theme": ask.theme,
            "csrf": ask.csrf,
            "may_log_out": ask.may_log_out,
            "user": "" if ask.viewer.principal == ANONYMOUS else ask.viewer.principal,
            "allows_actions": self.may_act(),
            "viewer": ask.viewer,
            "shows_security": self.broker_config is not None and ask.viewer.administers,
            "shows_schemas": self.records is not None and ask.viewer.sees_schemas,
            "done": _DONE.get(ask.query.get("done", ""), ""),
        }
