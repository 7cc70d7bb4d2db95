"""Access rules: who may do what to which topic or group. Deny wins; what no rule allows is refused.

Pure values: broker.yaml's `access:` becomes an `AccessRules` (`hermes.config.access` reads it), and
whoever serves a request asks it. The order of the rules has no effect.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from hermes.quoting import quoted
from hermes.regex import RegexTooCostlyError, compile_java
from hermes.security.principals import INTERNAL

#: No topic can have a longer name: file systems hold no more. So none is allowed anything, which
#: bounds what a peer can make patterns look at.
LONGEST_NAME: Final = 255

#: What a rule's principal begins with to mean a group of users.
_GROUP: Final = "group:"

#: How many selections of rules are remembered: by principal, groups and operation.
_MOST_SELECTED: Final = 1024


class Operation(StrEnum):
    """What somebody wants to do; the value is how broker.yaml calls it."""

    PRODUCE = "produce"
    CONSUME = "consume"
    DESCRIBE = "describe"
    CREATE = "create"
    DELETE = "delete"
    GROUP = "group"
    ADMIN = "admin"


class ResourceKind(StrEnum):
    """What something is done to."""

    TOPIC = "topic"
    GROUP = "group"
    CLUSTER = "cluster"


class Resource(NamedTuple):
    """A topic, a group, or the cluster.

    Attributes:
        kind: which of these.
        name: the topic's or group's; empty for the cluster.
    """

    kind: ResourceKind
    name: str = ""

    @classmethod
    def topic(cls, name: str) -> "Resource":
        """The topic of this name, whether or not it exists."""
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> "Resource":
        """The consumer group of this name."""
        return cls(ResourceKind.GROUP, name)

    def __str__(self) -> str:
        return f"{self.kind} {quoted(self.name)}" if self.name else f"the {self.kind}"


CLUSTER: Final = Resource(ResourceKind.CLUSTER)

#: Whether somebody may do something: principal, operation, resource. Any thread may ask.
Rights = Callable[[str, Operation, Resource], bool]

#: What can be done to each kind of resource. Altering a topic's settings is `admin` of the topic.
OPERATIONS_ON: Final = {
    ResourceKind.TOPIC: frozenset(Operation) - {Operation.GROUP},
    ResourceKind.GROUP: frozenset({Operation.GROUP, Operation.DESCRIBE}),
    ResourceKind.CLUSTER: frozenset({Operation.ADMIN, Operation.DESCRIBE}),
}

#: Who may do one of these may describe, unless a rule denies that.
_SHOW: Final = {
    ResourceKind.TOPIC: (Operation.PRODUCE, Operation.CONSUME),
    ResourceKind.GROUP: (Operation.GROUP,),
    ResourceKind.CLUSTER: (),
}


_VERBS: Final = {
    Operation.PRODUCE: "produce to",
    Operation.GROUP: "use",
    Operation.ADMIN: "administer",
}


def deed(operation: Operation, resource: Resource) -> str:
    """What somebody may do, or may not, for people: `produce to topic 'clicks'`."""
    return f"{_VERBS.get(operation, operation)} {resource}"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One rule of `access:`.

    Args:
        principal: a name; `web-*`: those that begin so, `*` alone: all, `anonymous` among them;
            `group:NAME`: the users of a group.
        operations: what the rule is about.
        topic: a name, a beginning with `*`, or a regular expression of Java's between slashes,
            which the whole name has to match; None unless the rule is about topics.
        group: the same for consumer groups. With neither, the rule is about every topic, every
            group and the cluster.
        allow: False to deny.

    Raises:
        ValueError: the rule has no meaning; the text says why.
    """

    principal: str
    operations: frozenset[Operation]
    topic: str | None = None
    group: str | None = None
    allow: bool = True
    _matches: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.topic is not None and self.group is not None:
            raise ValueError("give a topic or a group, not both")
        if self.principal in ("", _GROUP):
            raise ValueError(f"{quoted(self.principal)} names nobody")
        if self.principal.startswith(_GROUP) and self.principal.endswith("*"):
            raise ValueError(f"{quoted(self.principal)}: a group of users is named in full")
        if not self.operations:
            raise ValueError("a rule needs operations")
        self._check_operations()
        pattern = self.group if self.topic is None else self.topic
        matches = _everything if pattern is None else _name_test(pattern)
        object.__setattr__(self, "_matches", matches)

    def _check_operations(self) -> None:
        """Refuse what looks like a rule and would never decide anything."""
        if self.topic is None and self.group is None:
            return
        kind = ResourceKind.GROUP if self.topic is None else ResourceKind.TOPIC
        idle = self.operations - OPERATIONS_ON[kind]
        if idle and len(self.operations) < len(Operation):
            can_be = ", ".join(each for each in Operation if each in OPERATIONS_ON[kind])
            raise ValueError(f"{min(idle)} is not done to a {kind}: {can_be} are")

    def concerns(self, principal: str, groups: frozenset[str]) -> bool:
        """Whether the rule is about somebody."""
        name = self.principal
        if name.startswith(_GROUP):
            return name.removeprefix(_GROUP) in groups
        if name.endswith("*"):
            return principal.startswith(name[:-1])
        return principal == name

    def covers(self, resource: Resource) -> bool:
        """Whether the rule is about a resource; in doubt so that less is allowed."""
        if self.topic is not None and resource.kind is not ResourceKind.TOPIC:
            return False
        if self.group is not None and resource.kind is not ResourceKind.GROUP:
            return False
        try:
            return self._matches(resource.name)
        except RegexTooCostlyError:
            return not self.allow

    def as_given(self) -> dict[str, Any]:
        """The rule as broker.yaml has it."""
        is_all = len(self.operations) == len(Operation)
        operations = ["all"] if is_all else [str(e) for e in Operation if e in self.operations]
        given: dict[str, Any] = {"principal": self.principal, "operations": operations}
        if self.topic is not None:
            given["topic"] = self.topic
        if self.group is not None:
            given["group"] = self.group
        return {**given, "allow": self.allow}

    def __str__(self) -> str:
        """The same in one line of YAML."""
        given = self.as_given()
        shown = {key: quoted(given[key]) for key in given}
        shown["operations"] = f"[{', '.join(given['operations'])}]"
        shown["allow"] = str(self.allow).lower()
        return "{" + ", ".join(f"{key}: {value}" for key, value in shown.items()) + "}"


