"""Kafka's ACLs, as its clients make, show and delete them, and the access rules that they come to.

    Kafka                                  rules
    READ, WRITE of a topic                 consume, produce
    CREATE, DELETE of a topic              create, delete
    DESCRIBE, DESCRIBE_CONFIGS of a topic  describe
    ALTER, ALTER_CONFIGS of a topic        admin
    READ, DELETE of a group                group
    WRITE, DESCRIBE of a transactional id  produce, describe
    DESCRIBE of a group, of the cluster    describe
    ALTER of the cluster                   admin
    CLUSTER_ACTION of the cluster          replicate
    CREATE of the cluster                  create, of every topic
    IDEMPOTENT_WRITE of the cluster        nothing: who may do anything may do that

Two that are one operation here are granted together: what a client may do is never less than what
it was told, and `describe` is all that any of them adds for READ or WRITE. An ACL that would need
more than rules have is refused: hosts, and kinds of resources that there are none of.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from hermes.quoting import quoted
from hermes.security.access import LONGEST_NAME, OPERATIONS_ON, AccessRule, Operation, ResourceKind
from hermes.security.principals import ANONYMOUS, INTERNAL

#: What filters have for anything, of kinds, patterns, operations and permissions alike.
ANY: Final = 1

#: In a filter: whatever covers the name.
MATCH: Final = 2

CLUSTER_NAME: Final = "kafka-cluster"

EVERYTHING: Final = "*"

_USER, _GROUP, _NOBODY = "User:", "Group:", "ANONYMOUS"
_OUR_GROUP: Final = "group:"


class AclKind(IntEnum):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class AclPattern(IntEnum):
    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One ACL, in Kafka's numbers and words."""

    kind: int
    name: str
    pattern: int
    principal: str
    host: str
    operation: int
    permission: int


_RULE_KINDS: Final = {
    AclKind.TOPIC: ResourceKind.TOPIC,
    AclKind.GROUP: ResourceKind.GROUP,
    AclKind.TRANSACTIONAL_ID: ResourceKind.TRANSACTION,
    AclKind.CLUSTER: ResourceKind.CLUSTER,
}

_A = AclOperation
_O = Operation

#: By kind: what is shown of our operations; the first is also how each is made.
_SHOWN: Final[Mapping[AclKind, Mapping[Operation, Sequence[AclOperation]]]] = {
    AclKind.TOPIC: {
        _O.CONSUME: (_A.READ,),
        _O.PRODUCE: (_A.WRITE,),
        _O.CREATE: (_A.CREATE,),
        _O.DELETE: (_A.DELETE,),
        _O.DESCRIBE: (_A.DESCRIBE, _A.DESCRIBE_CONFIGS),
        _O.ADMIN: (_A.ALTER, _A.ALTER_CONFIGS),
    },
    AclKind.GROUP: {_O.GROUP: (_A.READ, _A.DELETE), _O.DESCRIBE: (_A.DESCRIBE,)},
    AclKind.TRANSACTIONAL_ID: {_O.PRODUCE: (_A.WRITE,), _O.DESCRIBE: (_A.DESCRIBE,)},
    AclKind.CLUSTER: {
        _O.ADMIN: (_A.ALTER,),
        _O.DESCRIBE: (_A.DESCRIBE,),
        _O.REPLICATE: (_A.CLUSTER_ACTION,),
    },
}

#: The other way around.
_MEANT: Final[Mapping[AclKind, Mapping[AclOperation, Operation]]] = {
    kind: {theirs: ours for ours, shown in table.items() for theirs in shown}
    for kind, table in _SHOWN.items()
}


# -- to rules -----------------------------------------------------------------------------------


def rules_of(acl: Acl) -> Sequence[AccessRule]:
    """The rules that an ACL comes to.

    Raises ValueError: access rules can't say that; the text says why.
    """
    principal = _rule_principal(acl.principal)
    if acl.host != EVERYTHING:
        raise ValueError(f"access rules hold for all hosts: expected '*', got {quoted(acl.host)}")
    if len(acl.name) > LONGEST_NAME:
        raise ValueError(f"a name has up to {LONGEST_NAME} characters")
    if not acl.name:
        raise ValueError("an empty name matches nothing")
    kind, allow = AclKind(acl.kind), AclPermission(acl.permission) is AclPermission.ALLOW
    if kind not in _SHOWN:
        raise ValueError(f"there is nothing of the kind {kind.name} here")
    operation = AclOperation(acl.operation)
    if kind is AclKind.CLUSTER:
        return _cluster_rules(principal, operation, allow)
    if operation is AclOperation.ALL:
        operations = OPERATIONS_ON[_RULE_KINDS[kind]]
    else:
        operations = frozenset((_meant(kind, operation),))
    pattern = _rule_pattern(acl)
    return (AccessRule.of(_RULE_KINDS[kind], pattern, principal, operations, allow=allow),)


