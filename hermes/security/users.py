"""The users file: users, their verifiers and their groups.

    # a comment
    secret=<base64: what unknown users' salts are made from>
    alice:SCRAM-SHA-256$16384:<salt>$<StoredKey>:<ServerKey> SCRAM-SHA-512$... groups=analysts,ops

A verifier is written as PostgreSQL writes it. There may be one for each mechanism, and none for
users that only a certificate names. No line holds a password, or what could be turned into one; but
who has the file can try passwords on it, so only its owner may read it (mode 0600).

`hermes users` writes it; `users_file` reads it, also while a broker runs.
"""

import secrets
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import Disguise, IAuthenticator, User, Verifier
from hermes.quoting import quoted
from hermes.security.passwords import (
    DEFAULT_ITERATIONS,
    KEY_BYTES,
    LEAST_ITERATIONS,
    LEAST_SALT_BYTES,
    MECHANISMS,
    MOST_ITERATIONS,
    MOST_SALT_BYTES,
    make_verifier,
)
from hermes.security.principals import check_user_name, is_user_name

_HEADING: Final = (
    "# Users of Hermes, as `hermes users` keeps them. There are no passwords here; but whoever has",
    "# this file can try some on it: keep it to yourself.",
)
_SECRET: Final = "secret="
_GROUPS: Final = "groups="
_SECRET_BYTES: Final = 32


