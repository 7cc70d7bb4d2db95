"""What clients ask in Kafka's own bytes: the product's dispatcher, and what it has behind it."""

from typing import Any, NamedTuple
from uuid import UUID

from broker_links import bytes_of
from brokers import SimulatedBroker
from kafka_bench import decode_answer, encode_request
from kafka_raw import parts
from requests import is_end_known

from hermes.kafka.connection import FrameReceiver
from hermes.protocol.kafka_errors import Code
from hermes.protocol.record_batches import is_intact, next_in
from hermes.protocol.records import Record, iterate_records
from hermes.protocol.transaction_markers import CommittedOnly
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection, DeferredResponse

__all__ = ["CommittedFetch", "exchange", "fetch_committed"]

_LARGEST_BYTES = 1 << 20
_COMMITTED_ONLY = 1


async def exchange(broker: SimulatedBroker, name: str, version: int, fields: Any) -> Any:
    """Have a request carried out by its bytes; the response, as kio decodes it."""
    receiver = FrameReceiver(_LARGEST_BYTES)
    receiver.receive_data(encode_request(name, version, **fields))
    frame = receiver.next_request()
    assert frame is not None
    assert broker.dispatcher is not None
    (listener,) = broker.server.topics.listeners()
    outcome = broker.dispatcher.serve(frame, Client("a client", listener))
    if isinstance(outcome, DeferredResponse):
        outcome = await outcome.to_deferred()
    try:
        data = bytes_of(broker, outcome)
    except OSError as error:
        raise CloseConnection(f"{error}", "kafka", "unreadable") from None
    return decode_answer(name, version, data[4:])


class CommittedFetch(NamedTuple):
    """What a reader of what was committed was told.

    Attributes:
        begin: from where on it was read.
        start, stable_end, end: the log's first offset, last stable offset and high watermark.
        covered: up to where all is there that such a reader gets.
        is_end_known: see `requests.Fetched`.
    """

    code: int
    begin: int
    start: int
    stable_end: int
    end: int
    covered: int
    records: list[Record]
    is_end_known: bool


async def fetch_committed(
    broker: SimulatedBroker, name: str, topic_id: UUID, number: int, offset: int | None
) -> CommittedFetch:
    """Read what was committed, from an offset on; None is the log's start."""
    begin = broker.server.topics.log(name, number).earliest if offset is None else offset
    make = parts("Fetch", 13)
    wanted = make.FetchPartition(partition=number, fetch_offset=begin, partition_max_bytes=1 << 20)
    known = is_end_known(broker, name, number)
    answer = await exchange(
        broker,
        "Fetch",
        13,
        {
            "max_wait": make.timeout(0),
            "min_bytes": 0,
            "isolation_level": _COMMITTED_ONLY,
            "topics": (make.FetchTopic(topic_id=topic_id, partitions=(wanted,)),),
            "forgotten_topics_data": (),
        },
    )
    (found,) = answer.responses[0].partitions
    code, data = found.error_code.value, found.records or b""
    if code:
        return CommittedFetch(code, begin, -1, -1, -1, begin, [], False)
    committed = CommittedOnly(
        (each.producer_id, each.first_offset) for each in found.aborted_transactions or ()
    )
    position, covered, records = 0, begin, list[Record]()
    while (header := next_in(data, position)) is not None:
        if not is_intact(data[position : position + header.size_bytes]):
            return CommittedFetch(Code.CORRUPT_MESSAGE, begin, -1, -1, -1, begin, [], False)
        if committed.takes(header, data, position):
            records += iterate_records(data, header, position)
        position, covered = position + header.size_bytes, header.next_offset
    return CommittedFetch(
        code,
        begin,
        found.log_start_offset,
        found.last_stable_offset,
        found.high_watermark,
        covered,
        [each for each in records if each.offset >= begin],
        known and is_end_known(broker, name, number),
    )
