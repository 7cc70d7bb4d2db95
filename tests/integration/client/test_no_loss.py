"""A producer with acks=flushed against a broker that is killed again and again."""

import threading

from hermes import FetchRequest, HermesError, Producer, ProducerConfig, SimpleConsumer
from hermes.client import SendHandle

KILLS = 10
# How many outcomes more must be known before the next kill, so that each hits a busy broker.
OUTCOMES_BETWEEN = 300


class Load:
    """Sends numbered messages from a thread until told to stop."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._stop = threading.Event()
        self._known = threading.Condition()
        self.known_count = 0
        self.handles: list[SendHandle] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            handle = self._producer.send("clicks", b"message %d" % len(self.handles))
            handle.add_done_callback(self._count)
            self.handles.append(handle)

    def _count(self, handle: SendHandle) -> None:
        with self._known:
            self.known_count += 1
            self._known.notify()

    def wait_for_more(self, count: int) -> None:
        with self._known:
            goal = self.known_count + count
            assert self._known.wait_for(lambda: self.known_count >= goal, 60)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_what_is_reported_as_sent_is_there_in_order(start_broker) -> None:
    broker = start_broker()
    config = ProducerConfig(
        broker_list=f"0:127.0.0.1:{broker.port}",
        producer_type="async",
        acks="flushed",
        queue_size=500,
        num_retries=2,
        retry_backoff="20ms",
    )
    with Producer(config) as producer:
        load = Load(producer)
        try:
            for _ in range(KILLS):
                load.wait_for_more(OUTCOMES_BETWEEN)
                broker.kill_and_restart()
            load.wait_for_more(OUTCOMES_BETWEEN)
        finally:
            load.stop()
    sent = {}
    for number, handle in enumerate(load.handles):
        assert handle.done
        try:
            offset = handle.result(0).offset
        except HermesError:
            continue
        sent[offset] = b"message %d" % number
    assert len(sent) >= OUTCOMES_BETWEEN
    assert len(sent) + producer.metrics().failed == len(load.handles)
    assert list(sent) == sorted(sent)
    assert sent.items() <= stored(broker.port).items()


def stored(port: int) -> dict[int, bytes]:
    """Every message of the log by its own offset."""
    messages, offset = {}, 0
    with SimpleConsumer("127.0.0.1", port) as consumer:
        while fetched := list(consumer.fetch(FetchRequest("clicks", 0, offset, 1 << 20))):
            for message, following in fetched:
                messages[offset] = message.payload
                offset = following
    return messages
