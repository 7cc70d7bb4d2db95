"""A consumer with a fetch session, on a `KafkaBench`."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from broker_bench import OPEN, answers
from kafka_bench import KafkaBench, decode_answer, encode_request, messages

from hermes.server.policies import ListenerPolicy

__all__ = ["SessionConsumer"]

_VERSION = 12


class SessionConsumer:
    """One consumer, and its connection.

    Attributes:
        number, epoch: of its session, as they go into the next request.
        known: of each partition what it was told last: code, high watermark, first offset.
    """

    def __init__(self, bench: KafkaBench, policy: ListenerPolicy = OPEN) -> None:
        self.bench = bench
        self.number = self.epoch = 0
        self.known: dict[tuple[str, int], tuple[int, int, int]] = {}
        self.connection, self.transport = bench.connect_kafka(policy)

    def send(
        self,
        offsets: Mapping[int, int],
        forgotten: Iterable[int] = (),
        *,
        topic: str = "new",
        wait_ms: int = 0,
        **more: Any,
    ) -> None:
        """Ask for partitions from these offsets on, as the session's next request."""
        make = messages("Fetch", _VERSION, "request")
        wanted = tuple(
            make.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
            for number, offset in offsets.items()
        )
        gone = tuple(forgotten)
        values = {
            "replica_id": -1,
            "max_wait": timedelta(milliseconds=wait_ms),
            "min_bytes": 1,
            "session_id": self.number,
            "session_epoch": self.epoch,
            "topics": (make.FetchTopic(topic=topic, partitions=wanted),) if wanted else (),
            "forgotten_topics_data": (
                (make.ForgottenTopic(topic=topic, partitions=gone),) if gone else ()
            ),
            **more,
        }
        self.connection.dataReceived(encode_request("Fetch", _VERSION, **values))
        self.bench.turns(self.transport)

    def receive(self) -> Any:
        """The response, which must be there; the next request follows it."""
        (answer,) = answers(self.transport)
        self.transport.clear()
        found = decode_answer("Fetch", _VERSION, answer)
        if not found.error_code:
            self.number = found.session_id
            self.epoch = self.epoch + 1 if self.number else 0
        for topic in found.responses:
            for part in topic.partitions:
                told = part.error_code, part.high_watermark, part.log_start_offset
                self.known[topic.topic, part.partition_index] = told
        return found

    @property
    def is_waiting(self) -> bool:
        return not self.transport.value()

    def ask(self, offsets: Mapping[int, int], forgotten: Iterable[int] = (), **more: Any) -> Any:
        self.send(offsets, forgotten, **more)
        return self.receive()

    def told(
        self, offsets: Mapping[int, int], forgotten: Iterable[int] = (), **more: Any
    ) -> Sequence[tuple[int, int, int, int]]:
        """The same; of each partition its number, code, high watermark, and bytes of records."""
        found = self.ask(offsets, forgotten, **more)
        assert not found.error_code
        return [
            (part.partition_index, part.error_code, part.high_watermark, len(part.records or b""))
            for topic in found.responses
            for part in topic.partitions
        ]