@implementer(IAuthenticator)
@dataclass(frozen=True, eq=False)
class Users:
    """All users of a file, immutable.

    Attributes:
        secret: of their `Disguise`.
        comments: the lines before each user, by its name; those before the secret under
            `secret=`, which no name is, and those at the end under "".
    """

    by_name: Mapping[str, User]
    secret: bytes
    comments: Mapping[str, tuple[str, ...]]

    def __repr__(self) -> str:
        return f"Users({len(self.by_name)} users)"

    @classmethod
    def none(cls) -> Self:
        """Those of a new file."""
        return cls({}, secrets.token_bytes(_SECRET_BYTES), {_SECRET: _HEADING})

    @classmethod
    def only(cls, name: str, password: str, *, iterations: int = LEAST_ITERATIONS) -> Self:
        """One user, whatever their name: the broker itself, as its own client."""
        user = User(name, (make_verifier(password, iterations=iterations),))
        return cls({name: user}, secrets.token_bytes(_SECRET_BYTES), {})

    @classmethod
    def parse(cls, data: bytes, source: str = "", secret: bytes | None = None) -> Self:
        """Parse a file's content.

        Args:
            source: the file's name, for errors.
            secret: used if the file has none: then that is as good until the process ends.

        Raises:
            ConfigError: it is no users file; the text names the line, and has nothing of it but a
                user's name.
        """
        reader = _UserFileReader(source)
        try:
            lines = data.decode().splitlines()
        except UnicodeDecodeError:
            raise ConfigError("users_file", "it is not UTF-8", source=source) from None
        for number, line in enumerate(lines, 1):
            reader.take(number, line.strip())
        used = reader.secret or secret or secrets.token_bytes(_SECRET_BYTES)
        return cls(reader.by_name, used, {**reader.comments, "": tuple(reader.pending)})

    def encode(self) -> bytes:
        comments = self.comments
        lines = [*comments.get(_SECRET, ()), _SECRET + b64encode(self.secret).decode()]
        for name, user in self.by_name.items():
            lines += comments.get(name, ())
            groups = [_GROUPS + ",".join(sorted(user.groups))] if user.groups else []
            lines.append(f"{name}:" + " ".join([*(each.text for each in user.verifiers), *groups]))
        lines += comments.get("", ())
        return "".join(f"{line}\n" for line in lines).encode()

    # -- an authenticator -----------------------------------------------------------------------

    def find(self, name: str) -> User | None:
        return self.by_name.get(name)

    def disguise(self) -> Disguise:
        return self._disguise

    def revision(self) -> object:
        """Constant: a value never changes."""
        return 0

    # -- questions ------------------------------------------------------------------------------

    @property
    def names(self) -> list[str]:
        """All names, in the file's order."""
        return list(self.by_name)

    def verifier(self, name: str) -> tuple[Verifier, ...] | None:
        """Equal as long as the user's password is the same; None if there is no such user."""
        user = self.by_name.get(name)
        return None if user is None else user.verifiers

    def groups(self, name: str) -> frozenset[str]:
        """The user's groups; none for an unknown name."""
        user = self.by_name.get(name)
        return frozenset() if user is None else user.groups

    # -- changes --------------------------------------------------------------------------------

    def with_user(
        self,
        name: str,
        password: str | None,
        groups: Iterable[str] = (),
        *,
        iterations: int = DEFAULT_ITERATIONS,
    ) -> Self:
        """Add a user; without a password for one whom a certificate names.

        Raises ConfigError: there is one of that name, or name, password or a group is not allowed.
        """
        check_user_name(name)
        if prepared(name) != name:
            raise ConfigError("user", f"SASLprep writes {quoted(name)} as {prepared(name)!r}")
        if name in self.by_name:
            raise ConfigError("user", f"there is a user {quoted(name)} already")
        return self._with(User(name, _verifiers(password, iterations), _checked(groups)))

    def with_password(
        self, name: str, password: str, *, iterations: int = DEFAULT_ITERATIONS
    ) -> Self:
        """Change a user's password. Raises: as `with_user`, or there is no such user."""
        return self._with(replace(self._known(name), verifiers=_verifiers(password, iterations)))

    def with_verifier(self, name: str, verifier: Verifier) -> Self:
        """Give a user, who may be new, another verifier of its mechanism. Raises as `with_user`."""
        if name not in self.by_name:
            return self.with_user(name, None).with_verifier(name, verifier)
        user = self._known(name)
        kept = (each for each in user.verifiers if each.mechanism != verifier.mechanism)
        return self._with(replace(user, verifiers=(*kept, verifier)))

    def without_verifier(self, name: str, mechanism: str) -> Self:
        """Take one away; whom nothing is left of, not even groups, goes. Raises: there is none."""
        user = self._known(name)
        kept = tuple(each for each in user.verifiers if each.mechanism != mechanism)
        if kept == user.verifiers:
            raise ConfigError("user", f"{quoted(name)} has no password for {mechanism}")
        if not kept and not user.groups:
            return self.without(name)
        return self._with(replace(user, verifiers=kept))

    def with_groups(self, name: str, groups: Iterable[str]) -> Self:
        """Change a user's groups. Raises: as `with_user`, or there is no such user."""
        return self._with(replace(self._known(name), groups=_checked(groups)))

    def without(self, name: str) -> Self:
        """Remove a user. Raises: ConfigError, there is none of that name."""
        self._known(name)
        left = {each: user for each, user in self.by_name.items() if each != name}
        return self._changed(left)

    def _with(self, user: User) -> Self:
        return self._changed({**self.by_name, user.name: user})

    def _changed(self, by_name: Mapping[str, User]) -> Self:
        kept = {*by_name, _SECRET, ""}
        comments = {key: text for key, text in self.comments.items() if key in kept}
        return replace(self, by_name=by_name, comments=comments)

    def _known(self, name: str) -> User:
        user = self.by_name.get(name)
        if user is None:
            raise ConfigError("user", f"there is no user {quoted(name)}")
        return user

    @property
    def _disguise(self) -> Disguise:
        found: Disguise | None = self.__dict__.get("_made_disguise")
        if found is None:
            kinds = Counter(
                (each.iterations, min(len(each.salt), MOST_SALT_BYTES))
                for user in self.by_name.values()
                for each in user.verifiers
            )
            ((iterations, size), _) = kinds.most_common(1)[0] if kinds else ((0, 0), 0)
            found = Disguise(self.secret, iterations or DEFAULT_ITERATIONS, size or 16)
            self.__dict__["_made_disguise"] = found
        return found


