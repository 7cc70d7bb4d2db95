"""When batches leave the asynchronous producer's queue, and with what."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from twisted.internet.task import Clock

from hermes.client import ProducerConfig
from hermes.client.batching import Batch, SendHandle, SendingQueue
from hermes.client.sync_producer import SendResult


class Sender:
    """Settles batches, one `permit` at a time, and remembers what was in them."""

    def __init__(self) -> None:
        self.permits = threading.Semaphore(0)
        self.began = threading.Semaphore(0)
        self.sent: list[dict[str, list[bytes]]] = []

    def settle(self, batches: Sequence[Batch]) -> None:
        self.sent.append({each.topic: list(each.items) for each in batches})
        self.began.release()
        assert self.permits.acquire(timeout=30)
        for each in batches:
            each.finish([SendResult(each.topic, 0, None)] * len(each.items))


@contextmanager
def queue_of(sender: Sender, clock: Clock | None = None, **settings) -> Iterator[SendingQueue]:
    config = ProducerConfig(broker_list="0:localhost:9092", producer_type="async", **settings)
    queue = SendingQueue(config, sender.settle, (clock or Clock()).seconds)
    try:
        yield queue
    finally:
        sender.permits.release(100)
        queue.refuse()
        assert queue.join(30)


def put(queue: SendingQueue, payload: bytes, topic: str = "clicks") -> SendHandle:
    return queue.put(topic, payload, None, 1, len(payload))


def test_with_nothing_on_its_way_a_message_leaves_at_once() -> None:
    sender = Sender()
    with queue_of(sender) as queue:  # whose clock stands still
        for payload in (b"1", b"2", b"3"):
            sender.permits.release()
            assert put(queue, payload).result(30) == SendResult("clicks", 0, None)
    assert sender.sent == [{"clicks": [b"1"]}, {"clicks": [b"2"]}, {"clicks": [b"3"]}]


def test_what_comes_while_something_is_on_its_way_leaves_together() -> None:
    sender = Sender()
    with queue_of(sender, batch_size=2) as queue:
        put(queue, b"1")
        assert sender.began.acquire(timeout=30)
        handles = [put(queue, payload) for payload in (b"2", b"3", b"4", b"5")]
        put(queue, b"other", "views")
        assert queue.queued_count == 5
        assert not any(each.done for each in handles)
        sender.permits.release(2)
        assert handles[-1].result(30)
    assert sender.sent == [
        {"clicks": [b"1"]},
        {"clicks": [b"2", b"3", b"4", b"5"], "views": [b"other"]},
    ]


def test_with_a_queue_time_messages_wait_for_their_batch_to_be_full() -> None:
    sender = Sender()
    sender.permits.release(100)
    with queue_of(sender, queue_time="1h", batch_size=3) as queue:
        handles = [put(queue, payload) for payload in (b"1", b"2", b"3")]
        assert handles[0].result(30)
    assert sender.sent == [{"clicks": [b"1", b"2", b"3"]}]


def test_with_a_queue_time_a_batch_leaves_when_its_oldest_message_has_waited_for_it() -> None:
    sender, clock = Sender(), Clock()
    sender.permits.release(100)
    with queue_of(sender, clock, queue_time="1h", batch_size=100) as queue:
        first = put(queue, b"1")
        clock.advance(3599)
        second = put(queue, b"2", "views")
        assert not first.done
        clock.advance(1)
        put(queue, b"3", "likes")  # a new topic: the sender looks at the clock again
        assert [each.result(30).topic for each in (first, second)] == ["clicks", "views"]
    assert {"clicks": [b"1"], "views": [b"2"]}.items() <= sender.sent[0].items()


def test_with_a_queue_time_a_flush_does_not_wait_for_it() -> None:
    sender = Sender()
    sender.permits.release(100)
    with queue_of(sender, queue_time="1h") as queue:
        handle = put(queue, b"1")
        queue.flush(deadline=30.0)
        assert handle.done
