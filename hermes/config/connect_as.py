"""A broker's credentials as a client of other brokers and of ZooKeeper.

    connect_as:
      user: broker-1
      password_file: broker-1.password
      tls_ca: ca.pem

It needs none to connect to itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from hermes.config.kinds import PATH, TRUTH, Kind
from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.security import ClientSecurity, check_user_name
from hermes.security.password_files import read_password_file

#: The keys that hold paths.
CONNECT_AS_PATHS: Final = ("password_file", "tls_ca", "tls_certificate", "tls_key")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectAs:
    """The credentials, as broker.yaml has them.

    Attributes:
        password_file: one line; given with `user`.
        tls: whether to use TLS; None: if any of the following is given.
        tls_ca, tls_certificate, tls_key: see `ClientSecurity`.
    """

    user: str | None = None
    password_file: Path | None = None
    tls: bool | None = None
    tls_ca: Path | None = None
    tls_certificate: Path | None = None
    tls_key: Path | None = None

    def relative_to(self, base: Path) -> "ConnectAs":
        paths: dict[str, Any] = {key: getattr(self, key) for key in CONNECT_AS_PATHS}
        return replace(self, **{key: path and base / path for key, path in paths.items()})

    def security(self, setting: str = "connect_as") -> ClientSecurity:
        """Read the password's file. Blocks. Raises ConfigError, for this setting."""
        password = None
        if self.password_file is not None:
            password = read_password_file(self.password_file, f"{setting}.password_file")
        try:
            return ClientSecurity(
                tls=self.tls,
                tls_ca=_text(self.tls_ca),
                tls_certificate=_text(self.tls_certificate),
                tls_key=_text(self.tls_key),
                user=self.user,
                password=password,
            )
        except ConfigError as error:
            raise ConfigError(f"{setting}.{error.key}", error.message) from None

    def as_given(self) -> dict[str, str | bool]:
        """What broker.yaml would say; no file is read."""
        given = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {
            key: str(value) if isinstance(value, Path) else value
            for key, value in given
            if value is not None
        }

    def __str__(self) -> str:
        shown = (
            f"{key}: {str(value).lower() if isinstance(value, bool) else value}"
            for key, value in self.as_given().items()
        )
        return "{" + ", ".join(shown) + "}"


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


_KEYS: Final = tuple(each.name for each in fields(ConnectAs))


def _parse(value: object) -> ConnectAs:
    if not isinstance(value, Mapping):
        expected = f"expected a mapping of {', '.join(_KEYS)}"
        raise ValueError(f"{expected}, got {quoted(value)}")
    given: dict[str, Any] = {}
    for key, each in value.items():
        if key not in _KEYS:
            raise ValueError(f"unknown key {quoted(key)}: expected {', '.join(_KEYS)}")
        try:
            given[key] = _parse_one(key, each)
        except (ValueError, ConfigError) as error:
            raise ValueError(f"{key}: {getattr(error, 'message', error)}") from None
    if ("user" in given) != ("password_file" in given):
        raise ValueError("give user and password_file together")
    if not given:
        raise ValueError(f"expected some of {', '.join(_KEYS)}")
    found = ConnectAs(**given)
    try:  # what contradicts itself; the password isn't needed for that
        replace(found, user=None, password_file=None).security()
    except ConfigError as error:
        raise ValueError(f"{error.key.removeprefix('connect_as.')}: {error.message}") from None
    return found


def _parse_one(key: str, value: object) -> object:
    if key == "tls":
        return TRUTH.parse(value)
    if key in CONNECT_AS_PATHS:
        return PATH.parse(value)
    if not isinstance(value, str):
        raise ValueError(f"expected a user's name, got {quoted(value)}")
    check_user_name(value)
    return value


CONNECT_AS: Final = Kind(f"mapping of {', '.join(f'`{key}`' for key in _KEYS)}", _parse)
