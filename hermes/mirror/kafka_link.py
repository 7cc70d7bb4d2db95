"""How batches get to one broker of a target by Kafka's protocol: in order, and at least once.

A link has a producer id of its own, and numbers what it sends to each partition. So many requests
may be on their way at once: when one is refused, the broker refuses those behind it. It accepts
anything from a producer that is new to a partition; there the first one is waited for. What was on
its way when the connection broke is sent again by another link, with another id: it may come twice.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

from hermes.client.kafka_asking import KafkaAsker, authenticate, encoded_request
from hermes.client.mirrored import PipelinedConnection
from hermes.errors import BrokerError, MessageTooLargeBrokerError, OutcomeUnknownError
from hermes.mirror.kafka_cluster import RefusedError, check
from hermes.mirror.links import AppendBatch, Outcome
from hermes.mirror.record_stretches import with_producer
from hermes.protocol.record_batches import HEADER_BYTES, decode_header
from hermes.security import ClientSecurity

_TIMEOUT_SECONDS: Final = 30.0
_ALL: Final = -1
_MOST_IN_FLIGHT: Final = 64
_SEQUENCES: Final = 1 << 31

_TOO_LARGE: Final = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE")

_Place = tuple[str, int]


@dataclass(slots=True, eq=False)
class _Sending:
    """What was begun together: how many requests wait for answers, and of each batch its error."""

    errors: list[BrokerError | None]
    left: int = 0


class KafkaLink:
    """To one broker; see the module. `Link` says what its methods do."""

    most_in_flight = 2

    def __init__(self, host: str, port: int, security: ClientSecurity) -> None:
        self._place = (host, port, _TIMEOUT_SECONDS, security)
        self._connection = PipelinedConnection(
            host,
            port,
            timeout_seconds=_TIMEOUT_SECONDS,
            security=security,
            authenticate=authenticate,
        )
        self._producer = (-1, -1)
        # Whether something was refused: nothing more is sent before all who wait know their own.
        self._is_spoiled = True
        self._sequences: dict[_Place, int] = {}
        self._known: set[_Place] = set()  # partitions that know the producer
        self._number = 0
        self._begun: deque[_Sending] = deque()
        self._in_flight: deque[tuple[_Sending, dict[_Place, int], Callable[..., Any]]] = deque()

    def begin(self, batches: Sequence[AppendBatch]) -> None:
        if self._is_spoiled and not self._begun:
            self._producer = self._new_producer()
        sending = _Sending([None] * len(batches))
        self._begun.append(sending)
        waiting: dict[_Place, deque[tuple[int, bytes]]] = {}
        for number, each in enumerate(batches):
            waiting.setdefault(each.place, deque()).append((number, each.data))
        while waiting:  # a request takes one batch for each partition
            if self._is_spoiled:
                text = f"{self._connection.address}: something before it was refused"
                for number, _ in chain.from_iterable(waiting.values()):
                    sending.errors[number] = OutcomeUnknownError(text)
                return
            self._send(sending, {place: queue.popleft() for place, queue in waiting.items()})
            waiting = {place: queue for place, queue in waiting.items() if queue}

    def finish(self) -> Sequence[Outcome]:
        sending = self._begun.popleft()
        while sending.left:
            self._receive()
        return [Outcome(error) for error in sending.errors]

    def close(self) -> None:
        self._connection.close()

    # -- inside ---------------------------------------------------------------------------------

    def _new_producer(self) -> tuple[int, int]:
        with KafkaAsker(*self._place) as asker:
            answer = asker.ask(
                "InitProducerId", 4, transaction_timeout=0, producer_id=-1, producer_epoch=-1
            )
        check(answer.error_code, "a producer id")
        self._sequences.clear()
        self._known.clear()
        self._is_spoiled = False
        return answer.producer_id, answer.producer_epoch

    def _send(self, sending: _Sending, some: dict[_Place, tuple[int, bytes]]) -> None:
        topics: dict[str, list[dict[str, Any]]] = {}
        for place, (_, batch) in some.items():
            entry = {"index": place[1], "records": self._numbered(place, batch)}
            topics.setdefault(place[0], []).append(entry)
        self._number += 1
        request, decode = encoded_request(
            "Produce",
            9,
            self._number,
            {
                "acks": _ALL,
                "timeout": round(_TIMEOUT_SECONDS * 1000),
                "topic_data": [{"name": n, "partition_data": each} for n, each in topics.items()],
            },
        )
        while len(self._in_flight) >= _MOST_IN_FLIGHT:
            self._receive()
        self._connection.begin(request)
        sending.left += 1
        self._in_flight.append((sending, {p: n for p, (n, _) in some.items()}, decode))
        if not self._known.issuperset(some):
            while self._in_flight:
                self._receive()

    def _numbered(self, place: _Place, batch: bytes) -> bytes:
        header, sequence = decode_header(batch), self._sequences.get(place, 0)
        self._sequences[place] = (sequence + header.record_count) % _SEQUENCES
        return with_producer(header, memoryview(batch)[HEADER_BYTES:], *self._producer, sequence)

    def _receive(self) -> None:
        sending, numbers, decode = self._in_flight.popleft()
        answer = self._connection.finish(decode)
        sending.left -= 1
        for topic in answer.responses:
            for each in topic.partition_responses:
                place = (topic.name, each.index)
                if not each.error_code:
                    self._known.add(place)
                    continue
                self._is_spoiled = True
                error = _error(self._connection.address, place, each)
                sending.errors[numbers[place]] = error


def _error(address: str, place: _Place, answer: Any) -> BrokerError:
    what = f"{address}: topic {place[0]!r} partition {place[1]}"
    error = RefusedError(what, answer.error_code, answer.error_message)
    if error.name in _TOO_LARGE:
        return MessageTooLargeBrokerError(str(error))
    return error
