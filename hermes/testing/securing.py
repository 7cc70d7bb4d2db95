"""Certificates, users and settings of a broker in a test that authenticates its clients."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hermes.errors import ConfigError
from hermes.security.users import Users
from hermes.testing.certificates import Authority

_PORTS: Final = ("listen", "kafka_listen", "coordination_listen", "http_listen")


class Secured:
    """What a broker and its clients need, made for one test.

    Args:
        folder: where the files go; whoever made it removes it.
        users: passwords by name.
        certificates: the names of clients that get a certificate.
        has_tls: whether ports take TLS.

    Attributes:
        tls_ca: the certificate of the authority; None without TLS.
        clients: settings of the client library for each client, by name.

    Raises:
        ConfigError: both users and certificates are given, or a name can't be one.
    """

    def __init__(
        self,
        folder: Path,
        users: Mapping[str, str],
        certificates: Sequence[str],
        *,
        has_tls: bool,
    ) -> None:
        if users and certificates:
            raise ConfigError("certificates", "give these or users: a port asks for one of them")
        self.tls_ca: Path | None = None
        self.clients: dict[str, dict[str, str]] = {}
        self._settings: dict[str, Any] = {}
        self._listener: dict[str, Any] = {}
        if has_tls:
            self._add_tls(Authority(folder), certificates)
        if users:
            self._add_users(folder / "users", users)

    def settings(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of the broker, where ports that are endpoint strings are secured."""
        secured = {**self._settings, **values}
        for key in _PORTS:
            if values.get(key) is not None:
                given = values[key]
                is_list = isinstance(given, list | tuple)
                secured[key] = list(map(self._secured, given)) if is_list else self._secured(given)
        return secured

    def _secured(self, port: Any) -> Any:
        return {"endpoint": port, **self._listener} if isinstance(port, str) else port

    def _add_tls(self, authority: Authority, certificates: Sequence[str]) -> None:
        self.tls_ca = authority.path
        certificate, key = authority.server()
        tls = {"certificate": str(certificate), "key": str(key)}
        if certificates:
            tls |= {"client_ca": str(authority.path), "client_certificate": "required"}
            self._listener["authentication"] = "tls"
        self._listener["tls"] = tls
        for name in certificates:
            certificate, key = authority.client(name)
            self.clients[name] = {"tls_certificate": str(certificate), "tls_key": str(key)}

    def _add_users(self, path: Path, passwords: Mapping[str, str]) -> None:
        users = Users.none()
        for name, password in passwords.items():
            users = users.with_user(name, password)
            self.clients[name] = {"user": name, "password": password}
        path.touch(mode=0o600)
        path.write_bytes(users.encode())
        self._settings["users_file"] = str(path)
        self._listener["authentication"] = "scram"
