"""What Kafka's clients set for the broker: kept within bounds, and beside broker.yaml."""

from dataclasses import replace
from pathlib import Path

import pytest

from hermes.config.broker import BrokerConfig
from hermes.config.quotas import Quota
from hermes.config.requested import (
    MOST_ENTRIES,
    Requested,
    in_both,
    quota_in_force,
    with_acls,
    without_acls,
)
from hermes.errors import ConfigError
from hermes.security import AccessRule, Operation
from hermes.security.acls import Acl

READ = Acl(2, "clicks", 3, "User:alice", "*", 3, 3)
WRITE = READ._replace(operation=4)


def test_it_is_read_as_it_was_written() -> None:
    requested = Requested(frozenset({READ, WRITE}), {"alice": Quota(bytes_in=5)})
    assert Requested.decode(requested.encode()) == requested
    assert Requested.decode(requested.encode()).rules == requested.rules
    assert len(requested.rules) == 2
    assert Requested.decode(b"") == Requested()


def test_what_broker_yaml_says_of_the_same_names_is_found() -> None:
    denied = READ._replace(permission=2)
    requested = Requested(frozenset({denied, WRITE}), {"alice": Quota(bytes_in=5)})
    both = frozenset({Operation.CONSUME, Operation.PRODUCE})
    alike = AccessRule("alice", both, topic="clicks")
    others = (
        AccessRule("alice", frozenset({Operation.PRODUCE}), topic="clicks"),
        AccessRule("alice", both, topic="click*"),
        AccessRule("bob", both, topic="clicks"),
        AccessRule("alice", frozenset({Operation.CONSUME}), topic="clicks", allow=False),
    )
    found = in_both((*others, alike), ("alice", "bob"), requested)
    assert found == [str(alike), "the quota of alice"]


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b"[" * 100_000,
        b"{}",
        b'{"acls": [], "quotas": {}, "x": 1}',
        b'{"acls": [[1]], "quotas": {}}',
        b'{"acls": [[2, "", 4, "User:alice", "*", 3, 3]], "quotas": {}}',
        b'{"acls": [[2, "clicks", 3, "User:alice", "*", 3, 1]], "quotas": {}}',
        b'{"acls": [], "quotas": {"alice": {"bytes_in": 0}}}',
        b'{"acls": [], "quotas": {"alice": {"bytes_in": true}}}',
        b'{"acls": [], "quotas": {"alice": {"bytes_in": [1]}}}',
        b'{"acls": [], "quotas": {"alice": {}}}',
    ],
)
def test_what_it_does_not_know_it_does_not_read(data: bytes) -> None:
    with pytest.raises(ConfigError, match="can't be read"):
        Requested.decode(data)


def test_there_is_a_bound() -> None:
    acls = frozenset(READ._replace(name=f"t{n}") for n in range(MOST_ENTRIES + 1))
    with pytest.raises(ConfigError, match="2000 ACLs"):
        Requested(acls)
    with pytest.raises(ConfigError, match="2000 ACLs"):
        Requested(quotas=dict.fromkeys(map(str, range(MOST_ENTRIES + 1)), Quota(bytes_in=1)))
    long = frozenset(
        READ._replace(name=f"{n:0>250}", principal=f"User:{n:0>250}") for n in range(1500)
    )
    with pytest.raises(ConfigError, match="512 KiB"):
        Requested(long).encode()


def test_no_rules_are_made_of_more_than_there_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Acl] = []
    monkeypatch.setattr("hermes.config.requested.rules_of", lambda acl: made.append(acl) or ())
    many = [READ._replace(name=f"t{n}") for n in range(50_000)]
    with pytest.raises(ConfigError, match="2000 ACLs"):
        with_acls(many)(Requested())
    assert not made


def test_changes() -> None:
    made = with_acls([READ, WRITE])(Requested(quotas={"a": Quota(bytes_in=1)}))
    assert made.acls == {READ, WRITE}
    left = without_acls([WRITE])(made)
    assert (left.acls, left.quotas) == ({READ}, {"a": Quota(bytes_in=1)})


def test_its_rules_follow_those_of_broker_yaml() -> None:
    given = AccessRule("admin", frozenset({Operation.ADMIN}))
    config = BrokerConfig(broker_id=0, log_dir=Path("logs"), requested=Requested(frozenset({READ})))
    assert config.rules is None
    assert replace(config, access=(given,)).rules == (given, *config.requested.rules)
    assert replace(config, access=(given,), authorizer="a-plugin").rules == (given,)


def test_broker_yamls_quota_of_a_name_wins() -> None:
    given = {"alice": Quota(bytes_in=1), "web-*": Quota(bytes_in=2, connections=5)}
    requested = {
        "alice": Quota(bytes_in=10),
        "web-1": Quota(bytes_in=20, bytes_out=21),
        "default": Quota(bytes_out=30),
    }

    def of(principal: str) -> Quota | None:
        return quota_in_force(given, requested, principal)

    assert of("alice") == Quota(bytes_in=1)
    assert of("web-1") == Quota(bytes_in=20, bytes_out=21, connections=5)
    assert of("web-2") == Quota(bytes_in=2, connections=5)
    assert of("bob") == of("default") == Quota(bytes_out=30)
    assert quota_in_force({}, {"bob": Quota(bytes_in=1)}, "eve") is None
