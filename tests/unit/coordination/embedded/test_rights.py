"""Who may read and write the brokers' users in embedded coordination, with rules and without."""

import pytest

from hermes.coordination.embedded.rights import Rights
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError
from hermes.coordination.kafka_topics import KAFKA_REQUESTED, KAFKA_USERS
from hermes.security import ANONYMOUS, INTERNAL, Operation, Resource


class Admins:
    is_on = True

    def __init__(self, *principals: str) -> None:
        self._principals = principals

    def may(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return principal in self._principals and operation is Operation.ADMIN

    def stamp(self, principal: str) -> object:
        return None


@pytest.mark.parametrize(
    ("rights", "may"),
    [
        (Rights(), False),
        (Rights(principal=ANONYMOUS, is_anybody=True), False),
        (Rights(principal="alice"), True),  # without rules, who gets in may administer
        (Rights(principal=INTERNAL), True),
        (Rights(principal="alice", rules=Admins("brokers")), False),
        (Rights(principal="brokers", rules=Admins("brokers")), True),
        (Rights(principal=ANONYMOUS, rules=Admins("brokers")), False),
        (Rights(principal=INTERNAL, rules=Admins("brokers")), True),
    ],
)
def test_the_users_are_for_brokers_and_who_administers_them(rights: Rights, may: bool) -> None:
    assert (rights.may_read(KAFKA_USERS), rights.may_write(KAFKA_USERS)) == (may, may)
    if not may:
        for check in (rights.check_read, rights.check_write):
            with pytest.raises(RequestRefusedError):
                check(KAFKA_USERS)
    assert Rights().may_read(KAFKA_REQUESTED)
