"""Who looks at a page, and what access rules let them see."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, TypeVar

from hermes.config.topic import SCHEMAS_TOPIC
from hermes.errors import HermesError
from hermes.quoting import quoted
from hermes.security import ANONYMOUS
from hermes.security.access import CLUSTER, Operation, Resource, Rights

_T = TypeVar("_T")


class NotAllowedError(HermesError):
    """An access rule is missing; the text says who may not do what."""


@dataclass(frozen=True, slots=True)
class Viewer:
    """`rights`: None where everybody may do everything.

    `is_current`: whether the session still lasts; asked while a long page is sent.
    """

    principal: str = ANONYMOUS
    rights: Rights | None = None
    is_current: Callable[[], bool] = lambda: True

    def may(self, operation: Operation, resource: Resource) -> bool:
        return self.rights is None or self.rights(self.principal, operation, resource)

    def sees_topic(self, name: str) -> bool:
        return self.may(Operation.DESCRIBE, Resource.topic(name))

    def reads_topic(self, name: str) -> bool:
        return self.may(Operation.CONSUME, Resource.topic(name))

    def sees_group(self, name: str) -> bool:
        return self.may(Operation.DESCRIBE, Resource.group(name))

    def moves_group(self, name: str) -> bool:
        return self.may(Operation.GROUP, Resource.group(name))

    def creates_topic(self, name: str) -> bool:
        return self.may(Operation.CREATE, Resource.topic(name))

    def alters_topic(self, name: str) -> bool:
        return self.may(Operation.ADMIN, Resource.topic(name))

    def deletes_topic(self, name: str) -> bool:
        return self.may(Operation.DELETE, Resource.topic(name))

    def produces_to(self, name: str) -> bool:
        return self.may(Operation.PRODUCE, Resource.topic(name))

    @property
    def sees_schemas(self) -> bool:
        return self.sees_topic(SCHEMAS_TOPIC)

    @property
    def sees_cluster(self) -> bool:
        """Whether the viewer may see what belongs to no topic and no group."""
        return self.may(Operation.DESCRIBE, CLUSTER)

    @property
    def administers(self) -> bool:
        """Whether the viewer may see brokers' settings and logs."""
        return self.may(Operation.ADMIN, CLUSTER)

    def refusal(self, action: str) -> NotAllowedError:
        who = quoted(self.principal)
        return NotAllowedError(f"{who} may not {action}: an access rule has to allow it.")

    def seeing(self, topic: str, found: Iterable[_T]) -> Iterator[_T]:
        """Pass on messages of a topic for as long as the viewer may see them."""
        for each in found:
            if not (self.is_current() and self.reads_topic(topic)):
                return
            yield each


#: Whoever it is, where everybody may do everything.
ANYBODY: Final = Viewer()
