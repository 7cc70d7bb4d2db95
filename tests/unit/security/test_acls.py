"""ACLs of Kafka's clients, and the access rules that they come to."""

import pytest

from hermes.security import CLUSTER, AccessRule, AccessRules, Operation, Resource, ResourceKind
from hermes.security.access import OPERATIONS_ON
from hermes.security.acls import (
    ANY,
    MATCH,
    Acl,
    AclFilter,
    AclKind,
    AclOperation,
    AclPattern,
    AclPermission,
    acls_of,
    rules_of,
)

NOBODY: frozenset[str] = frozenset()


def acl(
    operation: str = "READ",
    kind: str = "TOPIC",
    name: str = "clicks",
    *,
    pattern: str = "LITERAL",
    principal: str = "User:alice",
    host: str = "*",
    permission: str = "ALLOW",
) -> Acl:
    numbers = AclOperation[operation], AclPermission[permission]
    return Acl(AclKind[kind], name, AclPattern[pattern], principal, host, *numbers)


def may(*acls: Acl, principal: str = "alice", groups: frozenset[str] = NOBODY) -> set[str]:
    """What they allow somebody, of some things."""
    rules = AccessRules(rule for each in acls for rule in rules_of(each))
    places = {
        "clicks": Resource.topic("clicks"),
        "click": Resource.topic("click"),
        "group": Resource.group("clicks"),
        "cluster": CLUSTER,
    }
    return {
        f"{operation} {name}"
        for name, place in places.items()
        for operation in Operation
        if rules.allows(principal, groups, operation, place)
    }


@pytest.mark.parametrize(
    ("made", "allowed"),
    [
        (acl(), {"consume clicks", "describe clicks"}),
        (acl("WRITE"), {"produce clicks", "describe clicks"}),
        (acl("CREATE"), {"create clicks"}),
        (acl("DELETE"), {"delete clicks", "describe clicks"}),
        (acl("DESCRIBE"), {"describe clicks"}),
        (acl("DESCRIBE_CONFIGS"), {"describe clicks"}),
        (acl("ALTER"), {"admin clicks", "describe clicks"}),
        (acl("ALTER_CONFIGS"), {"admin clicks", "describe clicks"}),
        (
            acl("DELETE", pattern="PREFIXED", name="cli"),
            {f"{what} {name}" for what in ("delete", "describe") for name in ("click", "clicks")},
        ),
        (
            acl("DELETE", name="*"),
            {f"{what} {name}" for what in ("delete", "describe") for name in ("click", "clicks")},
        ),
        (acl("READ", "GROUP"), {"group group", "describe group"}),
        (acl("DELETE", "GROUP"), {"group group", "describe group"}),
        (acl("DESCRIBE", "GROUP"), {"describe group"}),
        (acl("ALTER", "CLUSTER", "kafka-cluster"), {"admin cluster", "describe cluster"}),
        (acl("DESCRIBE", "CLUSTER", "kafka-cluster"), {"describe cluster"}),
        (acl("CLUSTER_ACTION", "CLUSTER", "kafka-cluster"), {"replicate cluster"}),
        (acl("CREATE", "CLUSTER", "kafka-cluster"), {"create clicks", "create click"}),
        (acl("IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster"), set()),
    ],
)
def test_each_allows_what_it_says(made: Acl, allowed: set[str]) -> None:
    assert may(made) == allowed
    assert may(made, principal="bob") == set()


def test_all_is_all_of_one_kind() -> None:
    of_topics = {f"{each} clicks" for each in OPERATIONS_ON[ResourceKind.TOPIC]}
    assert may(acl("ALL")) == of_topics
    assert may(acl("ALL", "GROUP")) == {"group group", "describe group"}
    of_cluster = {"admin cluster", "describe cluster", "replicate cluster"}
    cluster = of_cluster | {"create clicks", "create click"}
    assert may(acl("ALL", "CLUSTER", "kafka-cluster")) == cluster


def test_what_is_denied_is_denied_to_whom_it_is() -> None:
    everybody = acl("ALL", principal="User:*")
    assert "produce clicks" not in may(everybody, acl("WRITE", permission="DENY"))
    assert "consume clicks" in may(everybody, acl("WRITE", permission="DENY"))
    assert "produce clicks" in may(everybody, acl("WRITE", permission="DENY"), principal="bob")
    cluster = acl("ALL", "CLUSTER", "kafka-cluster")
    denied = acl("DESCRIBE", "CLUSTER", "kafka-cluster", permission="DENY")
    assert may(cluster, denied) == may(cluster) - {"describe cluster"}


