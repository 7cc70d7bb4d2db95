"""`AccessRules.decide` against the words of the documentation, written down naively."""

import random
import re

from hypothesis import given
from hypothesis import strategies as st

from hermes.security import CLUSTER, AccessRule, AccessRules, Operation, Resource, ResourceKind
from hermes.security.access import OPERATIONS_ON

PRINCIPALS = ["alice", "alan", "bob", "anonymous"]
GROUPS = ["red", "blue"]
NAMES = ["a", "ab", "abc", "b", "web-1", ""]
PATTERNS = ["*", "a*", "ab", "abc", "b", "/a.*/", "/(a|b)/", "/^web-[0-9]+$/", "/^a|b$/", "web-*"]

resources = st.just(CLUSTER) | st.builds(
    Resource, st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]), st.sampled_from(NAMES)
)


@st.composite
def rules(draw: st.DrawFn) -> AccessRule:
    about = draw(st.sampled_from(["topic", "group", ""]))
    fitting = {
        "topic": sorted(OPERATIONS_ON[ResourceKind.TOPIC]),
        "group": [Operation.GROUP, Operation.DESCRIBE],
        "": list(Operation),
    }[about]
    operations = draw(st.sets(st.sampled_from(fitting), min_size=1) | st.just(set(Operation)))
    principal = draw(
        st.sampled_from([*PRINCIPALS, "*", "al*", *(f"group:{each}" for each in GROUPS)])
    )
    name = {about: draw(st.sampled_from(PATTERNS))} if about else {}
    return AccessRule(principal, frozenset(operations), allow=draw(st.booleans()), **name)


def fits(pattern: str, name: str) -> bool:
    if pattern.startswith("/"):
        return re.fullmatch(pattern[1:-1], name) is not None
    if pattern.endswith("*"):
        return name[: len(pattern) - 1] == pattern[:-1]
    return name == pattern


def applies(
    rule: AccessRule, principal: str, groups: frozenset[str], operation: str, resource: Resource
) -> bool:
    is_who = fits(rule.principal, principal) or any(f"group:{g}" == rule.principal for g in groups)
    is_what = operation in [str(each) for each in rule.operations]
    if rule.topic is not None:
        is_where = resource.kind == "topic" and fits(rule.topic, resource.name)
    elif rule.group is not None:
        is_where = resource.kind == "group" and fits(rule.group, resource.name)
    else:
        is_where = True
    return is_who and is_what and is_where


def naive(
    given: list[AccessRule],
    principal: str,
    groups: frozenset[str],
    operation: str,
    resource: Resource,
) -> bool:
    found = [each for each in given if applies(each, principal, groups, operation, resource)]
    if any(not each.allow for each in found):
        return False
    if found:
        return True
    if operation != "describe":
        return False
    shows = {
        "topic": ["produce", "consume", "delete", "admin"],
        "group": ["group"],
        "cluster": ["admin"],
    }[resource.kind]
    return any(naive(given, principal, groups, each, resource) for each in shows)


@given(
    given_rules=st.lists(rules(), max_size=6),
    principal=st.sampled_from(PRINCIPALS),
    groups=st.frozensets(st.sampled_from(GROUPS)),
    operation=st.sampled_from(Operation),
    resource=resources,
    randomness=st.randoms(use_true_random=False),
)
def test_a_decision_is_what_the_rules_say_in_any_order(
    given_rules: list[AccessRule],
    principal: str,
    groups: frozenset[str],
    operation: Operation,
    resource: Resource,
    randomness: random.Random,
) -> None:
    decision = AccessRules(given_rules).decide(principal, groups, operation, resource)
    quick = AccessRules(given_rules).allows(principal, groups, operation, resource)
    assert quick == decision.allowed
    assert decision.allowed == naive(given_rules, principal, groups, operation, resource)
    if decision.rule is not None:
        assert decision.rule.allow == decision.allowed
        assert decision.rule in given_rules
    else:
        assert not decision.allowed
    shuffled = list(given_rules)
    randomness.shuffle(shuffled)
    again = AccessRules(shuffled).decide(principal, groups, operation, resource)
    assert again.allowed == decision.allowed
    denying = [each for each in given_rules if not each.allow]
    only_denied = AccessRules(denying).decide(principal, groups, operation, resource)
    assert not only_denied.allowed