def _meant(kind: AclKind, operation: AclOperation) -> Operation:
    found = _MEANT[kind].get(operation)
    if found is None:
        raise ValueError(f"access rules have no {operation.name} of a {_RULE_KINDS[kind]}")
    return found


def _cluster_rules(principal: str, operation: AclOperation, allow: bool) -> Sequence[AccessRule]:
    if not allow and operation is not AclOperation.DESCRIBE:
        # Else a request could lock out those who administer by broker.yaml, and other brokers. And
        # in Kafka a topic is created by whoever may create it, whatever is denied of the cluster.
        raise ValueError(
            "of the cluster only DESCRIBE can be denied: delete the ACLs that allow the rest, or "
            "deny CREATE of topics"
        )
    if operation is AclOperation.IDEMPOTENT_WRITE:
        return ()
    create = AccessRule(principal, frozenset((Operation.CREATE,)), topic=EVERYTHING)
    if operation is AclOperation.CREATE:
        return (create,)
    if operation is AclOperation.ALL:
        every = OPERATIONS_ON[ResourceKind.CLUSTER]
        return create, AccessRule(principal, every, cluster=True)
    meant = frozenset((_meant(AclKind.CLUSTER, operation),))
    return (AccessRule(principal, meant, allow=allow, cluster=True),)


def _rule_principal(principal: str) -> str:
    if principal == f"{_USER}{_NOBODY}":
        return ANONYMOUS
    for prefix, ours in ((_USER, ""), (_GROUP, _OUR_GROUP)):
        if principal.startswith(prefix):
            name = principal.removeprefix(prefix)
            is_all = prefix == _USER and name == EVERYTHING
            if len(name) > LONGEST_NAME or (name.endswith(EVERYTHING) and not is_all):
                break
            if not name or name.startswith(_OUR_GROUP) or name in (ANONYMOUS, INTERNAL):
                break
            return ours + name
    raise ValueError(
        f"{quoted(principal)} can be nobody here: expected User:NAME, User:*, User:ANONYMOUS or "
        "Group:NAME"
    )


def _rule_pattern(acl: Acl) -> str:
    name = acl.name
    if AclPattern(acl.pattern) is AclPattern.PREFIXED:
        return f"{name}*"
    if name != EVERYTHING and (name.endswith(EVERYTHING) or name[0] == name[-1] == "/"):
        raise ValueError(f"access rules would take {quoted(name)} for a pattern")
    return name


# -- from rules ---------------------------------------------------------------------------------


def acls_of(rule: AccessRule) -> Iterator[Acl]:
    """How Kafka's clients are shown a rule; a regular expression stands between its slashes."""
    for kind, place in _RULE_KINDS.items():
        if not rule.is_about(place):
            continue
        done = rule.operations & OPERATIONS_ON[place]
        shown: Iterable[AclOperation]
        # ALL of the cluster is to create topics, too, which one of the cluster alone doesn't say.
        creates = Operation.CREATE in rule.operations and not rule.cluster
        is_all = kind is not AclKind.CLUSTER or creates
        if done == OPERATIONS_ON[place] and is_all:
            shown = (AclOperation.ALL,)
        else:
            table = _SHOWN[kind]
            shown = [each for ours, theirs in table.items() if ours in done for each in theirs]
        name, pattern = rule.pattern, AclPattern.LITERAL
        if kind is AclKind.CLUSTER:
            name = CLUSTER_NAME
        elif name.endswith(EVERYTHING) and name != EVERYTHING and rule.regex is None:
            name, pattern = name.removesuffix(EVERYTHING), AclPattern.PREFIXED
        permission = AclPermission.ALLOW if rule.allow else AclPermission.DENY
        principal = _shown_principal(rule.principal)
        for operation in shown:
            yield Acl(kind, name, pattern, principal, EVERYTHING, operation, permission)


def _shown_principal(principal: str) -> str:
    if principal == ANONYMOUS:
        return f"{_USER}{_NOBODY}"
    if principal.startswith(_OUR_GROUP):
        return _GROUP + principal.removeprefix(_OUR_GROUP)
    return _USER + principal


# -- filters ------------------------------------------------------------------------------------


class AclFilter(NamedTuple):
    """Which ACLs are meant; None and `ANY` for all."""

    kind: int
    name: str | None
    pattern: int
    principal: str | None
    host: str | None
    operation: int
    permission: int

    def matches(self, acl: Acl) -> bool:
        return (
            self.kind in (ANY, acl.kind)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (ANY, acl.operation)
            and self.permission in (ANY, acl.permission)
            and self.pattern in (ANY, MATCH, acl.pattern)
            and (self.name is None or self._names(self.name, acl))
        )

    def _names(self, name: str, acl: Acl) -> bool:
        if self.pattern != MATCH:
            return name == acl.name
        if acl.pattern == AclPattern.PREFIXED:
            return name.startswith(acl.name)
        return acl.name in (name, EVERYTHING)
