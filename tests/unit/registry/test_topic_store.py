"""Which calls are decided once more when nobody knows what became of them."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from hermes.registry.drafts import Draft
from hermes.registry.election import Leader, NoElection
from hermes.registry.errors import RegistryError, unavailable
from hermes.registry.events import event_to_json
from hermes.registry.home import FixedHome, HomeBroker
from hermes.registry.log_records import LogRecord, encode_record
from hermes.registry.mutations import DeleteVersion
from hermes.registry.registration import RegisterSchema
from hermes.registry.rest_messages import RestRequest, RestResponse
from hermes.registry.topic_log import TopicLog
from hermes.registry.topic_store import TopicStore

REFUSED = RestResponse(409, b"{}")


class Follows(NoElection):
    """Another one leads."""

    is_leading = False  # type: ignore[assignment]
    leader = Leader("", "http://leader")  # type: ignore[assignment]


class Forwarder:
    """Loses the first answer."""

    sent = 0

    def send(self, url: str, request: RestRequest) -> RestResponse:
        self.sent += 1
        if self.sent == 1:
            raise unavailable("it has not answered")
        return REFUSED

    def close(self) -> None: ...


@pytest.fixture
def store() -> Iterator[TopicStore]:
    log = TopicLog(FixedHome(HomeBroker(-1, "localhost", 1)), Follows())
    times = itertools.cycle((0.0, 9.999))  # when a call comes, and when its first answer is lost
    made: Any = TopicStore(log, Follows(), lambda: next(times))
    made.forwarder = Forwarder()
    yield made
    made.close()


@pytest.mark.parametrize("permanent", [False, True])
def test_the_latest_version_is_not_deleted_twice(store: TopicStore, permanent: bool) -> None:
    request = RestRequest("DELETE", ("subjects", "s", "versions", "latest"))
    deleted = store.write(DeleteVersion("s", -1, permanent), request)
    with pytest.raises(RegistryError, match="has not answered") as caught:
        deleted.result(60)
    assert caught.value.code == 50003
    assert store.forwarder.sent == 1  # type: ignore[attr-defined]


def test_what_says_the_same_twice_is_asked_for_again(store: TopicStore) -> None:
    request = RestRequest("POST", ("subjects", "s", "versions"))
    for change in (RegisterSchema("s", Draft("AVRO", '"int"')), DeleteVersion("s", 1)):
        store.forwarder.sent = 0  # type: ignore[attr-defined]
        assert store.write(change, request).result(60) == REFUSED
        assert store.forwarder.sent == 2  # type: ignore[attr-defined]


class Nobody(NoElection):
    is_leading = False  # type: ignore[assignment]


@pytest.mark.parametrize(("schema", "status"), [('"int"', 200), ('"string"', 50003)])
def test_nothing_is_refused_for_good_by_who_does_not_lead(schema: str, status: int) -> None:
    log = TopicLog(FixedHome(HomeBroker(-1, "localhost", 1)), Nobody())
    known = RegisterSchema("s", Draft("AVRO", '"int"')).decide(log.replica.copy()).event
    assert known is not None
    record = LogRecord(1, "", "first", event_to_json(known))
    log.replica.read_message(0, 100, encode_record(record))
    log.is_readable = True
    times = itertools.count(0.0, 60.0)
    store = TopicStore(log, Nobody(), lambda: next(times))
    request = RestRequest("POST", ("subjects", "s", "versions"))
    try:
        answer = store.write(RegisterSchema("s", Draft("AVRO", schema)), request).result(60)
        found = answer.status
    except RegistryError as error:  # it may be compatible with what was registered since
        found = error.code
    store.close()
    assert found == status
