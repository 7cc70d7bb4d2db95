"""Access rules: who may do what to which topic or group.

Pure values: `hermes.config.access` reads them from broker.yaml, and `decisions` evaluates them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, NamedTuple

from hermes.quoting import quoted
from hermes.regex import JavaPattern, RegexTooCostlyError, compile_java

#: No topic can have a longer name: file systems hold no more. So none is allowed anything, which
#: bounds what a peer can make patterns look at.
LONGEST_NAME: Final = 255

#: The bound of matching a name with a pattern: some ms. Those of people take a hundredth.
_MOST_WORK: Final = 20_000

#: What a rule's principal begins with to mean a group of users.
_GROUP: Final = "group:"


class Operation(StrEnum):
    """What may be allowed; the value is broker.yaml's word."""

    PRODUCE = "produce"
    CONSUME = "consume"
    DESCRIBE = "describe"
    CREATE = "create"
    DELETE = "delete"
    GROUP = "group"
    ADMIN = "admin"
    REPLICATE = "replicate"


class ResourceKind(StrEnum):
    TOPIC = "topic"
    GROUP = "group"
    TRANSACTION = "transactional_id"
    CLUSTER = "cluster"


class Resource(NamedTuple):
    """A topic, a group, a transactional id, or the cluster, whose `name` is empty."""

    kind: ResourceKind
    name: str = ""

    @classmethod
    def topic(cls, name: str) -> "Resource":
        """The topic of this name, whether or not it exists."""
        return cls(ResourceKind.TOPIC, name)

    @classmethod
    def group(cls, name: str) -> "Resource":
        return cls(ResourceKind.GROUP, name)

    @classmethod
    def transaction(cls, name: str) -> "Resource":
        return cls(ResourceKind.TRANSACTION, name)

    def __str__(self) -> str:
        return f"{self.kind} {quoted(self.name)}" if self.name else f"the {self.kind}"


CLUSTER: Final = Resource(ResourceKind.CLUSTER)

#: Whether somebody may do something: principal, operation, resource. Any thread may ask.
Rights = Callable[[str, Operation, Resource], bool]

#: What can be done to each kind of resource. Altering a topic's settings is `admin` of the topic.
OPERATIONS_ON: Final = {
    ResourceKind.TOPIC: frozenset(Operation) - {Operation.GROUP, Operation.REPLICATE},
    ResourceKind.GROUP: frozenset({Operation.GROUP, Operation.DESCRIBE}),
    ResourceKind.TRANSACTION: frozenset({Operation.PRODUCE, Operation.DESCRIBE}),
    ResourceKind.CLUSTER: frozenset({Operation.ADMIN, Operation.DESCRIBE, Operation.REPLICATE}),
}


_VERBS: Final = {
    Operation.PRODUCE: "produce to",
    Operation.GROUP: "use",
    Operation.ADMIN: "administer",
    Operation.REPLICATE: "have copies of all topics of",
}


def action_text(operation: Operation, resource: Resource) -> str:
    """An operation for people: `produce to topic 'clicks'`."""
    return f"{_VERBS.get(operation, operation)} {resource}"


