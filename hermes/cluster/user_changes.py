"""The users of the cluster: kept in coordination, followed by all brokers that have `users_file`.

What coordination has are verifiers. Only brokers, and who may administer them, can read these: see
`BrokerConfig.shares_users`.
"""

from typing import Final

from hermes.cluster.cluster_value import ClusterValue
from hermes.cluster.shared import Shared
from hermes.coordination.kafka_topics import KAFKA_USERS
from hermes.quoting import printable
from hermes.security.shared_users import SharedUsers, decode_users, encode_users, none_of_cluster
from hermes.security.users import Users
from hermes.storage.requested_file import USERS_NAME

#: How much of the names of users a line shows, in characters.
_NAMES_LENGTH: Final = 200


class UserChanges(ClusterValue[Users]):
    node = KAFKA_USERS
    file_name = USERS_NAME
    what = "the users"

    def __init__(self, shared: Shared, users: SharedUsers) -> None:
        super().__init__(shared)
        self.users = users
        self._told: list[str] = []  # that the file's are used

    @property
    def now(self) -> Users:
        return self.users.of_cluster

    def _decode(self, data: bytes) -> Users:
        return decode_users(data) if data else none_of_cluster(self.users.file.current())

    def _encode(self, value: Users) -> bytes:
        return encode_users(value)

    def _is_nothing(self, value: Users) -> bool:
        return not value.by_name

    def _put_in_force(self, value: Users) -> None:
        self.users.use(value)
        names = self.users.in_both()
        if names and names != self._told:
            self._log.warn(
                "both",
                "users of users_file and of the cluster: {names}; here they are as users_file says",
                names=printable(", ".join(names), _NAMES_LENGTH),
            )
        self._told = names
