"""The cluster's users beside those of a broker's own file, and how they are written down."""

from pathlib import Path

import pytest
from planted_secrets import planted

from hermes.errors import ConfigError
from hermes.security.passwords import disguised, verify_password
from hermes.security.shared_users import (
    MOST_USERS,
    SharedUsers,
    decode_users,
    encode_users,
    none_of_cluster,
)
from hermes.security.users import Users
from hermes.security.users_file import UsersFile

OF_FILE, OF_CLUSTER = planted("the file"), planted("the cluster")


def with_users(users: Users, password: str, *names: str, iterations: int = 4096) -> Users:
    for name in names:
        users = users.with_user(name, password, ["ops"], iterations=iterations)
    return users


@pytest.fixture
def shared(tmp_path: Path) -> SharedUsers:
    path = tmp_path / "users"
    path.touch(mode=0o600)
    path.write_bytes(with_users(Users.none(), OF_FILE, "alice", "bob").encode())
    return SharedUsers(UsersFile(path))


def test_a_user_of_the_file_is_as_it_says_there(shared: SharedUsers) -> None:
    before = shared.revision()
    shared.use(with_users(shared.of_cluster, OF_CLUSTER, "bob", "carol"))
    assert shared.revision() != before
    assert shared.in_both() == ["bob"]
    for name, password in (("alice", OF_FILE), ("bob", OF_FILE), ("carol", OF_CLUSTER)):
        found = verify_password(shared, name, password)
        assert found is not None
        assert found.name == name
    assert verify_password(shared, "bob", OF_CLUSTER) is None
    assert sorted(shared.current().names) == ["alice", "bob", "carol"]
    shared.use(none_of_cluster(shared.file.current()))
    assert shared.find("carol") is None


def test_unknown_names_look_the_same_on_all_brokers(shared: SharedUsers, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.touch(mode=0o600)
    other.write_bytes(with_users(Users.none(), OF_FILE, "alice").encode())
    second = SharedUsers(UsersFile(other))
    cluster = with_users(shared.of_cluster, OF_CLUSTER, "carol")
    before = disguised(shared.disguise(), "eve", "SCRAM-SHA-256")
    for each in (shared, second):
        each.use(decode_users(encode_users(cluster)))
        assert disguised(each.disguise(), "eve", "SCRAM-SHA-256") == before


def test_what_is_written_is_read(shared: SharedUsers) -> None:
    users = with_users(shared.of_cluster, OF_CLUSTER, "bob", "carol").with_user("web", None, ["x"])
    again = decode_users(encode_users(users))
    assert (again.by_name, again.secret) == (users.by_name, users.secret)
    assert OF_CLUSTER.encode() not in encode_users(users)


@pytest.mark.parametrize(
    "damaged",
    [
        b"{",
        b"[]",
        b'{"lines": 5}',
        b'{"lines": [1]}',
        b'{"lines": ["alice"]}',
        b'{"lines": [], "later": 1}',
        b"[" * 100_000,
    ],
)
def test_damage_is_said_without_what_is_there(damaged: bytes) -> None:
    with pytest.raises(ConfigError) as raised:
        decode_users(damaged)
    assert "alice" not in str(raised.value)


def test_there_are_so_many_at_most() -> None:
    users = Users.none()
    for number in range(MOST_USERS):
        users = users.with_user(f"user-{number}", None)
    encode_users(users)
    with pytest.raises(ConfigError, match="2000 users"):
        encode_users(users.with_user("one-more", None))
    with pytest.raises(ConfigError, match="512 KiB"):
        encode_users(Users.none().with_user("alice", None, [f"group-{n}" for n in range(50_000)]))
