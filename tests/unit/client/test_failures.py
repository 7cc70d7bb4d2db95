"""What an asynchronous producer could not send is heard: in the log, from flush, from close."""

import logging
import subprocess
import sys

import pytest
from twisted.internet.task import Clock

from hermes.client import Producer, ProducerConfig
from hermes.client.batching import Batch, SendHandle
from hermes.client.failures import Failures
from hermes.errors import BrokerUnavailableError, ClientError, DeliveryError


def doomed(port: int, **settings: object) -> Producer:
    """A producer whose every message fails at once."""
    settings = {"producer_type": "async", "num_retries": 0, "queue_time": "1h", **settings}
    return Producer(ProducerConfig(broker_list=f"0:127.0.0.1:{port}", **settings))


def errors_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]


def test_flush_raises_what_failed_since_the_last_one(unused_port, caplog) -> None:
    with doomed(unused_port) as producer:
        producer.send("clicks", b"x")
        producer.send("clicks", [b"y", b"z"])
        with pytest.raises(DeliveryError, match="3 messages were not sent: no conn") as raised:
            producer.flush()
        assert raised.value.failed_count == 3
        assert isinstance(raised.value.__cause__, BrokerUnavailableError)
        producer.flush()
    (line,) = errors_of(caplog)
    assert line.startswith("3 messages were not sent: no connection")


def test_close_raises_too(unused_port) -> None:
    producer = doomed(unused_port)
    producer.send("clicks", b"x")
    with pytest.raises(DeliveryError, match="1 messages"):
        producer.close()
    producer.close()


def test_another_error_is_not_hidden(unused_port, caplog) -> None:
    with pytest.raises(ZeroDivisionError):
        fail_within(doomed(unused_port))
    assert any("after another error" in each for each in errors_of(caplog))


def fail_within(producer: Producer) -> None:
    with producer:
        producer.send("clicks", b"x")
        raise ZeroDivisionError


@pytest.mark.parametrize("way", ["waited", "called", "asked"])
def test_who_looks_at_a_handle_has_heard(unused_port, caplog, way: str) -> None:
    with doomed(unused_port, queue_time=0 if way == "waited" else "1h") as producer:
        handle = producer.send("clicks", b"x")
        if way == "waited":
            assert handle.exception(30) is not None
        elif way == "called":
            heard: list[SendHandle] = []
            handle.add_done_callback(heard.append)
            producer.flush()
            assert heard == [handle]
        else:
            with pytest.raises(DeliveryError):
                producer.flush()
            producer.send("clicks", b"y")
            with pytest.raises(DeliveryError, match="1 messages"):
                producer.flush()
    if way != "asked":
        assert errors_of(caplog) == []


def test_looking_later_counts_as_long_as_nobody_has_raised_it() -> None:
    failures, batch = Failures(), failed_batch(2)
    failures.note(batch, {0: 5, 1: 7}, ClientError("no"))
    batch.finish([ClientError("no")] * 2)
    assert SendHandle((batch, 0)).exception() is not None
    assert SendHandle((batch, 0)).exception() is not None
    raised = failures.take()
    assert raised is not None
    assert raised.failed_count == 7
    assert failures.take() is None


def failed_batch(count: int) -> Batch:
    batch = Batch("clicks", started=0.0)
    for _ in range(count):
        batch.add(b"x", None, 1)
    return batch


def test_a_burst_is_a_line_now_and_then_and_one_at_its_end(caplog) -> None:
    caplog.set_level(logging.WARNING)
    clock = Clock()
    failures = Failures(clock.seconds)
    for _ in range(25):
        failures.note(failed_batch(1), {0: 2}, ClientError("no"))
        clock.advance(1)
    failures.end_burst()
    failures.end_burst()
    assert [each.getMessage() for each in caplog.records] == [
        "2 messages were not sent: no",
        "20 messages were not sent: no",
        "20 messages were not sent: no",
        "messages are sent again; 50 were not sent before",
    ]
    caplog.clear()
    failures.note(failed_batch(1), {0: 1}, ClientError("again"))
    failures.note(failed_batch(1), {0: 1}, ClientError("again"))
    assert failures.take().failed_count == 52
    assert [each.getMessage() for each in caplog.records] == [
        "1 messages were not sent: again",
        "1 more messages were not sent: again",
    ]


_PROGRAM = """
from hermes import Producer, ProducerConfig
producer = Producer(ProducerConfig(
    broker_list="0:127.0.0.1:{port}", producer_type="async", delivery_timeout="300ms"
))
for _ in range(1000):
    producer.send("clicks", b"x")
{end}
"""


@pytest.mark.parametrize(
    ("end", "status"), [("producer.flush()", 1), ("producer.close()", 1), ("", 0)]
)
def test_a_program_that_sends_nowhere_says_so(unused_port, end: str, status: int) -> None:
    program = _PROGRAM.format(port=unused_port, end=end)
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == status
    assert "1000 messages were not sent: " in ended.stderr
