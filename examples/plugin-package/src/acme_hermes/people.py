"""Takes users from a database that an application keeps: its own table of people."""

import sqlite3
from contextlib import closing
from urllib.parse import quote

from zope.interface import implementer

from hermes.interfaces import AuthenticatorSettings, Disguise, IAuthenticator, User, Verifier


@implementer(IAuthenticator)
class People:
    """People in SQLite; `authenticator_options: {database: people.db, secret: ...}` says where.

    Their table has `name`, `verifiers` (as PostgreSQL writes them, with spaces between several)
    and `teams` (with commas). The secret, 32 characters or more, stays the same.

    Args:
        settings: what broker.yaml says.
    """

    def __init__(self, settings: AuthenticatorSettings) -> None:
        self._path = settings.options["database"]
        secret = settings.options["secret"].encode()
        if len(secret) < 32:
            raise ValueError("secret: expected 32 characters or more")
        with closing(self._connect()) as database:
            (text,) = database.execute(
                "select verifiers from people where verifiers != '' limit 1"
            ).fetchone() or ("",)
        like = _verifiers(text)
        iterations, salt_bytes = (like[0].iterations, len(like[0].salt)) if like else (4096, 16)
        self._disguise = Disguise(secret, iterations, salt_bytes)

    def find(self, name: str) -> User | None:
        """See `IAuthenticator`."""
        with closing(self._connect()) as database:
            found = database.execute(
                "select verifiers, teams from people where name = ?", (name,)
            ).fetchone()
        if found is None:
            return None
        verifiers, teams = found
        return User(name, _verifiers(verifiers), frozenset(filter(None, teams.split(","))))

    def disguise(self) -> Disguise:
        """See `IAuthenticator`."""
        return self._disguise

    def revision(self) -> object:
        """See `IAuthenticator`: SQLite counts the changes of a file in it."""
        with open(self._path, "rb") as file:
            file.seek(24)
            return file.read(4)

    def _connect(self) -> sqlite3.Connection:
        # As an address, in which the path's own signs are quoted: SQLite makes no file then.
        return sqlite3.connect(f"file:{quote(self._path)}?mode=ro", uri=True)


def _verifiers(text: str) -> tuple[Verifier, ...]:
    return tuple(map(Verifier.parse, text.split()))
