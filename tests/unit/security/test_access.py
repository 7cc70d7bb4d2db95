import pytest

from hermes.config.loading import parse_broker_config
from hermes.errors import ConfigError
from hermes.security import (
    CLUSTER,
    INTERNAL,
    LONGEST_NAME,
    AccessRule,
    AccessRules,
    Operation,
    Resource,
    ResourceKind,
)

NOBODY = frozenset[str]()
CLICKS = Resource.topic("clicks")


def rule(principal: str, *operations: str, **more: object) -> AccessRule:
    return AccessRule(principal, frozenset(map(Operation, operations)), **more)  # type: ignore[arg-type]


def allowed(
    rules: list[AccessRule],
    principal: str,
    operation: str,
    resource: Resource = CLICKS,
    groups: frozenset[str] = NOBODY,
) -> bool:
    return AccessRules(rules).decide(principal, groups, Operation(operation), resource).allowed


def test_what_no_rule_allows_is_refused() -> None:
    decision = AccessRules([]).decide("alice", NOBODY, Operation.PRODUCE, CLICKS)
    assert decision == (False, None)


def test_a_rule_allows_one_principal_one_operation_on_one_topic() -> None:
    rules = [rule("alice", "produce", topic="clicks")]
    assert allowed(rules, "alice", "produce")
    assert not allowed(rules, "alice", "consume")
    assert not allowed(rules, "alic", "produce")
    assert not allowed(rules, "alice", "produce", Resource.topic("clicks2"))
    assert not allowed(rules, "alice", "describe", Resource.group("clicks"))
    assert not allowed(rules, "alice", "describe", CLUSTER)


@pytest.mark.parametrize("order", [1, -1])
def test_deny_wins_in_any_order(order: int) -> None:
    rules = [rule("*", "produce"), rule("mallory", "produce", topic="cl*", allow=False)][::order]
    assert allowed(rules, "alice", "produce")
    assert not allowed(rules, "mallory", "produce")
    assert allowed(rules, "mallory", "produce", Resource.topic("other"))
    decision = AccessRules(rules).decide("mallory", NOBODY, Operation.PRODUCE, CLICKS)
    assert decision.rule is not None
    assert not decision.rule.allow


def test_principals_are_exact_beginnings_and_groups() -> None:
    assert allowed([rule("web-*", "produce")], "web-1", "produce")
    assert not allowed([rule("web-*", "produce")], "we", "produce")
    analysts = [rule("group:analysts", "consume")]
    assert allowed(analysts, "bob", "consume", groups=frozenset({"analysts"}))
    assert not allowed(analysts, "bob", "consume", groups=frozenset({"analyst"}))
    assert not allowed(analysts, "group:analysts", "consume")


def test_topics_are_exact_beginnings_and_patterns_of_the_whole_name() -> None:
    pattern = [rule("*", "produce", topic="/(web|app)-[0-9]+/")]
    assert allowed(pattern, "alice", "produce", Resource.topic("app-12"))
    assert not allowed(pattern, "alice", "produce", Resource.topic("my-app-12"))
    assert not allowed(pattern, "alice", "produce", Resource.topic("app-12\n"))
    assert allowed([rule("*", "group", group="ana*")], "alice", "group", Resource.group("ana"))


def test_what_takes_too_long_to_match_is_refused_either_way() -> None:
    costly = "/" + "(a?){400}" * 8 + "b/"
    name = Resource.topic("a" * LONGEST_NAME)
    assert not allowed([rule("*", "produce", topic=costly)], "alice", "produce", name)
    rules = [rule("*", "produce"), rule("*", "produce", topic=costly, allow=False)]
    assert not allowed(rules, "alice", "produce", name)
    assert allowed(rules, "alice", "produce")


def test_names_that_nothing_can_have_are_refused() -> None:
    rules = [rule("*", "produce")]
    assert allowed(rules, "alice", "produce", Resource.topic("x" * LONGEST_NAME))
    assert not allowed(rules, "alice", "produce", Resource.topic("x" * (LONGEST_NAME + 1)))


@pytest.mark.parametrize("operation", ["produce", "consume"])
def test_who_may_produce_or_consume_may_describe(operation: str) -> None:
    rules = [rule("alice", operation, topic="clicks")]
    assert allowed(rules, "alice", "describe")
    assert not allowed(rules, "alice", "describe", Resource.topic("other"))
    assert not allowed([*rules, rule("alice", "describe", allow=False)], "alice", "describe")
    assert not allowed([*rules, rule("alice", operation, allow=False)], "alice", "describe")


def test_who_may_use_a_group_may_describe_it() -> None:
    rules = [rule("alice", "group", group="etl")]
    assert allowed(rules, "alice", "describe", Resource.group("etl"))
    assert not allowed(rules, "alice", "describe", Resource.topic("etl"))


