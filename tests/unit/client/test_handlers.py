"""Callback handlers and event handlers around a producer."""

import logging
import sys
import threading

import pytest
from zope.interface import implementer

from hermes.client import Producer, ProducerConfig, ProducerData, SendResult
from hermes.errors import (
    ClientError,
    EncodingError,
    QueueFullError,
    StorageUnavailableError,
)
from hermes.interfaces import ICallbackHandler, IEventHandler
from hermes.protocol import ErrorCode


@implementer(ICallbackHandler)
class Recorder:
    """Records every hook; `changes` replace what a hook does."""

    def __init__(self, **changes) -> None:
        self.calls: list[tuple] = []
        self._changes = changes

    def _hook(self, name, *arguments):
        self.calls.append((name, *arguments))
        change = self._changes.get(name)
        return change(*arguments) if change else arguments[0] if arguments else None

    def before_enqueue(self, item):
        return self._hook("before_enqueue", item)

    def after_enqueue(self, item, accepted):
        self._hook("after_enqueue", item, accepted)

    def after_dequeue(self, batch):
        return self._hook("after_dequeue", list(batch))

    def before_send(self, batch):
        self._hook("before_send", list(batch))

    def after_send(self, batch, results):
        self._hook("after_send", batch, results)

    def on_failure(self, batch, error):
        self._hook("on_failure", batch, error)

    def on_close(self):
        self._hook("on_close")


def raising(*arguments):
    raise ZeroDivisionError("oops")


def exiting(*arguments):
    sys.exit(1)


def producer_of(broker, **settings) -> Producer:
    settings = {"producer_type": "async", "acks": "written", "retry_backoff": 1, **settings}
    return Producer(ProducerConfig(broker_list=f"0:{broker.host}:{broker.port}", **settings))


def test_the_hooks_come_in_order_and_see_values(memory_broker) -> None:
    recorder = Recorder()
    with producer_of(memory_broker(), callback_handler=recorder, encoder="json") as producer:
        producer.send("clicks", {"a": 1}, key="k").result(10)
    item = ProducerData("clicks", {"a": 1}, "k")
    assert recorder.calls == [
        ("before_enqueue", item),
        ("after_enqueue", item, True),
        ("after_dequeue", [item]),
        ("before_send", [item]),
        ("after_send", [item], [SendResult("clicks", 0, 0)]),
        ("on_close",),
    ]


def test_a_failure_is_heard_with_its_error(memory_broker) -> None:
    broker = memory_broker()
    broker.errors = [ErrorCode.STORAGE_UNAVAILABLE]
    recorder = Recorder()
    with producer_of(broker, callback_handler=recorder, num_retries=0) as producer:
        handle = producer.send("clicks", b"x")
        assert isinstance(handle.exception(10), StorageUnavailableError)
        assert producer.metrics().failed == 1
    (failure,) = [each for each in recorder.calls if each[0] == "on_failure"]
    assert failure[1] == [ProducerData("clicks", b"x")]
    assert isinstance(failure[2], StorageUnavailableError)


def test_what_can_not_be_encoded_fails_behind_the_queue(memory_broker) -> None:
    broker = memory_broker()
    recorder = Recorder()
    with producer_of(broker, callback_handler=recorder, queue_time="1h") as producer:
        bad, good = producer.send("clicks", "text"), producer.send("clicks", b"x")
        producer.flush()
        assert isinstance(bad.exception(0), EncodingError)
        assert good.result(0).offset == 0
    names = [each[0] for each in recorder.calls]
    assert ("after_send" in names, "on_failure" in names) == (True, True)


def test_a_handler_may_change_and_drop(memory_broker) -> None:
    broker = memory_broker()

    def before(item):
        return None if item.messages == b"secret" else item._replace(topic="renamed")

    with producer_of(broker, callback_handler=Recorder(before_enqueue=before)) as producer:
        dropped = producer.send("clicks", b"secret")
        assert isinstance(dropped.exception(0), ClientError)
        assert producer.send("clicks", b"x").result(10).topic == "renamed"
        assert producer.metrics().dropped == 1
    assert list(broker.logs) == [("renamed", 0)]


