"""Evaluates access rules: deny wins, and what no rule allows is refused; in any order.

Names come from anybody, and are matched on the reactor's thread. So many patterns are matched at
once, what could take long is bounded, and in doubt less is allowed.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from hermes.regex import JavaPattern, RegexTooCostlyError
from hermes.security.access import LONGEST_NAME, AccessRule, Operation, Resource, ResourceKind
from hermes.security.principals import INTERNAL

#: The bound of matching a name with many patterns at once: what it comes to for each, and at most.
#: A thousand take half a millisecond; names and patterns of people's take a hundred.
_WORK_OF_EACH: Final = 10_000
_MOST_WORK: Final = 100_000

#: How many selections of rules are remembered: by principal, groups, operation and kind.
_MOST_SELECTED: Final = 1024

#: Who may do one of these may describe, unless a rule denies that.
_SHOW: Final = {
    ResourceKind.TOPIC: (
        *(Operation.PRODUCE, Operation.CONSUME),
        *(Operation.DELETE, Operation.ADMIN),
    ),
    ResourceKind.GROUP: (Operation.GROUP,),
    ResourceKind.TRANSACTION: (Operation.PRODUCE,),
    ResourceKind.CLUSTER: (Operation.ADMIN,),
}


class AccessDecision(NamedTuple):
    """`rule`: None where no rule allows it, or the broker itself asks, which may do everything."""

    allowed: bool
    rule: AccessRule | None = None


class _RuleSet:
    """The rules that allow, or those that deny, a principal an operation on resources of a kind.

    `in_doubt`: what `cover` returns for a name that can't be matched in time.
    """

    def __init__(self, rules: Iterable[AccessRule], in_doubt: bool) -> None:
        self._rules = tuple(rules)
        self._in_doubt = in_doubt
        self._patterns = tuple(rule for rule in self._rules if rule.regex is not None)
        plain = [rule.pattern for rule in self._rules if rule.regex is None]
        self._names = frozenset(each for each in plain if not each.endswith("*"))
        self._beginnings = tuple(each[:-1] for each in plain if each.endswith("*"))
        self._any = _any_of(tuple(str(rule.regex) for rule in self._patterns))

    def cover(self, name: str) -> bool:
        if name in self._names or name.startswith(self._beginnings):
            return True
        if self._any is not None:
            try:
                return self._any.matches(name)
            except RegexTooCostlyError:
                return self._in_doubt
        return any(rule.covers(name) for rule in self._patterns)

    def first(self, name: str) -> AccessRule | None:
        return next((rule for rule in self._rules if rule.covers(name)), None)


class AccessRules:
    """The rules of a broker, in any order. Immutable and thread-safe."""

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self.rules: Final = tuple(rules)
        self._selected: dict[_Key, tuple[_RuleSet, _RuleSet]] = {}

    def allows(
        self, principal: str, groups: frozenset[str], operation: Operation, resource: Resource
    ) -> bool:
        """As `decide`, and quick with many patterns."""
        if principal == INTERNAL:
            return True
        kind, name = resource
        if len(name) > LONGEST_NAME:
            return False
        denying, allowing = self._select(principal, groups, operation, kind)
        if denying.cover(name):
            return False
        if allowing.cover(name):
            return True
        return operation is Operation.DESCRIBE and any(
            self.allows(principal, groups, each, resource) for each in _SHOW[kind]
        )

    def decide(
        self, principal: str, groups: frozenset[str], operation: Operation, resource: Resource
    ) -> AccessDecision:
        """Decide, and say which rule does. `groups`: those that the principal is in."""
        if principal == INTERNAL:
            return AccessDecision(True)
        kind, name = resource
        if len(name) > LONGEST_NAME:
            return AccessDecision(False)
        denying, allowing = self._select(principal, groups, operation, kind)
        if denying.cover(name):
            return AccessDecision(False, denying.first(name))
        if allowing.cover(name):
            return AccessDecision(True, allowing.first(name))
        if operation is Operation.DESCRIBE:
            for each in _SHOW[kind]:
                decision = self.decide(principal, groups, each, resource)
                if decision.allowed:
                    return decision
        return AccessDecision(False)

    def may_anything(self, principal: str, groups: frozenset[str]) -> bool:
        """Whether any rule allows a principal anything."""
        return principal == INTERNAL or any(
            rule.allow and rule.concerns(principal, groups) for rule in self.rules
        )

    def _select(
        self, principal: str, groups: frozenset[str], operation: Operation, kind: ResourceKind
    ) -> "tuple[_RuleSet, _RuleSet]":
        """The rules that apply: those that deny, those that allow."""
        key = (principal, groups, operation, kind)
        selected = self._selected.get(key)
        if selected is None:
            some = [
                rule
                for rule in self.rules
                if operation in rule.operations
                and rule.is_about(kind)
                and rule.concerns(principal, groups)
            ]
            selected = (
                _RuleSet((rule for rule in some if not rule.allow), in_doubt=True),
                _RuleSet((rule for rule in some if rule.allow), in_doubt=False),
            )
            if len(self._selected) >= _MOST_SELECTED:
                self._selected = {}
            self._selected[key] = selected
        return selected


_Key = tuple[str, frozenset[str], Operation, ResourceKind]


@lru_cache(maxsize=200)
def _any_of(regexes: tuple[str, ...]) -> JavaPattern | None:
    """The alternatives of several expressions as one; None if they can't be combined."""
    if len(regexes) < 2:
        return None
    try:
        return JavaPattern.any_of(regexes, min(_MOST_WORK, _WORK_OF_EACH * len(regexes)))
    except ValueError:  # too large together
        return None


def explain_decision(
    rules: Sequence[AccessRule] | None,
    source: str,
    principal: str,
    groups: frozenset[str],
    operation: Operation,
    resource: Resource,
) -> tuple[AccessDecision, str]:
    """`rules`: in their order; None where there are none, and everything is allowed.

    `source`: where they are, for the words.
    """
    if rules is None:
        return AccessDecision(True), "there are no rules: whoever can connect may do everything"
    decision = AccessRules(rules).decide(principal, groups, operation, resource)
    if decision.rule is not None:
        number = rules.index(decision.rule) + 1
        implied = "" if operation in decision.rule.operations else ", which lets it be described"
        return decision, f"rule {number} of {source}{implied}: {decision.rule}"
    if principal == INTERNAL:
        return decision, "it is the broker itself, which rules don't concern"
    if len(resource.name) > LONGEST_NAME:
        return decision, f"a name has up to {LONGEST_NAME} characters"
    return decision, f"none of the {len(rules)} rules of {source} allows it"
