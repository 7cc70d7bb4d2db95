"""Users as a broker's `kafka_listen` has them: of a cluster, or of the broker's own file.

A broker is sent what a password was salted to, never the password.
"""

from typing import Any, Final, NamedTuple

from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import ClientError
from hermes.security.passwords import MECHANISMS, salted_password

#: By Kafka's numbers.
_NAMES: Final = dict(enumerate(MECHANISMS, 1))


class KafkaUser(NamedTuple):
    """A user; `iterations` by mechanism."""

    name: str
    iterations: dict[str, int]


class KafkaUsers:
    """All methods raise ClientError."""

    def __init__(self, asker: KafkaAsker) -> None:
        self._asker = asker
        self.close = asker.close

    def all(self) -> list[KafkaUser]:
        answer = self._asker.ask("DescribeUserScramCredentials", 0, users=None)
        _check(answer.error_code, answer.error_message)
        found = []
        for each in answer.results:
            iterations = {_NAMES[info.mechanism]: info.iterations for info in each.credential_infos}
            found.append(KafkaUser(each.user, iterations))
        return sorted(found)

    def set_password(self, name: str, password: str, iterations: int) -> None:
        """Have a user with this password, by each mechanism."""
        wanted = []
        for number, mechanism in _NAMES.items():
            salt, salted = salted_password(password, mechanism, iterations)
            wanted.append(
                {
                    "name": name,
                    "mechanism": number,
                    "iterations": iterations,
                    "salt": salt,
                    "salted_password": salted,
                }
            )
        for each in wanted:  # a request may name a user once
            self._alter(upsertions=[each])

    def remove(self, user: KafkaUser) -> None:
        for number, mechanism in _NAMES.items():
            if mechanism in user.iterations:
                self._alter(deletions=[{"name": user.name, "mechanism": number}])

    def _alter(self, **changes: Any) -> None:
        given: dict[str, Any] = {"deletions": [], "upsertions": [], **changes}
        answer = self._asker.ask("AlterUserScramCredentials", 0, **given)
        for each in answer.results:
            _check(each.error_code, each.error_message)


def _check(code: Any, message: str | None) -> None:
    if code.value:
        raise ClientError(message or code.name)
