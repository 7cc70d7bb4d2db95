"""What pages read from, and what they are rendered with: made once for a console."""

from collections.abc import Callable
from dataclasses import dataclass

from hermes.console.asking import Answer, Ask
from hermes.console.audits import AuditReader
from hermes.console.cluster import Cluster
from hermes.console.groups import GroupReader
from hermes.console.mirrors import MirrorReader
from hermes.console.recent import Recent
from hermes.console.records import Records
from hermes.console.rendering import Renderer
from hermes.console.resets import GroupResetter
from hermes.console.sampling import Sampler
from hermes.console.topics import TopicReader
from hermes.security import ANONYMOUS


@dataclass(frozen=True, slots=True)
class Sources:
    """Passed to the function of every route.

    Attributes:
        cluster: the brokers and the coordination.
        recent: remembers for a second what was read.
        sampler: the whole cluster.
        topics: single topics.
        groups: consumer groups of Hermes' own clients.
        kafka_groups: those of Kafka's.
        resets: changes their offsets.
        mirrors: what mirrors tell.
        audits: what the tiers of the audit report.
        records: reads messages with the schemas of a registry; None where there is none.
        renderer: the templates.
        may_act: whether anything may be changed from here, at this moment.
    """

    cluster: Cluster
    recent: Recent
    sampler: Sampler
    topics: TopicReader
    groups: GroupReader
    kafka_groups: GroupReader
    resets: GroupResetter
    mirrors: MirrorReader
    audits: AuditReader
    records: Records | None
    renderer: Renderer
    may_act: Callable[[], bool]

    @property
    def all_groups(self) -> tuple[GroupReader, ...]:
        """The groups of both kinds."""
        return self.groups, self.kafka_groups

    def page(self, ask: Ask, section: str, template: str, **values: object) -> Answer:
        """Answer with a page.

        Args:
            ask: the request.
            section: the key of the entry in the navigation that the page belongs to.
            template: the file's name.
            values: what it shows.
        """
        shared = self.shared(ask, section)
        return Answer(self.renderer.page(template, **shared, **values))

    def shared(self, ask: Ask, section: str) -> dict[str, object]:
        """What base.html needs of a request."""
        return {
            "section": section,
            "here": ask.here,
            "theme": ask.theme,
            "csrf": ask.csrf,
            "may_log_out": ask.may_log_out,
            "user": "" if ask.viewer.principal == ANONYMOUS else ask.viewer.principal,
            "allows_actions": self.may_act(),
        }
