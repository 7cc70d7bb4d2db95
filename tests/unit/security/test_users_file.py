"""The users file on its disk: whose it must be, how it is read again, what a crash leaves."""

import os
from errno import EMFILE
from pathlib import Path

import pytest

from hermes.errors import ConfigError
from hermes.interfaces import AuthenticatorSettings
from hermes.security.users import Users
from hermes.security.users_file import UsersFile, change_users_file, from_settings


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    change_users_file(path, lambda users: users.with_user("alice", None), may_create=True)
    return path


def test_a_new_file_is_its_owners_alone(path: Path) -> None:
    assert path.stat().st_mode & 0o7777 == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["users"]


def test_a_file_is_read_again_when_it_has_changed_but_not_more_than_once_a_second(
    path: Path,
) -> None:
    clock = Clock()
    file = UsersFile(path, clock)
    before = file.revision()
    change_users_file(path, lambda users: users.with_user("bob", None))
    assert file.current().names == ["alice"]
    clock.now += 1
    assert file.current().names == ["alice", "bob"]
    assert file.find("bob")
    assert file.revision() != before
    current = file.current()
    clock.now += 1
    assert file.current() is current


def test_a_file_without_a_secret_has_the_same_one_until_the_process_ends(path: Path) -> None:
    clock = Clock()
    path.write_text("alice:\n")
    file = UsersFile(path, clock)
    before = file.disguise()
    path.write_text("alice:\nbob:\n")
    clock.now += 1
    assert file.current().names == ["alice", "bob"]
    assert file.disguise() == before


@pytest.mark.parametrize("harm", ["nonsense", "mode", "missing", "directory", "pipe"])
def test_a_broken_file_keeps_the_last_good_one_and_says_so(path: Path, harm: str) -> None:
    clock = Clock()
    file = UsersFile(path, clock)
    before, good = file.revision(), path.read_bytes()
    if harm == "nonsense":
        path.write_text("hunter2\n")
    elif harm == "mode":
        path.chmod(0o640)
    else:
        path.unlink()
        if harm == "directory":
            path.mkdir()
        elif harm == "pipe":
            os.mkfifo(path)
    clock.now += 1
    assert file.current().names == ["alice"]
    assert file.problem is not None
    assert str(path) in file.problem
    assert "hunter2" not in file.problem
    assert file.revision() == before
    if harm == "directory":
        path.rmdir()
    else:
        path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_bytes(good)
    clock.now += 1
    assert file.current().names == ["alice"]
    assert file.problem is None
    assert file.revision() != before


def test_a_change_that_could_not_be_read_is_read_later(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever was removed while descriptors were short is refused once they aren't."""
    clock = Clock()
    file = UsersFile(path, clock)
    change_users_file(path, lambda users: users.without("alice"))

    def fail(*_: object) -> int:
        raise OSError(EMFILE, os.strerror(EMFILE))

    with monkeypatch.context() as short:
        short.setattr(os, "open", fail)
        clock.now += 1
        assert file.current().names == ["alice"]
    assert file.problem is not None
    clock.now += 1
    assert file.current().names == []
    assert file.problem is None


def test_a_file_that_can_not_be_used_at_the_start_is_an_error(path: Path) -> None:
    path.chmod(0o604)
    with pytest.raises(ConfigError, match="chmod 600"):
        UsersFile(path)
    path.unlink()
    with pytest.raises(ConfigError, match="hermes users add"):
        UsersFile(path)
    with pytest.raises(ConfigError, match="users_file: needed"):
        from_settings(AuthenticatorSettings())


def test_a_change_that_is_refused_changes_nothing(path: Path) -> None:
    before = path.stat()
    with pytest.raises(ConfigError, match="already"):
        change_users_file(path, lambda users: users.with_user("alice", "x"))
    assert path.stat() == before


def test_no_file_is_written_that_could_not_be_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()
    monkeypatch.setattr("hermes.security.users_file._MOST_BYTES", len(before) + 100)
    with pytest.raises(ConfigError, match="can have up to"):
        change_users_file(path, lambda users: users.with_user("b" * 200, None))
    assert path.read_bytes() == before


def test_there_must_be_a_file_unless_one_may_be_made(path: Path) -> None:
    with pytest.raises(ConfigError, match="can't read"):
        change_users_file(path.with_name("others"), lambda users: users)
    with pytest.raises(ConfigError, match="can't write"):
        change_users_file(path / "x" / "y", lambda users: users, may_create=True)


def test_a_link_stays_and_what_it_leads_to_changes(path: Path) -> None:
    link = path.with_name("link")
    link.symlink_to("users")
    change_users_file(link, lambda users: users.without("alice"))
    assert link.is_symlink()
    assert Users.parse(path.read_bytes()).names == []


def test_what_a_killed_command_left_behind_is_in_nobodys_way(path: Path) -> None:
    path.with_name(".users.new").write_text("half")
    change_users_file(path, lambda users: users.with_user("bob", None))
    assert [each.name for each in path.parent.iterdir()] == ["users"]


@pytest.mark.parametrize("failing", ["fsync", "replace", "fchmod"])
def test_a_disk_that_fails_leaves_the_old_file(
    path: Path, failing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, failing, fail)
        with pytest.raises(ConfigError, match="No space left on device"):
            change_users_file(path, lambda users: users.with_user("bob", None))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["users"]