def test_groups_of_users_and_who_is_nobody() -> None:
    analysts = frozenset({"analysts"})
    assert may(acl("CREATE", principal="Group:analysts"), groups=analysts) == {"create clicks"}
    assert may(acl("CREATE", principal="Group:analysts")) == set()
    assert may(acl("CREATE", principal="User:ANONYMOUS"), principal="anonymous") != set()


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (acl(host="10.0.0.1"), "all hosts"),
        (acl(principal="alice"), "nobody here"),
        (acl(principal="User:"), "nobody here"),
        (acl(principal="User:web-*"), "nobody here"),
        (acl(principal="User:group:ops"), "nobody here"),
        (acl(principal="Group:*"), "nobody here"),
        (acl("DESCRIBE", "DELEGATION_TOKEN"), "nothing of the kind DELEGATION_TOKEN"),
        (acl("READ", "TRANSACTIONAL_ID"), "no READ of a transactional_id"),
        (acl("WRITE", "GROUP"), "no WRITE of a group"),
        (acl("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster"), "no DESCRIBE_CONFIGS of a cluster"),
        (acl("ALTER_CONFIGS", "CLUSTER", "kafka-cluster"), "no ALTER_CONFIGS of a cluster"),
        *(
            (acl(each, "CLUSTER", "kafka-cluster", permission="DENY"), "only DESCRIBE can be")
            for each in ("ALL", "ALTER", "CREATE", "IDEMPOTENT_WRITE")
        ),
        (acl(principal="User:anonymous"), "User:ANONYMOUS"),
        (acl(principal="User:hermes-internal"), "nobody here"),
        (acl(name=""), "empty name"),
        (acl(name="", pattern="PREFIXED"), "empty name"),
        (acl()._replace(pattern=MATCH), "2 is not a valid AclPattern"),
        (acl()._replace(permission=ANY), "1 is not a valid AclPermission"),
        (acl("READ", "GROUP", "x*"), "for a pattern"),
        (acl("READ", "GROUP", "/x/"), "for a pattern"),
        (acl(name="x" * 256), "up to 255"),
    ],
)
def test_what_rules_cannot_say_is_refused(made: Acl, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        rules_of(made)


def test_rules_of_a_file_are_shown() -> None:
    some = frozenset({Operation.CONSUME, Operation.ADMIN})
    shown = [*acls_of(AccessRule("alice", some, topic="web-*"))]
    assert shown == [
        acl(each, name="web-", pattern="PREFIXED") for each in ("READ", "ALTER", "ALTER_CONFIGS")
    ]
    everything = AccessRule("anonymous", frozenset(Operation))
    assert [*acls_of(everything)] == [
        acl("ALL", "TOPIC", "*", principal="User:ANONYMOUS"),
        acl("ALL", "GROUP", "*", principal="User:ANONYMOUS"),
        acl("ALL", "TRANSACTIONAL_ID", "*", principal="User:ANONYMOUS"),
        acl("ALL", "CLUSTER", "kafka-cluster", principal="User:ANONYMOUS"),
    ]
    denied = AccessRule("group:ops", frozenset({Operation.GROUP}), group="/a|b/", allow=False)
    assert [*acls_of(denied)] == [
        acl(each, "GROUP", "/a|b/", principal="Group:ops", permission="DENY")
        for each in ("READ", "DELETE")
    ]
    admin = AccessRule("alice", frozenset({Operation.ADMIN}), cluster=True)
    assert [*acls_of(admin)] == [acl("ALTER", "CLUSTER", "kafka-cluster")]
    # Topics are created all the same.
    denied = AccessRule("alice", frozenset(Operation), allow=False, cluster=True)
    assert {each.operation for each in acls_of(denied)} == {
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
    }


@pytest.mark.parametrize("kind", ["TOPIC", "GROUP"])
def test_what_was_made_is_shown_as_it_was(kind: str) -> None:
    for operation in ("ALL", "DESCRIBE") if kind == "GROUP" else ("ALL", "READ", "CREATE"):
        for pattern in AclPattern:
            made = acl(operation, kind, pattern=pattern.name)
            (rule,) = rules_of(made)
            assert made in [*acls_of(rule)]


def test_filters() -> None:
    acls = [acl(), acl(name="*"), acl(name="cli", pattern="PREFIXED"), acl("READ", "GROUP")]

    def names(kind: int, name: str | None, pattern: int, principal: str | None = None) -> list[str]:
        wanted = AclFilter(kind, name, pattern, principal, None, ANY, ANY)
        return [f"{each.kind} {each.name}" for each in acls if wanted.matches(each)]

    assert len(names(ANY, None, ANY)) == 4
    assert names(AclKind.TOPIC, "clicks", ANY) == ["2 clicks"]
    assert names(AclKind.TOPIC, "clicks", MATCH) == ["2 clicks", "2 *", "2 cli"]
    assert names(AclKind.TOPIC, None, AclPattern.PREFIXED) == ["2 cli"]
    assert names(AclKind.TOPIC, "cli", AclPattern.LITERAL) == []
    assert names(ANY, None, ANY, "User:bob") == []