def test_a_handler_may_take_items_out_of_a_batch(memory_broker) -> None:
    broker = memory_broker()
    recorder = Recorder(after_dequeue=lambda batch: batch[1:])
    with producer_of(broker, callback_handler=recorder, queue_time="1h") as producer:
        first, second = producer.send("clicks", b"1"), producer.send("clicks", b"2")
        producer.flush()
        assert isinstance(first.exception(0), ClientError)
        assert second.result(0).offset == 0
    assert broker.payloads("clicks") == [b"2"]


def upper_or_none(batch):
    return [
        None if item.messages == b"drop" else item._replace(messages=item.messages.upper())
        for item in batch
    ]


def test_what_a_handler_puts_in_a_place_tells_its_handle(memory_broker) -> None:
    broker = memory_broker()
    recorder = Recorder(after_dequeue=upper_or_none)
    with producer_of(broker, callback_handler=recorder, queue_time="1h") as producer:
        handles = [producer.send("clicks", each) for each in (b"a", b"drop", b"c")]
        producer.flush()
        assert [each.exception(0) is None for each in handles] == [True, False, True]
        assert [handles[0].result(0).offset, handles[2].result(0).offset] == [0, 11]
        metrics = producer.metrics()
        assert (metrics.sent, metrics.failed, metrics.dropped) == (2, 0, 1)
    assert broker.payloads("clicks") == [b"A", b"C"]


@pytest.mark.parametrize(
    ("change", "stored", "known", "counts"),
    [
        (lambda batch: batch[::-1], [b"2", b"1"], [11, 0], (2, 0, 0)),
        (lambda batch: [], [], [None, None], (0, 0, 2)),
        (
            lambda batch: [*batch, ProducerData("clicks", b"3")],
            [b"1", b"2", b"3"],
            [0, 11],
            (3, 0, 0),
        ),
        (lambda batch: [ProducerData("clicks", b"new")], [b"new"], [0, None], (1, 0, 1)),
        (
            lambda batch: [ProducerData("clicks", b"new"), batch[0]],
            [b"new", b"1"],
            [13, None],
            (2, 0, 1),
        ),
    ],
)
def test_items_that_come_and_go_are_counted_as_they_are(
    memory_broker, change, stored, known, counts
) -> None:
    broker = memory_broker()
    recorder = Recorder(after_dequeue=change)
    with producer_of(broker, callback_handler=recorder, queue_time="1h") as producer:
        handles = [producer.send("clicks", each) for each in (b"1", b"2")]
        producer.flush()
        outcomes = [None if each.exception(0) else each.result(0).offset for each in handles]
        metrics = producer.metrics()
    assert (outcomes, (metrics.sent, metrics.failed, metrics.dropped)) == (known, counts)
    assert broker.payloads("clicks") == stored


def test_a_full_queue_is_heard(memory_broker) -> None:
    broker = memory_broker()
    recorder = Recorder()
    settings = {"queue_size": 1, "queue_full": "raise", "queue_time": "1h", "batch_size": 10}
    with producer_of(broker, callback_handler=recorder, **settings) as producer:
        producer.send("clicks", b"1")
        with pytest.raises(QueueFullError):
            producer.send("clicks", b"2")
    accepted = [each[2] for each in recorder.calls if each[0] == "after_enqueue"]
    assert accepted == [True, False]


HOOKS = [
    "before_enqueue",
    "after_enqueue",
    "after_dequeue",
    "before_send",
    "after_send",
    "on_failure",
    "on_close",
]


@pytest.mark.parametrize("hook", HOOKS[2:-1])
def test_a_hook_that_exits_does_not_end_the_sender(memory_broker, hook: str, caplog) -> None:
    caplog.set_level(logging.CRITICAL)
    broker = memory_broker()
    broker.errors = [ErrorCode.MESSAGE_TOO_LARGE, 0]
    with producer_of(broker, callback_handler=Recorder(**{hook: exiting})) as producer:
        assert producer.send("clicks", b"1").exception(10) is not None
        assert producer.send("clicks", b"2").result(10).offset == 0
    assert broker.payloads("clicks") == [b"2"]


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_costs_nothing(memory_broker, hook: str, caplog) -> None:
    caplog.set_level(logging.CRITICAL)
    broker = memory_broker()
    broker.errors = [ErrorCode.MESSAGE_TOO_LARGE, 0]
    with producer_of(broker, callback_handler=Recorder(**{hook: raising})) as producer:
        assert producer.send("clicks", b"1").exception(10) is not None
        assert producer.send("clicks", b"2").result(10).offset == 0
    assert producer.metrics().hook_errors >= 1
    assert broker.payloads("clicks") == [b"2"]


