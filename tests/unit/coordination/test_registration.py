"""What a broker has registered, a step at a time."""

import threading

import pytest
from memory_coordination import MemoryCoordination, MemorySession

from hermes.coordination.registration import BrokerRegistration
from hermes.errors import CoordinationUnavailableError


class OwnSession(MemorySession):
    """With what a registration needs of `Session` beside."""

    def delete_own(self, path: str) -> bool:
        found = self.get(path)
        return found is not None and found.owner == self.session_id and self.delete(path, -1)


@pytest.fixture
def coordination() -> MemoryCoordination:
    return MemoryCoordination()


def registered(coordination: MemoryCoordination, **topics: int) -> BrokerRegistration:
    """A broker that has just registered itself."""
    registration = BrokerRegistration(0, "127.0.0.1", 9092, topics, connect="localhost:1")
    session = OwnSession(coordination, registration._session_changed)
    registration._session = session  # type: ignore[assignment]
    registration._converge()
    return registration


def test_a_topic_that_is_deleted_while_the_connection_is_lost_is_withdrawn(
    coordination: MemoryCoordination,
) -> None:
    registration = registered(coordination, kept=2, deleted=1)
    registration._session_changed()  # it is back, the session is the same
    registration.topic_deleted("deleted")
    registration._converge()
    session = coordination.session()
    assert session.children("/brokers/topics/deleted") == []
    assert session.children("/brokers/topics/kept") == ["0"]


def test_a_topic_whose_registration_had_no_answer_is_withdrawn(
    coordination: MemoryCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration = registered(coordination)
    session = registration._session
    transact = session.transact

    def unanswered(fill: object) -> list[object]:
        transact(fill)  # type: ignore[arg-type]
        raise CoordinationUnavailableError("no answer")

    registration.topic_created("new", 3)
    with monkeypatch.context() as patch:
        patch.setattr(session, "transact", unanswered)
        with pytest.raises(CoordinationUnavailableError):
            registration._converge()
    assert session.children("/brokers/topics/new") == ["0"]
    registration.topic_deleted("new")
    registration._converge()
    assert session.children("/brokers/topics/new") == []


def test_a_fault_does_not_end_the_registration(
    coordination: MemoryCoordination, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration, goes_on = registered(coordination), threading.Event()
    converge, faults = registration._converge, [ZeroDivisionError("a fault")]

    def once_faulty() -> None:
        if faults:
            raise faults.pop()
        converge()
        goes_on.set()

    monkeypatch.setattr(registration, "_converge", once_faulty)
    registration._thread.start()
    registration.topic_created("new", 3)
    assert goes_on.wait(60)
    registration.stop()
    assert coordination.session().children("/brokers/topics") == ["new"]