@dataclass(frozen=True, slots=True)
class AccessRule:
    """One rule of `access:`.

    Args:
        principal: a name; `web-*`: those that begin so, `*` alone: all, `anonymous` among them;
            `group:NAME`: the users of a group.
        topic: a name, a beginning with `*`, or a regular expression of Java's between slashes,
            which the whole name has to match; None unless the rule is about topics.
        group, transactional_id: the same for consumer groups, and for producers' transactional ids.
            With none of them, the rule is about all of these and the cluster.
        allow: False to deny.
        cluster: whether it is about the cluster alone.

    Raises:
        ValueError: the rule has no meaning; the text says why.
    """

    principal: str
    operations: frozenset[Operation]
    topic: str | None = None
    group: str | None = None
    allow: bool = True
    cluster: bool = False
    transactional_id: str | None = None
    _matches: Callable[[str], bool] = field(init=False, repr=False, compare=False)

    @classmethod
    def of(
        cls,
        kind: ResourceKind,
        pattern: str,
        principal: str,
        operations: frozenset[Operation],
        *,
        allow: bool,
    ) -> "AccessRule":
        """A rule about a kind of resource that has names."""
        topic, group, transactional_id = (
            pattern if kind is each else None
            for each in (ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.TRANSACTION)
        )
        return cls(principal, operations, topic, group, allow, transactional_id=transactional_id)

    def __post_init__(self) -> None:
        if len([each for each in self._names if each is not None]) + self.cluster > 1:
            raise ValueError(
                "give a topic, a group, a transactional_id or the cluster, one of them"
            )
        if self.principal in ("", _GROUP):
            raise ValueError(f"{quoted(self.principal)} names nobody")
        if self.principal.startswith(_GROUP) and self.principal.endswith("*"):
            raise ValueError(f"{quoted(self.principal)}: a group of users is named in full")
        if not self.operations:
            raise ValueError("a rule needs operations")
        self._check_operations()
        object.__setattr__(self, "_matches", _name_test(self.pattern))

    def _check_operations(self) -> None:
        """Refuse what looks like a rule and would never decide anything."""
        kind = self._kind
        if kind is None:
            return
        idle = self.operations - OPERATIONS_ON[kind]
        if idle and len(self.operations) < len(Operation):
            can_be = ", ".join(each for each in Operation if each in OPERATIONS_ON[kind])
            raise ValueError(f"{min(idle)} is not done to a {kind}: {can_be} are")

    @property
    def _kind(self) -> ResourceKind | None:
        """What it is about; None for everything."""
        if self.cluster:
            return ResourceKind.CLUSTER
        if self.topic is not None:
            return ResourceKind.TOPIC
        if self.transactional_id is not None:
            return ResourceKind.TRANSACTION
        return None if self.group is None else ResourceKind.GROUP

    @property
    def _names(self) -> tuple[str | None, ...]:
        return self.topic, self.group, self.transactional_id

    @property
    def pattern(self) -> str:
        """`topic`, `group` or `transactional_id`; `*` without any."""
        return next((each for each in self._names if each is not None), "*")

    @property
    def regex(self) -> str | None:
        """The regular expression that names have to match, if it is one."""
        return _regex_of(self.pattern)

    def concerns(self, principal: str, groups: frozenset[str]) -> bool:
        name = self.principal
        if name.startswith(_GROUP):
            return name.removeprefix(_GROUP) in groups
        if name.endswith("*"):
            return principal.startswith(name[:-1])
        return principal == name

    def is_about(self, kind: ResourceKind) -> bool:
        return self._kind in (None, kind)

    def covers(self, name: str) -> bool:
        """Whether a name is one of the rule's; in doubt so that less is allowed."""
        try:
            return self._matches(name)
        except RegexTooCostlyError:
            return not self.allow

    def as_given(self) -> dict[str, Any]:
        is_all = len(self.operations) == len(Operation)
        operations = ["all"] if is_all else [str(e) for e in Operation if e in self.operations]
        given: dict[str, Any] = {"principal": self.principal, "operations": operations}
        if self.topic is not None:
            given["topic"] = self.topic
        if self.group is not None:
            given["group"] = self.group
        if self.transactional_id is not None:
            given["transactional_id"] = self.transactional_id
        if self.cluster:
            given["cluster"] = True
        return {**given, "allow": self.allow}

    def __str__(self) -> str:
        given = self.as_given()
        shown = {key: quoted(given[key]) for key in given}
        shown["operations"] = f"[{', '.join(given['operations'])}]"
        for key in ("allow", "cluster"):
            if key in given:
                shown[key] = str(given[key]).lower()
        return "{" + ", ".join(f"{key}: {value}" for key, value in shown.items()) + "}"


def _regex_of(pattern: str) -> str | None:
    """The expression between slashes, without anchors, which the match of the whole name implies.

    Anchors cost time: with them, what was found for one position doesn't hold for others.
    """
    if len(pattern) < 2 or not pattern[0] == pattern[-1] == "/":
        return None
    regex = pattern[1:-1]
    if "\\" in regex:  # a `$` may be quoted
        return regex
    if regex.startswith("^") and regex[1:2] not in ("*", "+", "?", "{"):
        regex = regex[1:]
    return regex.removesuffix("$")


def _name_test(pattern: str) -> Callable[[str], bool]:
    if not pattern:
        raise ValueError("an empty name matches nothing; '*' matches everything")
    regex = _regex_of(pattern)
    if regex is not None:
        try:
            compile_java(pattern[1:-1])  # as it was written, for the error
            return JavaPattern.any_of((regex,), _MOST_WORK).matches
        except ValueError as error:
            text = f"{quoted(pattern)} is not a regular expression that can be used: {error}"
            raise ValueError(text) from None
    if pattern.endswith("*"):
        beginning = pattern[:-1]
        return lambda name: name.startswith(beginning)
    return pattern.__eq__
