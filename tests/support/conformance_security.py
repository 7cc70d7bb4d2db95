"""Scenes of what administrators set for everybody: ACLs, quotas, users; and of who produces."""

from collections.abc import Sequence
from typing import Any

from conformance_steps import Scene, batch, produce
from conformance_transactions import await_coordinator
from kafka_raw import ANY_ACL, parts

from hermes.security.acls import AclKind, AclOperation, AclPattern, AclPermission

__all__ = ["GUARDED_SETTINGS", "SECURITY_DIFFERENCES", "SECURITY_SCENES", "guarded"]

#: Of the Kafka on which `guarded` is played, where whoever connects is an administrator.
GUARDED_SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}

_INTERNALLY = "Kafka fails internally and has no better error"
_FINER = "rules don't go by hosts, nor by kinds of resources that Hermes lacks"

#: As in `conformance`.
SECURITY_DIFFERENCES = {
    ("guarded", "any operation"): _INTERNALLY,
    ("guarded", "any permission"): _INTERNALLY,
    ("guarded", "any kind"): _INTERNALLY,
    ("guarded", "matching"): _INTERNALLY,
    ("guarded", "of a host"): _FINER,
    ("guarded", "of a user"): _FINER,
    ("quotas", "of a client id"): "quotas are of users, and of bytes",
    ("quotas", "of an address"): "quotas are of users, and of bytes",
    ("quotas", "of processor time"): "quotas are of users, and of bytes",
}

_ALLOW = {"host": "*", "operation": AclOperation.READ, "permission_type": AclPermission.ALLOW}


def _acl(name: str = "clicks", **changed: Any) -> dict[str, Any]:
    made = {
        "resource_type": AclKind.TOPIC,
        "resource_name": name,
        "resource_pattern_type": AclPattern.LITERAL,
        "principal": "User:alice",
        **_ALLOW,
    }
    return {key: int(each) if isinstance(each, int) else each for key, each in made.items()} | {
        key: int(each) if isinstance(each, int) else each for key, each in changed.items()
    }


def _create(scene: Scene, label: str, *acls: dict[str, Any], version: int = 3) -> None:
    make = parts("CreateAcls", version)
    creations = tuple(make.AclCreation(**each) for each in acls)
    scene.ask(label, "CreateAcls", version, creations=creations)


def _delete(scene: Scene, label: str, *filters: dict[str, Any], version: int = 3) -> None:
    make = parts("DeleteAcls", version)
    wanted = tuple(make.DeleteAclsFilter(**ANY_ACL | each) for each in filters)
    scene.ask(label, "DeleteAcls", version, filters=wanted)


def _describe(scene: Scene, label: str, version: int = 3, **wanted: Any) -> None:
    scene.ask(label, "DescribeAcls", version, **ANY_ACL | wanted)


# -- without an authorizer ----------------------------------------------------------------------


def unguarded(scene: Scene) -> None:
    """Requests about ACLs where nobody decides."""
    for version in range(1, 4):
        _describe(scene, f"DescribeAcls {version}", version)
        _create(scene, f"CreateAcls {version}", _acl(), version=version)
        _delete(scene, f"DeleteAcls {version}", {}, {}, version=version)