class Decision(NamedTuple):
    """Whether somebody may do something.

    Attributes:
        allowed: whether.
        rule: the rule that says so; None where no rule does, and it is therefore refused (or the
            broker itself asks, which may do everything).
    """

    allowed: bool
    rule: AccessRule | None = None


class AccessRules:
    """The rules of a broker. Immutable; any thread may ask.

    Args:
        rules: in any order.
    """

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self.rules: Final = tuple(rules)
        self._selected: dict[tuple[str, frozenset[str], Operation], _Selection] = {}

    def decide(
        self, principal: str, groups: frozenset[str], operation: Operation, resource: Resource
    ) -> Decision:
        """Decide whether somebody may do something.

        Args:
            principal: who.
            groups: the groups of users that they belong to.
            operation: what.
            resource: to what.
        """
        if principal == INTERNAL:
            return Decision(True)
        if len(resource.name) > LONGEST_NAME:
            return Decision(False)
        denying, allowing = self._select(principal, groups, operation)
        for rule in denying:
            if rule.covers(resource):
                return Decision(False, rule)
        for rule in allowing:
            if rule.covers(resource):
                return Decision(True, rule)
        if operation is Operation.DESCRIBE:
            for each in _SHOW[resource.kind]:
                decision = self.decide(principal, groups, each, resource)
                if decision.allowed:
                    return decision
        return Decision(False)

    def may_anything(self, principal: str, groups: frozenset[str]) -> bool:
        """Whether any rule allows somebody anything."""
        return principal == INTERNAL or any(
            rule.allow and rule.concerns(principal, groups) for rule in self.rules
        )

    def _select(self, principal: str, groups: frozenset[str], operation: Operation) -> "_Selection":
        """The rules that are about somebody and an operation: those that deny, that allow."""
        key = (principal, groups, operation)
        selected = self._selected.get(key)
        if selected is None:
            some = [
                rule
                for rule in self.rules
                if operation in rule.operations and rule.concerns(principal, groups)
            ]
            selected = (
                tuple(rule for rule in some if not rule.allow),
                tuple(rule for rule in some if rule.allow),
            )
            if len(self._selected) >= _MOST_SELECTED:
                self._selected = {}
            self._selected[key] = selected
        return selected


_Selection = tuple[tuple[AccessRule, ...], tuple[AccessRule, ...]]


def _everything(_: str) -> bool:
    return True


def _name_test(pattern: str) -> Callable[[str], bool]:
    """What tells whether a name is one of those that a pattern means."""
    if not pattern:
        raise ValueError("an empty name matches nothing; '*' matches everything")
    if len(pattern) > 1 and pattern[0] == pattern[-1] == "/":
        try:
            return compile_java(pattern[1:-1]).matches
        except ValueError as error:
            text = f"{quoted(pattern)} is not a regular expression that can be used: {error}"
            raise ValueError(text) from None
    if pattern.endswith("*"):
        beginning = pattern[:-1]
        return lambda name: name.startswith(beginning)
    return pattern.__eq__
