"""What every authenticator must do, run on each that is installed, and on the example's.

A third party's gets a place in `KINDS`: what makes it, with the users that the tests expect.
"""

import importlib.util
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from zope.interface.verify import verifyObject

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import AuthenticatorSettings, Disguise, IAuthenticator, User
from hermes.plugins import available, load_plugin
from hermes.security.passwords import make_verifier, verify_password
from hermes.security.scram import MECHANISMS, ScramClient, ScramServer
from hermes.security.users_file import change_users_file

GROUP = "hermes.authenticators"
EXAMPLE = Path(__file__).parents[2] / "examples" / "plugin-package" / "src" / "acme_hermes"


class Made(NamedTuple):
    """An authenticator with two users: alice (password wonder, group web) and bob (no password)."""

    make: Callable[[], Any]  # it, or once more the same, as after a restart
    add_carol: Callable[[], None]


def made_of_a_file(directory: Path) -> Made:
    path = directory / "users"
    change_users_file(
        path,
        lambda users: users.with_user("alice", "wonder", ["web"], iterations=4096).with_user(
            "bob", None
        ),
        may_create=True,
    )

    def add_carol() -> None:
        change_users_file(path, lambda users: users.with_user("carol", None))

    settings = AuthenticatorSettings(str(path))
    return Made(lambda: load_plugin(GROUP, "users-file", IAuthenticator, settings), add_carol)


def made_of_the_example(directory: Path) -> Made:
    path = directory / "people.db"
    database = sqlite3.connect(path)
    database.execute("create table people (name text primary key, verifiers text, teams text)")
    verifiers = " ".join(make_verifier("wonder", each, 4096).text for each in MECHANISMS)
    database.executemany(
        "insert into people values (?, ?, ?)", [("alice", verifiers, "web"), ("bob", "", "")]
    )
    database.commit()

    def add_carol() -> None:
        database.execute("insert into people values ('carol', '', '')")
        database.commit()
        database.close()

    options = {"database": str(path), "secret": "x" * 32}
    people = _example("people").People
    return Made(lambda: people(AuthenticatorSettings(None, options)), add_carol)


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"acme_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KINDS = {"users-file": made_of_a_file, "the example": made_of_the_example}


def test_each_that_is_installed_is_here() -> None:
    assert set(available(GROUP)) <= KINDS.keys()


@pytest.fixture(params=KINDS.values(), ids=KINDS.keys())
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return request.param(tmp_path)  # type: ignore[no-any-return]


def test_it_provides_the_interface(made: Made) -> None:
    assert verifyObject(IAuthenticator, made.make())


def test_it_finds_users_and_nobody_else(made: Made) -> None:
    authenticator = made.make()
    alice = authenticator.find("alice")
    assert isinstance(alice, User)
    assert (alice.name, alice.groups) == ("alice", {"web"})
    assert [each.mechanism for each in alice.verifiers] == list(MECHANISMS)
    assert authenticator.find("bob") == User("bob")
    for name in ("nobody", "ALICE", "alice ", "' or 1=1 --", "", "%", "\0", "x" * 255, "\u2603"):
        assert authenticator.find(name) is None


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_whoever_knows_the_password_is_the_user(made: Made, mechanism: str) -> None:
    authenticator = made.make()
    assert verify_password(authenticator, "alice", "wonder") == authenticator.find("alice")
    for user, password in (("alice", "wrong"), ("bob", ""), ("bob", "x"), ("nobody", "x")):
        with pytest.raises(NotAuthenticatedError):
            log_in(authenticator, user, password, mechanism)
    assert log_in(authenticator, "alice", "wonder", mechanism) == authenticator.find("alice")


def log_in(authenticator: Any, user: str, password: str, mechanism: str) -> User:
    client = ScramClient(user, password, mechanism)
    server = ScramServer(mechanism, authenticator)
    found, final = server.finish(client.answer(server.challenge(client.first())))
    client.verify(final)
    return found


def test_nobody_looks_like_a_user_before_and_after_a_restart(made: Made) -> None:
    authenticator = made.make()
    disguise, alice = authenticator.disguise(), authenticator.find("alice")
    assert isinstance(disguise, Disguise)
    assert disguise == authenticator.disguise() == made.make().disguise()
    assert len(disguise.secret) >= 32
    assert disguise.iterations == alice.verifiers[0].iterations
    assert disguise.salt_bytes == len(alice.verifiers[0].salt)


def test_a_change_is_another_revision(made: Made) -> None:
    authenticator = made.make()
    before = authenticator.revision()
    assert authenticator.revision() == before
    made.add_carol()
    assert made.make().find("carol") == User("carol")
    if before is not None:
        while authenticator.revision() == before:
            pass
        assert authenticator.find("carol") == User("carol")


def test_several_threads_may_ask_at_once(made: Made) -> None:
    authenticator = made.make()
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(authenticator.find, ["alice", "nobody"] * 200))
    assert found == [authenticator.find("alice"), None] * 200


def test_it_shows_no_secrets(made: Made) -> None:
    authenticator = made.make()
    alice, disguise = authenticator.find("alice"), authenticator.disguise()
    shown = repr(authenticator) + repr(alice) + repr(disguise)
    secrets = [disguise.secret, *(each.stored_key for each in alice.verifiers)]
    for secret in secrets:
        assert repr(secret)[2:-1] not in shown
