"""Batches of transactions: each is appended once its partition is part of its producer's.

A log that has a part of the transaction already needs no asking. In later versions the produce
itself has a partition join (KIP-890); in earlier ones it is found out whether the producer had it.
"""

from collections.abc import Sequence
from typing import Final

from hermes.errors import HermesError, InvalidTransactionStateError
from hermes.kafka.dispatching import Call
from hermes.kafka.producing.produce_messages import Entry
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.protocol.record_batches import TRANSACTIONAL_BIT, BatchHeader
from hermes.storage import Log
from hermes.storage.producer_states import ProducerState
from hermes.transactions.deciding import Producer
from hermes.transactions.state import Place

# The first versions in which a transaction may be said to be of no use any more, and in which
# partitions become part of it by the produce itself.
_KNOWS_ABORTABLE: Final = 11
_JOINS: Final = 12

_NO_COORDINATOR: Final = (
    Code.NOT_COORDINATOR,
    Code.COORDINATOR_NOT_AVAILABLE,
    Code.COORDINATOR_LOAD_IN_PROGRESS,
)


async def join(call: Call, transactional_id: str, entries: Sequence[Entry]) -> None:
    """Have what is transactional be part of its producer's transaction, or refuse it."""
    adds = call.version >= _JOINS
    wanted: dict[Producer, dict[Place, list[Entry]]] = {}
    for each in entries:
        if not each.headers or not each.headers[0].attributes & TRANSACTIONAL_BIT:
            continue
        assert each.found is not None
        header, place = each.headers[0], (each.found.name, each.partition)
        each.has_growing_epoch = adds
        if each.error is not None:
            continue
        try:
            known = call.server.topics.partition(*place).log.producers
        except HermesError as error:
            each.error = error.with_traceback(None)  # appending might not meet it any more
            continue
        each.producer = None if known is None else known.states.get(header.producer_id)
        if _is_in(each.producer, header):
            each.has_joined = True
        else:
            producer = Producer(header.producer_id, header.producer_epoch)
            wanted.setdefault(producer, {}).setdefault(place, []).append(each)
    for producer, places in wanted.items():
        codes = await call.server.transactions.join(transactional_id, producer, places, adds=adds)
        for place, some in places.items():
            for each in some:
                each.has_joined = codes[place] is Code.NONE
                if not each.has_joined:
                    each.error = _not_joined(codes[place], call.version)


def _is_in(known: ProducerState | None, header: BatchHeader) -> bool:
    """Whether a log has a part of the producer's transaction already."""
    if known is None or known.epoch != header.producer_epoch:
        return False
    return known.transaction_start >= 0


def is_still_in(entry: Entry, log: Log) -> bool:
    """Whether the transaction that a batch was found to be part of hasn't ended since.

    Appending sees that by the epoch, where this grows. The marker that came meanwhile may be of the
    transaction before, for whose end the producer hasn't waited.
    """
    if entry.has_growing_epoch:
        return True
    header = entry.headers[0]
    known = None if log.producers is None else log.producers.states.get(header.producer_id)
    if known is not entry.producer and not _is_in(known, header):
        raise InvalidTransactionStateError("the transaction has ended meanwhile")
    return True


def _not_joined(code: Code, version: int) -> KafkaError:
    """Why a partition isn't part of the transaction, as clients of a version take it."""
    if code is Code.PRODUCER_FENCED:
        code = Code.INVALID_PRODUCER_EPOCH
    elif code is Code.TRANSACTION_ABORTABLE and version < _KNOWS_ABORTABLE:
        code = Code.INVALID_TXN_STATE
    elif code in _NO_COORDINATOR or (code is Code.CONCURRENT_TRANSACTIONS and version < _JOINS):
        code = Code.NOT_ENOUGH_REPLICAS  # which all of them send again after
    return KafkaError(code, "the partition couldn't be made part of the transaction")