def quotas(scene: Scene) -> None:
    """Quotas of users, made, shown and taken away; and those that there are none of."""
    user, everybody = ("user", "alice"), ("user", None)
    for v in range(2):
        _alter_quotas(scene, f"AlterClientQuotas {v}", [user], producer_byte_rate=1000, version=v)
        _settle_quotas(scene, 1)
        _describe_quotas(scene, f"DescribeClientQuotas {v}", ("user", 2, None), version=v)
    _alter_quotas(scene, "more of it", [user], consumer_byte_rate=2000, producer_byte_rate=500)
    _alter_quotas(scene, "of the others", [everybody], consumer_byte_rate=77)
    _alter_quotas(scene, "only checked", [("user", "bob")], consumer_byte_rate=1, is_check=True)
    _settle_quotas(scene, 2)
    _describe_quotas(scene, "all of them")
    _describe_quotas(scene, "strictly none", is_strict=True)
    _describe_quotas(scene, "the default", ("user", 1, None))
    _describe_quotas(scene, "of one", ("user", 0, "alice"), is_strict=True)
    _describe_quotas(scene, "of one that isn't there", ("user", 0, "nobody"))
    _describe_quotas(scene, "of client ids", ("client-id", 2, None))
    _describe_quotas(scene, "of a user's client ids", ("user", 2, None), ("client-id", 2, None))
    _describe_quotas(scene, "of a kind twice", ("user", 2, None), ("user", 1, None))
    _describe_quotas(scene, "of another kind", ("planet", 2, None))
    _describe_quotas(scene, "matched otherwise", ("user", 9, None))
    _describe_quotas(scene, "of an address and a user", ("ip", 2, None), ("user", 2, None))
    _alter_quotas(scene, "of nobody", [], producer_byte_rate=1)
    _alter_quotas(scene, "of an empty name", [("user", "")], producer_byte_rate=1)
    _alter_quotas(scene, "of an unknown kind", [("planet", "mars")], producer_byte_rate=1)
    _alter_quotas(scene, "of a client id", [("client-id", "c")], producer_byte_rate=1)
    _alter_quotas(scene, "of an address", [("ip", "10.0.0.1")], connection_creation_rate=1)
    _alter_quotas(scene, "of processor time", [user], request_percentage=50)
    _alter_quotas(scene, "an unknown key", [user], bytes_per_century=5)
    _alter_quotas(scene, "a key of addresses", [user], connection_creation_rate=5)
    _alter_quotas(scene, "a fraction", [user], producer_byte_rate=1.5)
    _alter_quotas(scene, "zero", [user], producer_byte_rate=0)
    _alter_quotas(scene, "too much", [user], producer_byte_rate=1e19)
    gone = {"producer_byte_rate": None, "consumer_byte_rate": None, "request_percentage": None}
    _alter_quotas(scene, "taken away", [user], **{k: gone[k] for k in list(gone)[:2]})
    _alter_quotas(scene, "taken away again", [user], producer_byte_rate=None)
    _alter_quotas(scene, "the others', too", [everybody], consumer_byte_rate=None)
    for entity in (("client-id", "c"), ("ip", "10.0.0.1"), ("user", "alice")):
        make = parts("AlterClientQuotas", 1)
        key = "connection_creation_rate" if entity[0] == "ip" else "request_percentage"
        if entity[0] == "client-id":
            key = "producer_byte_rate"
        op = make.OpData(key=key, value=0.0, remove=True)
        entry = _quota_entry(make, [entity], [op])
        scene.client.ask("AlterClientQuotas", 1, entries=(entry,), validate_only=False)
    _settle_quotas(scene, 0)
    _describe_quotas(scene, "none is left")