@pytest.mark.parametrize("answer", [7, [b"x"], ProducerData("a", b"x")])
def test_a_hook_that_gives_nonsense_is_counted(memory_broker, answer) -> None:
    broker = memory_broker()
    recorder = Recorder(after_dequeue=lambda batch: answer)
    with producer_of(broker, callback_handler=recorder) as producer:
        assert producer.send("clicks", b"1").result(10).offset == 0
        assert producer.metrics().hook_errors == 1


@implementer(IEventHandler)
class Handler:
    """Does with each batch what it is told."""

    def __init__(self, treatment) -> None:
        self._treatment = treatment
        self.closed = 0

    def handle(self, batch, default):
        return self._treatment(batch, default)

    def close(self) -> None:
        self.closed += 1


BOTH = pytest.mark.parametrize("producer_type", ["sync", "async"])


@BOTH
def test_an_event_handler_replaces_sending(memory_broker, producer_type) -> None:
    broker = memory_broker()
    seen: list[ProducerData] = []

    def keep(batch, default):
        seen.extend(batch)
        return [SendResult(item.topic, 9, 99) for item in batch]

    handler = Handler(keep)
    with producer_of(broker, event_handler=handler, producer_type=producer_type) as producer:
        assert producer.send("clicks", {"raw": 1}).result(10) == SendResult("clicks", 9, 99)
    assert seen == [ProducerData("clicks", {"raw": 1})]
    assert handler.closed == 1
    assert broker.requests == []


@BOTH
def test_an_event_handler_may_use_the_default(memory_broker, producer_type) -> None:
    broker = memory_broker()

    def shout(batch, default):
        return default([item._replace(messages=item.messages.upper()) for item in batch])

    settings = {"event_handler": Handler(shout), "producer_type": producer_type}
    with producer_of(broker, encoder="string", **settings) as producer:
        assert producer.send("clicks", "hello").result(10) == SendResult("clicks", 0, 0)
    assert broker.payloads("clicks") == [b"HELLO"]


@BOTH
@pytest.mark.parametrize(
    ("treatment", "error"),
    [
        (raising, ZeroDivisionError),
        (lambda batch, default: [], ClientError),
        (lambda batch, default: [7], ClientError),
        (lambda batch, default: None, ClientError),
        (lambda batch, default: [EncodingError("no")] * len(batch), EncodingError),
    ],
)
def test_an_event_handler_that_fails(memory_broker, producer_type, treatment, error) -> None:
    settings = {"event_handler": Handler(treatment), "producer_type": producer_type}
    with producer_of(memory_broker(), **settings) as producer:
        with pytest.raises(error) as caught:
            producer.send("clicks", b"x").result(10)
        assert producer.metrics().failed == 1
    if error is ClientError:
        assert f"the event handler {__name__}.Handler gave " in str(caught.value)


def test_an_event_handler_that_exits_does_not_end_the_sender(memory_broker) -> None:
    with producer_of(memory_broker(), event_handler=Handler(exiting)) as producer:
        for _ in range(2):
            with pytest.raises(ClientError, match="ended with SystemExit"):
                producer.send("clicks", b"x").result(10)


def test_an_event_handler_may_send_by_its_producer(memory_broker) -> None:
    broker = memory_broker()

    def note(batch, default):
        if batch[0].topic == "clicks":
            producer.send("notes", b"noted")
        return default(batch)

    with producer_of(broker, event_handler=Handler(note), producer_type="sync") as producer:
        sent = threading.Thread(target=producer.send, args=("clicks", b"x"), daemon=True)
        sent.start()
        sent.join(10)
        assert not sent.is_alive()
    assert (broker.payloads("clicks"), broker.payloads("notes")) == ([b"x"], [b"noted"])
