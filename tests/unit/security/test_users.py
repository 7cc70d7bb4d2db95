"""The users file: what it may hold, how it is changed, what is refused without showing it."""

from pathlib import Path

import pytest

from hermes.errors import ConfigError
from hermes.security.passwords import verify_password
from hermes.security.users import Users

KEY = "A" * 43 + "="
VERIFIER = f"SCRAM-SHA-256$4096:{'A' * 22}==${KEY}:{KEY}"
LONG = f"SCRAM-SHA-512$4096:{'A' * 22}==${'A' * 86}==:{'A' * 86}=="


def made() -> Users:
    return Users.none().with_user("alice", "a", ["ops", "dev"], iterations=4096)


def test_what_is_written_is_read_as_it_was() -> None:
    users = made().with_user("Ü", "u", iterations=4096).with_user("by-certificate", None, ["web"])
    again = Users.parse(users.encode())
    assert again.names == ["alice", "Ü", "by-certificate"]
    assert again.by_name == users.by_name
    assert again.secret == users.secret
    assert again.groups("alice") == {"ops", "dev"}
    assert again.groups("nobody") == frozenset()
    assert again.encode() == users.encode()


def test_a_user_has_a_verifier_of_each_mechanism_and_salts_of_its_own() -> None:
    verifiers = made().verifier("alice")
    assert verifiers is not None
    assert [each.mechanism for each in verifiers] == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    assert len({each.salt for each in verifiers}) == 2
    assert made().verifier("alice") != verifiers, "the same password, but other salts"


def test_changes_concern_one_user() -> None:
    users = made().with_user("bob", "b", iterations=4096)
    changed = users.with_password("alice", "new", iterations=4096)
    assert changed.verifier("bob") == users.verifier("bob")
    assert verify_password(changed, "alice", "new")
    assert not verify_password(changed, "alice", "a")
    assert changed.groups("alice") == {"ops", "dev"}
    assert users.with_groups("alice", ["x"]).verifier("alice") == users.verifier("alice")
    assert users.without("alice").names == ["bob"]


def test_comments_stay_where_they_are() -> None:
    text = f"secret={KEY}\n# the team\nalice:{VERIFIER}\n\n# bots\nbob:{VERIFIER}\n# the end\n"
    users = Users.parse(text.encode())
    assert users.encode().decode() == text
    assert users.without("alice").encode().decode() == (
        f"secret={KEY}\n\n# bots\nbob:{VERIFIER}\n# the end\n"
    )


def test_a_new_file_says_what_it_is() -> None:
    assert made().encode().startswith(b"# Users of Hermes")
    assert Users.none().encode().startswith(b"# Users of Hermes")
    assert made().with_user("b", None).without("alice").without("b").encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("hunter2", "expected NAME:VERIFIER"),
        (":" + VERIFIER, "expected NAME:VERIFIER"),
        ("a b:" + VERIFIER, "expected NAME:VERIFIER"),
        ("alice:hunter2", "'alice': expected a verifier of SCRAM"),
        ("anonymous:" + VERIFIER, "reserved"),
        ("hermes-internal:" + VERIFIER, "reserved"),
        ("\u2168:" + VERIFIER, "SASLprep writes"),
        (f"alice:{VERIFIER}\nalice:{VERIFIER}", "line 2: 'alice' is there twice"),
        (f"alice:{VERIFIER} {VERIFIER}", "two verifiers of one mechanism"),
        (f"alice:{VERIFIER} groups=a groups=b", "groups twice"),
        (f"alice:{VERIFIER} groups=a,,b", "group's name"),
        (f"alice:{VERIFIER} groups=", "group's name"),
        (f"alice:{VERIFIER.replace('4096', '4095')}", "4095 iterations"),
        (f"alice:{VERIFIER.replace('4096', '99999999')}", "99999999 iterations"),
        (f"alice:{VERIFIER.replace('256', '1')}", "expected a verifier of SCRAM"),
        (f"alice:{VERIFIER.replace('256', '512')}", "SCRAM-SHA-512's length"),
        (f"alice:{VERIFIER.replace('A' * 22 + '==', 'AAAA')}", "salt of 'alice' is shorter"),
        (f"alice:{VERIFIER.replace(KEY, 'A' * 43)}", "base64"),
        ("secret=AAAA", "a secret has 32 bytes"),
        (f"secret={KEY}\nsecret={KEY}", "two secrets"),
    ],
)
def test_what_is_no_users_file_is_refused_and_not_shown(line: str, reason: str) -> None:
    with pytest.raises(ConfigError, match="users_file") as raised:
        Users.parse(line.encode(), "users")
    assert reason in str(raised.value)
    assert str(raised.value).startswith("users: ")
    assert "hunter2" not in str(raised.value)
    assert KEY[:20] not in str(raised.value)


def test_both_mechanisms_of_one_user_are_read() -> None:
    assert len(Users.parse(f"alice: {VERIFIER}  {LONG}\r\n".encode()).verifier("alice") or ()) == 2


def test_what_is_not_utf8_is_refused() -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        Users.parse(b"\xff")


@pytest.mark.parametrize("name", ["", "a:b", "a b", "anonymous", "\u2168", "a\0"])
def test_a_name_that_can_not_be_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="user"):
        made().with_user(name, "x")


def test_who_is_there_is_not_added_and_who_is_not_is_not_changed() -> None:
    with pytest.raises(ConfigError, match="there is a user 'alice' already"):
        made().with_user("alice", "x")
    for change in (
        lambda: made().without("bob"),
        lambda: made().with_password("bob", "x"),
        lambda: made().with_groups("bob", []),
    ):
        with pytest.raises(ConfigError, match="there is no user 'bob'"):
            change()


@pytest.mark.parametrize("password", ["", "x" * 1001, "\x00", "\ud800"])
def test_a_password_that_can_not_be_is_refused_and_not_shown(password: str) -> None:
    with pytest.raises(ConfigError, match="password") as raised:
        made().with_user("bob", password)
    assert not password or password not in str(raised.value)


def test_the_broker_itself_is_nobody_of_a_file(tmp_path: Path) -> None:
    own = Users.only("hermes-internal", "secret")
    assert verify_password(own, "hermes-internal", "secret")
    with pytest.raises(ConfigError, match="reserved"):
        Users.parse(own.encode())


def test_groups_may_come_one_by_one() -> None:
    users = Users.none().with_user("alice", None, (each for each in ("ops", "web")))
    assert users.groups("alice") == {"ops", "web"}
    assert users.with_groups("alice", iter(["ops"])).groups("alice") == {"ops"}
