"""What was set by request while a broker ran, for all of it or its cluster: ACLs and quotas.

    {"acls": [[2, "clicks", 3, "User:alice", "*", 3, 3]], "quotas": {"alice": {"bytes_in": 1000}}}

It is beside what broker.yaml says, which wins where both say something of the same name.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from hermes.config.quotas import DEFAULT, QUOTAS, Quota, quota_of
from hermes.errors import ConfigError
from hermes.security import AccessRule, Operation
from hermes.security.acls import Acl, rules_of

#: How many ACLs, and principals with quotas, there may be.
MOST_ENTRIES: Final = 2000

#: All of it is one node of coordination, of which a ZooKeeper takes 1 MiB.
MOST_BYTES: Final = 512 << 10

_KEYS: Final = frozenset({"acls", "quotas"})


@dataclass(frozen=True)
class Requested:
    """`rules`: what the ACLs come to. Raises ConfigError: there are too many of them, or quotas.

    `is_known`: False as long as nobody could say what the cluster has. No rule holds until then.
    """

    acls: frozenset[Acl] = frozenset()
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    is_known: bool = True
    rules: tuple[AccessRule, ...] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        if max(len(self.acls), len(self.quotas)) > MOST_ENTRIES:
            raise _too_much()
        rules = dict.fromkeys(rule for acl in sorted(self.acls) for rule in rules_of(acl))
        object.__setattr__(self, "rules", tuple(rules))

    def encode(self) -> bytes:
        """Raises ConfigError: there is too much of it."""
        quotas = {name: self.quotas[name].as_given() for name in sorted(self.quotas)}
        data = json.dumps({"acls": sorted(self.acls), "quotas": quotas}).encode()
        if len(data) > MOST_BYTES:
            raise _too_much()
        return data

    @classmethod
    def decode(cls, data: bytes) -> "Requested":
        """Raises ConfigError: it is damaged, or a later Hermes wrote it."""
        if not data:
            return cls()
        try:
            values: dict[str, Any] = json.loads(data)
            if values.keys() - _KEYS:
                raise ValueError(f"it has {', '.join(values)}")
            acls = frozenset(Acl(*each) for each in values["acls"])
            return cls(acls, QUOTAS.parse(values["quotas"]))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise ConfigError("", f"what was set by request can't be read: {error}") from None


def in_both(rules: Iterable[AccessRule], quotas: Iterable[str], requested: Requested) -> list[str]:
    """Of what broker.yaml says, for people: rules that an ACL contradicts, and quotas.

    A rule is contradicted by one of the same principal and names that denies what it allows, or
    the other way round.
    """
    asked: dict[tuple[Any, ...], frozenset[Operation]] = {}
    for each in requested.rules:
        about = _about(each, each.allow)
        asked[about] = asked.get(about, frozenset()) | each.operations
    nothing = frozenset[Operation]()
    found = [
        str(each)
        for each in rules
        if each.operations & asked.get(_about(each, not each.allow), nothing)
    ]
    return found + [f"the quota of {each}" for each in quotas if each in requested.quotas]


def _about(rule: AccessRule, allow: bool) -> tuple[Any, ...]:
    names = rule.topic, rule.group, rule.transactional_id, rule.cluster
    return rule.principal, *names, allow


def _too_much() -> ConfigError:
    return ConfigError(
        "", f"there may be {MOST_ENTRIES} ACLs and quotas, in {MOST_BYTES >> 10} KiB"
    )


def quota_in_force(
    given: Mapping[str, Quota], requested: Mapping[str, Quota], principal: str
) -> Quota | None:
    """The limits of a principal: of its name in broker.yaml, or else each as Kafka finds it.

    That is the one that was requested for it, or what holds for the rest: broker.yaml's, or the
    requested default.
    """
    found = quota_of(given, principal)
    if principal in given or not requested:
        return found
    rest = found or requested.get(DEFAULT)
    own = requested.get(principal) if principal != DEFAULT else None
    if own is None or rest is None:
        return own or rest
    return Quota(**{**rest.as_given(), **own.as_given()})


Change = Callable[[Requested], Requested]


def without_acls(gone: Iterable[Acl]) -> Change:
    left_out = frozenset(gone)
    return lambda now: Requested(now.acls - left_out, now.quotas)


def with_acls(more: Iterable[Acl]) -> Change:
    added = frozenset(more)
    return lambda now: Requested(now.acls | added, now.quotas)
