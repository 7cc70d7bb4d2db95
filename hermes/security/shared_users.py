"""The users of a broker in a cluster: those of its own file, and those that all brokers have.

The cluster's are one node of coordination, `/hermes/kafka/users`: JSON, the lines of a users file.

    {"lines": ["secret=...", "alice:SCRAM-SHA-256$16384:... groups=ops", "bob:..."]}
"""

import json
from typing import Final

from zope.interface import implementer

from hermes.errors import ConfigError
from hermes.interfaces import Disguise, IAuthenticator, User
from hermes.security.users import Users
from hermes.security.users_file import UsersFile

#: How many users a cluster may have; all are one node, of which a ZooKeeper takes 1 MiB.
MOST_USERS: Final = 2000
MOST_BYTES: Final = 512 << 10


@implementer(IAuthenticator)
class SharedUsers:
    """A user of the file is as it says there, whatever the cluster says. Thread-safe.

    Attributes:
        file: this broker's own users.
        of_cluster: immutable; replaced by `use`.
    """

    def __init__(self, file: UsersFile) -> None:
        self.file = file
        self.of_cluster = none_of_cluster(file.current())
        self._revision = 0

    def use(self, users: Users) -> None:
        self.of_cluster = users
        self._revision += 1

    @property
    def problem(self) -> str | None:
        return self.file.problem

    def current(self) -> Users:
        """All of them."""
        file, cluster = self.file.current(), self.of_cluster
        return Users({**cluster.by_name, **file.by_name}, cluster.secret, {})

    def in_both(self) -> list[str]:
        """Those of the file that are in force here instead of the cluster's of the same name."""
        return sorted(self.file.current().by_name.keys() & self.of_cluster.by_name.keys())

    def find(self, name: str) -> User | None:
        own = self.file.find(name)
        return self.of_cluster.find(name) if own is None else own

    def disguise(self) -> Disguise:
        # The secret that all brokers have: who asks two of them must not see which names differ.
        of_file, cluster = self.file.disguise(), self.of_cluster
        like = of_file if self.file.current().by_name else cluster.disguise()
        return Disguise(cluster.secret, like.iterations, like.salt_bytes)

    def revision(self) -> object:
        return self.file.revision(), self._revision


def none_of_cluster(like: Users) -> Users:
    """A cluster's users, as long as there are none: unknown names look as they do in a file."""
    return Users({}, like.secret, {})


def encode_users(users: Users) -> bytes:
    """Raises ConfigError: there are too many."""
    data = json.dumps({"lines": users.encode().decode().splitlines()}).encode()
    if len(users.by_name) > MOST_USERS or len(data) > MOST_BYTES:
        raise ConfigError(
            "user", f"a cluster may have {MOST_USERS} users, in {MOST_BYTES >> 10} KiB"
        )
    return data


def decode_users(data: bytes) -> Users:
    """Raises ConfigError: it is damaged, or a later Hermes wrote it; the text has no verifier."""
    try:
        values = json.loads(data)
        if values.keys() != {"lines"}:
            raise ValueError
        text = "\n".join(values["lines"])
    except (ValueError, TypeError, AttributeError, RecursionError):
        raise ConfigError("", "the cluster's users can't be read") from None
    return Users.parse(text.encode(errors="replace"), "the cluster's users")
