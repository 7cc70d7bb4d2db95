"""Decisions ahead of what is durable."""

from concurrent.futures import Future

import pytest

from hermes.registry.drafts import Draft
from hermes.registry.errors import UNAVAILABLE, RegistryError
from hermes.registry.mutations import DeleteSubject
from hermes.registry.registration import RegisterSchema
from hermes.registry.state import RegistryState
from hermes.registry.writer import Writer


class Log:
    """AppendQueue that become durable when the test says so."""

    def __init__(self):
        self.events, self.futures = [], []

    def append(self, event):
        self.events.append(event)
        self.futures.append(Future())
        return self.futures[-1]


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def writer(log):
    return Writer(RegistryState(), log.append)


def register(name, subject="s"):
    text = f'{{"type": "record", "name": "{name}", "fields": []}}'
    return RegisterSchema(subject, Draft("AVRO", text))


def test_an_answer_waits_for_its_event(writer, log):
    answered = writer.write(register("A"))
    assert not answered.done()
    log.futures[0].set_result(None)
    assert answered.result()["id"] == 1


def test_what_is_there_already_is_told_when_it_is_durable(writer, log):
    first, again = writer.write(register("A")), writer.write(register("A"))
    assert len(log.events) == 1
    assert not again.done()
    log.futures[0].set_result(None)
    assert again.result() == first.result()
    assert writer.write(register("A")).result() == first.result()


def test_decisions_do_not_wait_for_each_other(writer, log):
    answers = [writer.write(register("A", f"s{number}")) for number in range(10)]
    answers += [writer.write(register("B", f"t{number}")) for number in range(10)]
    assert len(log.events) == 20
    for future in log.futures:
        future.set_result(None)
    assert {each.result()["id"] for each in answers} == {1, 2}


def test_a_refusal_waits_for_what_it_was_decided_upon(writer, log):
    writer.write(register("A"))
    refused = writer.write(DeleteSubject("s", permanent=True))
    assert not refused.done()
    log.futures[0].set_result(None)
    assert refused.exception().code == 40405
    assert writer.write(DeleteSubject("nowhere")).exception().code == 40401


def test_a_failed_append_is_the_end(writer, log):
    lost, after = writer.write(register("A")), writer.write(register("B", "t"))
    refused = writer.write(DeleteSubject("s", permanent=True))
    for future in log.futures:
        future.set_exception(OSError("no space"))
    for each in (lost, after, refused, writer.write(register("C"))):
        assert each.exception().code == UNAVAILABLE
    assert writer.failed
    assert len(log.events) == 2


def test_what_the_log_says_is_told(writer, log):
    lost = writer.write(register("A"))
    log.futures[0].set_exception(RegistryError(UNAVAILABLE, "the home is down"))
    assert lost.exception().message == "the home is down"


def test_an_append_that_raises_is_the_end():
    def append(event):
        raise OSError("closed")

    writer = Writer(RegistryState(), append)
    assert isinstance(writer.write(register("A")).exception(), OSError)
    assert writer.write(register("A")).exception().code == UNAVAILABLE