def test_a_rule_without_topic_and_group_is_about_everything() -> None:
    rules = [rule("ops", *Operation)]
    for operation in Operation:
        assert allowed(rules, "ops", operation)
        assert allowed(rules, "ops", operation, Resource.group("etl"))
    assert allowed(rules, "ops", "admin", CLUSTER)
    assert not allowed([rule("ops", *Operation, topic="*")], "ops", "admin", CLUSTER)


def test_the_broker_itself_may_do_everything() -> None:
    deny = [rule("*", *Operation, allow=False)]
    assert allowed(deny, INTERNAL, "admin", CLUSTER)
    assert AccessRules(deny).may_anything(INTERNAL, NOBODY)


def test_who_may_do_anything_at_all() -> None:
    rules = AccessRules([rule("alice", "produce", topic="x"), rule("bob", "produce", allow=False)])
    assert rules.may_anything("alice", NOBODY)
    assert not rules.may_anything("bob", NOBODY)
    assert not rules.may_anything("carol", NOBODY)


def test_more_principals_than_are_remembered() -> None:
    rules = AccessRules([rule("user-*", "produce")])
    for number in range(3000):
        principal = f"user-{number}"
        assert rules.decide(principal, NOBODY, Operation.PRODUCE, CLICKS).allowed
    assert not rules.decide("other", NOBODY, Operation.PRODUCE, CLICKS).allowed


def test_a_resource_names_itself() -> None:
    assert str(CLICKS) == "topic 'clicks'"
    assert str(CLUSTER) == "the cluster"
    assert str(Resource(ResourceKind.GROUP, "a\n")) == r"group 'a\n'"


# -- broker.yaml ----------------------------------------------------------------------------------


def read(access: object) -> tuple[AccessRule, ...] | None:
    return parse_broker_config({"broker_id": 0, "log_dir": "/x", "access": access}).access


def test_rules_are_read_from_yaml() -> None:
    assert read([]) == ()
    given = [
        {"principal": "alice", "operations": ["produce", "describe"], "topic": "clicks"},
        {"principal": "*", "operations": ["all"], "allow": False},
        {"principal": "group:etl", "operations": ["group"], "group": "/etl-.+/", "allow": True},
    ]
    assert read(given) == (
        rule("alice", "produce", "describe", topic="clicks"),
        rule("*", *Operation, allow=False),
        rule("group:etl", "group", group="/etl-.+/"),
    )


def test_a_rule_is_shown_as_it_is_written() -> None:
    assert str(rule("a*", "describe", "produce", topic="x")) == (
        "{principal: 'a*', operations: [produce, describe], topic: 'x', allow: true}"
    )
    assert str(rule("*", *Operation, allow=False)) == (
        "{principal: '*', operations: [all], allow: false}"
    )


RULE = {"principal": "alice", "operations": ["produce"]}


@pytest.mark.parametrize(
    ("access", "complaint"),
    [
        (None, "expected a list of rules such as"),
        ({}, "expected a list of rules such as"),
        (["alice"], "rule 1: expected a rule such as"),
        ([RULE, {"operations": ["produce"]}], "rule 2: it has no principal"),
        ([{"principal": "alice"}], "it has no operations"),
        ([{**RULE, "topics": "x"}], "unknown key 'topics'"),
        ([{**RULE, "principal": 5}], "expected a name in quotes for principal, got 5"),
        ([{**RULE, "principal": "group:"}], "names nobody"),
        ([{**RULE, "principal": "group:x*"}], "named in full"),
        ([{**RULE, "topic": 123}], "expected a name in quotes for topic, got 123"),
        ([{**RULE, "topic": None}], "expected a name in quotes for topic"),
        ([{**RULE, "topic": "a", "group": "b"}], "a transactional_id or the cluster, one of them"),
        ([{**RULE, "topic": "/(/"}], "not a regular expression"),
        ([{**RULE, "group": "g"}], "produce is not done to a group"),
        ([{**RULE, "operations": "produce"}], "expected a list of operations"),
        ([{**RULE, "operations": []}], "expected a list of operations"),
        ([{**RULE, "operations": ["write"]}], "'write' is no operation"),
        ([{**RULE, "operations": [["x"]]}], "is no operation"),
        ([{**RULE, "operations": ["all", "produce"]}], "all stands alone"),
        ([{**RULE, "allow": "no"}], "expected true or false for allow"),
    ],
)
def test_what_is_no_rule_is_refused(access: object, complaint: str) -> None:
    with pytest.raises(ConfigError) as raised:
        read(access)
    assert raised.value.key == "access"
    assert complaint in str(raised.value)