class _UserFileReader:
    def __init__(self, source: str) -> None:
        self.by_name: dict[str, User] = {}
        self.comments: dict[str, tuple[str, ...]] = {}
        self.pending: list[str] = []
        self.secret: bytes | None = None
        self._source = source
        self._line = 0

    def take(self, number: int, line: str) -> None:
        self._line = number
        if not line or line.startswith("#"):
            self.pending.append(line)
        elif line.startswith(_SECRET):
            if self.secret is not None:
                raise self._error("there are two secrets")
            self.secret = self._bytes(line.removeprefix(_SECRET))
            self.comments[_SECRET], self.pending = tuple(self.pending), []
            if len(self.secret) < _SECRET_BYTES:
                raise self._error(f"a secret has {_SECRET_BYTES} bytes")
        else:
            self._user(line)

    def _user(self, line: str) -> None:
        name, colon, rest = line.partition(":")
        if not colon or not is_user_name(name):
            raise self._error("expected NAME:VERIFIER, as `hermes users` writes it")
        try:
            check_user_name(name)
        except ConfigError as error:
            raise self._error(error.message) from None
        if prepared(name) != name:
            raise self._error(f"SASLprep writes {quoted(name)} in another way")
        if name in self.by_name:
            raise self._error(f"{quoted(name)} is there twice")
        verifiers, groups = [], None
        for word in rest.split():
            if word.startswith(_GROUPS):
                if groups is not None:
                    raise self._error(f"{quoted(name)} has groups twice")
                groups = self._groups(word.removeprefix(_GROUPS))
            else:
                verifiers.append(self._verifier(name, word))
        if len({each.mechanism for each in verifiers}) < len(verifiers):
            raise self._error(f"{quoted(name)} has two verifiers of one mechanism")
        self.by_name[name] = User(name, tuple(verifiers), groups or frozenset())
        self.comments[name], self.pending = tuple(self.pending), []

    def _verifier(self, name: str, word: str) -> Verifier:
        try:
            found = Verifier.parse(word)
        except ValueError as error:
            raise self._error(f"{quoted(name)}: {error}") from None
        iterations, keys = found.iterations, (found.stored_key, found.server_key)
        if not LEAST_ITERATIONS <= iterations <= MOST_ITERATIONS:
            raise self._error(
                f"{quoted(name)} has {iterations} iterations; {LEAST_ITERATIONS} to "
                f"{MOST_ITERATIONS} are allowed"
            )
        if len(found.salt) < LEAST_SALT_BYTES:
            raise self._error(f"the salt of {quoted(name)} is shorter than {LEAST_SALT_BYTES}")
        if {len(each) for each in keys} != {KEY_BYTES[found.mechanism]}:
            raise self._error(f"the keys of {quoted(name)} are not of {found.mechanism}'s length")
        return found

    def _groups(self, text: str) -> frozenset[str]:
        try:
            return _checked(text.split(","))
        except ConfigError as error:
            raise self._error(error.message) from None

    def _bytes(self, text: str) -> bytes:
        try:
            return b64decode(text, validate=True)
        except (Base64Error, ValueError):
            raise self._error("what should be base64 isn't") from None

    def _error(self, text: str) -> ConfigError:
        return ConfigError("users_file", f"line {self._line}: {text}", source=self._source)


def prepared(name: str) -> str:
    """A name as SCRAM compares it (RFC 4013); ConfigError: it holds what no name can have."""
    if name.isascii():
        return name
    from hermes.security.scram import ScramClient

    message = ScramClient(name, "-").first().decode()
    return message.removeprefix("n,,n=").partition(",r=")[0]


def _verifiers(password: str | None, iterations: int) -> tuple[Verifier, ...]:
    if password is None:
        return ()
    return tuple(make_verifier(password, each, iterations) for each in MECHANISMS)


def _checked(groups: Iterable[str]) -> frozenset[str]:
    found = frozenset(groups)
    for group in found:
        if not is_user_name(group):
            raise ConfigError("group", f"{quoted(group)} can't be a group's name")
    return found
