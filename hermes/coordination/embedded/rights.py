"""Who a client is, and what it may do: by the broker's access rules, and by the nodes' ACLs.

Where there are rules, they alone decide over the nodes that brokers and groups share
(hermes/coordination/node_rules.py); everything else takes `admin`, and its ACL must allow it, too.
Without rules the ACLs decide, as in any ZooKeeper; but the users of brokers are for those who have
proved who they are. The broker's own client may do all.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from hermes.coordination.embedded.access_control import is_permitted, is_verified
from hermes.coordination.embedded.jute_records import Acl, AclIdentity, AclPermission
from hermes.coordination.embedded.visible_names import VisibleNames
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode
from hermes.coordination.kafka_topics import KAFKA_USERS
from hermes.coordination.node_rules import FILTERED, is_ruled, need_to_read, need_to_write
from hermes.security import ANONYMOUS, INTERNAL
from hermes.security.access import Operation, Resource


class Rules(Protocol):
    """The access rules of now. Asked for every request, so they must answer at once."""

    @property
    def is_on(self) -> bool: ...

    def may(self, principal: str, operation: Operation, resource: Resource) -> bool: ...

    def stamp(self, principal: str) -> object:
        """Equal as long as what somebody may do stays as it is."""


@dataclass(slots=True, eq=False)
class Rights:
    """One client's.

    Attributes:
        identities: what it has proved to the ACLs: its address, users and passwords.
        principal: who it is to the rules.
        rules: None: there never are any.
        shown: remembers for all clients what the rules say about long lists.
        is_anybody: whether its listener asks nobody for proof, so that it is as good as whoever
            was verified while one did. Else nobody could use what those have left.
    """

    identities: dict[AclIdentity, None] = field(default_factory=dict)
    principal: str = ANONYMOUS
    rules: Rules | None = None
    shown: VisibleNames | None = None
    is_anybody: bool = False

    @property
    def is_own(self) -> bool:
        return self.principal == INTERNAL

    @property
    def _binding(self) -> Rules | None:
        rules = self.rules
        if rules is None or not rules.is_on or self.principal == INTERNAL:
            return None
        return rules

    def may_read(self, path: str) -> bool:
        rules = self._binding
        if rules is None:
            return self._may_without_rules(path)
        need = need_to_read(path)
        return need is None or rules.may(self.principal, *need)

    def may_write(self, path: str) -> bool:
        rules = self._binding
        if rules is None:
            return self._may_without_rules(path)
        return rules.may(self.principal, *need_to_write(path))

    def _may_without_rules(self, path: str) -> bool:
        return path != KAFKA_USERS or self.principal != ANONYMOUS

    def check_read(self, path: str) -> None:
        """Refuse, with NO_AUTH, to report on a node, or on its absence, before it is looked up."""
        if not self.may_read(path):
            raise RequestRefusedError(ZooKeeperCode.NO_AUTH, path)

    def check_write(self, path: str) -> None:
        """Refuse a change, with NO_AUTH, before anything is looked up."""
        if not self.may_write(path):
            raise RequestRefusedError(ZooKeeperCode.NO_AUTH, path)

    def is_permitted(self, path: str, acl: Iterable[Acl], permission: AclPermission) -> bool:
        """Whether an ACL allows something: any one of the bits suffices.

        Args:
            path: the node that it is done to; of CREATE and DELETE it isn't the one with the ACL.
            acl: what must allow it, unless the rules decide.
        """
        if self.is_own or is_permitted(acl, permission, self.identities) or self._is_ruled(path):
            return True
        return self.is_anybody and any(
            entry.permissions & permission and is_verified(entry.identity) for entry in acl
        )

    def check_permission(self, path: str, acl: Iterable[Acl], permission: AclPermission) -> None:
        if not self.is_permitted(path, acl, permission):
            raise RequestRefusedError(ZooKeeperCode.NO_AUTH, f"{permission!r} is not given")

    def is_filtered(self, path: str) -> bool:
        """Whether the list of a node's children shows only those that it may read."""
        return path in FILTERED and self._binding is not None

    def names_of(self, path: str, children: Mapping[str, bytes]) -> Collection[bytes]:
        rules = self._binding
        if rules is None or path not in FILTERED:
            return children.values()
        principal = self.principal

        def may(name: str) -> bool:
            need = need_to_read(f"{path}/{name}")
            return need is None or rules.may(principal, *need)

        shown = VisibleNames(rules.stamp) if self.shown is None else self.shown
        return shown.select(principal, path, children, may)

    def _is_ruled(self, path: str) -> bool:
        return self._binding is not None and is_ruled(path)
