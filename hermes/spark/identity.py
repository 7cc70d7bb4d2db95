"""Who a query is, for brokers and coordination: what its options say, and where the password is.

Options travel in plans, and from the driver to the workers. So a password comes from a file or the
environment, read in each process that connects; an option with the password itself is for what a
program has from a secret store: Spark hides what is called `password` wherever it shows options.
"""

import os
from dataclasses import dataclass, field
from typing import Final

from hermes.errors import ConfigError
from hermes.security import PLAIN, ClientSecurity
from hermes.security.password_files import read_password_file

_PASSWORD: Final = "HERMES_PASSWORD"
_PASSWORD_FILE: Final = "HERMES_PASSWORD_FILE"

#: The names of the options by those of the client library's settings.
OPTION_NAMES: Final = {
    "tls": "tls",
    "tls_ca": "tlsCa",
    "tls_certificate": "tlsCertificate",
    "tls_key": "tlsKey",
    "user": "user",
    "password": "password",
    "password_file": "passwordFile",
}


@dataclass(frozen=True, slots=True)
class ClientIdentity:
    """What the options say; pickled for the workers. Files are there and on the driver.

    Without `zookeeper_tls` ZooKeeper is connected to without TLS, and as nobody. Options that
    contradict each other are a ConfigError.
    """

    tls: bool | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    user: str | None = None
    password_file: str | None = None
    password: str | None = field(default=None, repr=False)
    zookeeper_tls: bool = True

    def __post_init__(self) -> None:
        given = self.password_file or self.password
        if self.password_file and self.password:
            raise ConfigError("passwordFile", "expected at most one: this or password")
        if given and self.user is None:
            raise ConfigError("user", "is missing, of which the password is")
        self._security(None, None)

    def security(self) -> ClientSecurity:
        """How to connect to brokers from this process: may read a file. Raises ConfigError."""
        return self._security(self.user, None if self.user is None else self._password()).check()

    def coordination(self) -> ClientSecurity:
        return self.security() if self.zookeeper_tls else PLAIN

    def _security(self, user: str | None, password: str | None) -> ClientSecurity:
        try:
            return ClientSecurity(
                tls=self.tls,
                tls_ca=self.tls_ca,
                tls_certificate=self.tls_certificate,
                tls_key=self.tls_key,
                user=user,
                password=password,
            )
        except ConfigError as error:
            raise ConfigError(OPTION_NAMES[error.key], error.message) from None

    def _password(self) -> str:
        if self.password is not None:
            return self.password
        path = self.password_file or os.environ.get(_PASSWORD_FILE)
        if path:
            return read_password_file(path, "passwordFile")
        password = os.environ.get(_PASSWORD)
        if not password:
            raise ConfigError(
                "passwordFile",
                f"there is no password of user {self.user!r} here: name a file that is on the "
                f"driver and on every worker, or set {_PASSWORD_FILE} or {_PASSWORD} in their "
                "environment",
            )
        return password


#: As Kafka 0.7's clients connect.
NOBODY: Final = ClientIdentity()