def _quota_entry(make: Any, entity: Sequence[tuple[str, str | None]], ops: Sequence[Any]) -> Any:
    named = tuple(make.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
    return make.EntryData(entity=named, ops=tuple(ops))


def _alter_quotas(
    scene: Scene,
    label: str,
    entity: Sequence[tuple[str, str | None]],
    *,
    version: int = 1,
    is_check: bool = False,
    **limits: float | None,
) -> None:
    make = parts("AlterClientQuotas", version)
    ops = [
        make.OpData(key=key, value=float(value or 0), remove=value is None)
        for key, value in limits.items()
    ]
    entry = _quota_entry(make, entity, ops)
    scene.ask(label, "AlterClientQuotas", version, entries=(entry,), validate_only=is_check)


def _describe_quotas(
    scene: Scene,
    label: str,
    *components: tuple[str, int, str | None],
    version: int = 1,
    is_strict: bool = False,
) -> None:
    make = parts("DescribeClientQuotas", version)
    wanted = tuple(
        make.ComponentData(entity_type=kind, match_type=how, match=name)
        for kind, how, name in components
    )
    scene.ask(label, "DescribeClientQuotas", version, components=wanted, strict=is_strict)


def _settle_quotas(scene: Scene, count: int) -> None:
    """Wait until so many users have quotas: a Kafka's broker hears of it later."""
    make = parts("DescribeClientQuotas", 1)
    users = (make.ComponentData(entity_type="user", match_type=2, match=None),)

    def is_so() -> bool:
        found = scene.client.ask("DescribeClientQuotas", 1, components=users, strict=True)
        return len(found.entries) == count

    scene.wait_until(is_so, f"{count} users do not get quotas")


def producing(scene: Scene) -> None:
    """Who produces, and transactions that there are none of."""
    numbered = {"producer_id": 4000, "producer_epoch": 2, "base_sequence": 0}
    produce(scene, "filled", batch(b"a", b"b", **numbered))
    make = parts("DescribeProducers", 0)
    asked = (
        make.TopicRequest(name=scene.topic, partition_indexes=(0, 1, 7)),
        make.TopicRequest(name="nobody-has-this", partition_indexes=(0,)),
    )
    scene.ask("DescribeProducers 0", "DescribeProducers", 0, topics=asked)
    scene.ask("of nothing", "DescribeProducers", 0, topics=())
    for v in range(3):
        wanted = {"state_filters": ("Ongoing", "Waiting"), "producer_id_filters": (4000,)}
        more = {"duration_filter": -1, "transactional_id_pattern": "a.*"}
        scene.ask(f"ListTransactions {v}", "ListTransactions", v, **wanted, **more)
    more = {"duration_filter": -1, "transactional_id_pattern": "(a"}
    nothing: dict[str, Any] = {"state_filters": (), "producer_id_filters": ()}
    scene.ask("no regular expression", "ListTransactions", 2, **nothing, **more)
    ids = ("a", "b")
    for each in ids:
        await_coordinator(scene, each)
    scene.ask("DescribeTransactions 0", "DescribeTransactions", 0, transactional_ids=ids)


# -- with one -----------------------------------------------------------------------------------


def guarded(address: str) -> dict[str, Any]:
    """Play the scene of a broker with an authorizer; what was answered, by the steps' labels."""
    scene = Scene(address, "nothing")
    try:
        _acls(scene)
        _users(scene)
        return scene.answers
    finally:
        scene.client.close()


def _acls(scene: Scene) -> None:
    for version in range(1, 4):
        _create(scene, f"CreateAcls {version}", _acl(f"t-{version}"), version=version)
    _create(
        scene,
        "more of them",
        _acl("web-", resource_pattern_type=4, operation=AclOperation.WRITE),
        _acl("*", principal="User:*", permission_type=AclPermission.DENY),
        _acl("readers", resource_type=AclKind.GROUP),
        _acl("kafka-cluster", resource_type=AclKind.CLUSTER, operation=AclOperation.ALTER),
    )
    _settle_acls(scene, 7)
    for version in range(1, 4):
        _describe(scene, f"DescribeAcls {version}", version, principal_filter="User:alice")
    alice = {"principal_filter": "User:alice"}
    _describe(scene, "of topics", resource_type_filter=2, **alice)
    _describe(scene, "of a name", resource_name_filter="t-1", resource_type_filter=2)
    _describe(scene, "what matches", resource_name_filter="web-1", pattern_type_filter=2, **alice)
    _describe(scene, "by its beginning", pattern_type_filter=4)
    _describe(scene, "of WRITE", operation=4)
    _describe(scene, "of what is denied", permission_type=2)
    _describe(scene, "of nobody", principal_filter="User:nobody")
    _describe(scene, "of another host", host_filter="10.0.0.1")
    _describe(scene, "of an unknown kind", resource_type_filter=99)
    _create(scene, "again", _acl("t-1"))
    for label, changed in {
        "no name": {"name": ""},
        "another cluster": {"name": "mine", "resource_type": 4},
        "no principal": {"principal": "alice"},
        "any operation": {"operation": 1},
        "any permission": {"permission_type": 1},
        "any kind": {"resource_type": 1},
        "matching": {"resource_pattern_type": 2},
        "of a host": {"host": "10.0.0.1"},
        "of a transactional id": {"resource_type": 5, "operation": 4},
        "of a user": {"resource_type": 7, "name": "User:x", "operation": 13},
    }.items():
        _create(scene, label, _acl(**{"name": "odd", **changed}))
    _create(scene, "one good, one not", _acl("good"), _acl(""))
    _settle_acls(scene, 1, resource_name_filter="good")
    _delete(scene, "one", {"resource_name_filter": "good"})
    _delete(scene, "none", {"resource_name_filter": "good", "resource_type_filter": 3})
    _delete(scene, "two filters", {"permission_type": 2}, {"resource_type_filter": 3, **alice})
    _delete(scene, "an unknown kind", {"resource_type_filter": 99})
    for version in range(1, 4):
        one = {"resource_name_filter": f"t-{version}"}
        _delete(scene, f"DeleteAcls {version}", one, version=version)


def _settle_acls(scene: Scene, count: int, **wanted: Any) -> None:
    """Wait until there are so many, besides those of a broker.yaml."""

    def is_so() -> bool:
        found = scene.client.ask("DescribeAcls", 3, **ANY_ACL | wanted)
        acls = [acl for each in found.resources for acl in each.acls]
        return len([each for each in acls if each.principal != "User:ANONYMOUS"]) == count

    scene.wait_until(is_so, f"there are not {count} ACLs")


_SALTED = {1: bytes(range(32)), 2: bytes(range(64))}


def _users(scene: Scene) -> None:
    _alter_users(scene, "AlterUserScramCredentials 0", made=[("bob", 1), ("eve", 2)])
    _settle_users(scene, 2)
    _alter_users(scene, "another mechanism", made=[("bob", 2)], iterations=5000)
    _settle_users(scene, 2, "bob")
    _describe_users(scene, "DescribeUserScramCredentials 0", ("bob", "eve"))
    _describe_users(scene, "all users", None)
    _describe_users(scene, "no users", ())
    _describe_users(scene, "nobody", ("nobody", "bob"))
    _describe_users(scene, "twice", ("bob", "bob"))
    _alter_users(scene, "altered twice", made=[("bob", 1), ("bob", 2)])
    _alter_users(scene, "made and deleted", made=[("bob", 1)], gone=[("bob", 2)])
    _alter_users(scene, "too few iterations", made=[("bob", 1)], iterations=4095)
    _alter_users(scene, "too many iterations", made=[("bob", 1)], iterations=16385)
    _alter_users(scene, "an unknown mechanism of a user", made=[("bob", 9)])
    _alter_users(scene, "a user without a name", made=[("", 1)])
    _alter_users(scene, "nobody is deleted", gone=[("nobody", 1)])
    _alter_users(scene, "a mechanism that eve lacks", gone=[("eve", 1)])
    _alter_users(scene, "an unknown mechanism is deleted", gone=[("bob", 9)])
    _alter_users(scene, "deleted", gone=[("bob", 1), ("eve", 2)])
    _settle_users(scene, 1)
    _alter_users(scene, "the last one", gone=[("bob", 2)])
    _settle_users(scene, 0)
    _describe_users(scene, "none is left", None)


def _alter_users(
    scene: Scene,
    label: str,
    made: Sequence[tuple[str, int]] = (),
    gone: Sequence[tuple[str, int]] = (),
    iterations: int = 8192,
) -> None:
    make = parts("AlterUserScramCredentials", 0)
    upsertions = tuple(
        make.ScramCredentialUpsertion(
            name=name,
            mechanism=mechanism,
            iterations=iterations,
            salt=b"a salt of theirs",
            salted_password=_SALTED.get(mechanism, b"x"),
        )
        for name, mechanism in made
    )
    deletions = tuple(
        make.ScramCredentialDeletion(name=name, mechanism=mechanism) for name, mechanism in gone
    )
    scene.ask(label, "AlterUserScramCredentials", 0, deletions=deletions, upsertions=upsertions)


def _describe_users(scene: Scene, label: str, names: Sequence[str] | None) -> None:
    make = parts("DescribeUserScramCredentials", 0)
    users = None if names is None else tuple(make.UserName(name=each) for each in names)
    scene.ask(label, "DescribeUserScramCredentials", 0, users=users)


def _settle_users(scene: Scene, count: int, name: str = "") -> None:
    """Wait until there are so many users; or until one has so many credentials."""

    def is_so() -> bool:
        found = scene.client.ask("DescribeUserScramCredentials", 0, users=None).results
        if name:
            return [len(e.credential_infos) for e in found if e.user == name] == [count]
        return len(found) == count

    scene.wait_until(is_so, f"there are not {count} users")


SECURITY_SCENES = {each.__name__: each for each in (unguarded, quotas, producing)}
