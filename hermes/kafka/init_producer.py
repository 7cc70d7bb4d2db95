"""InitProducerId: what a producer asks for first, so that it stores each message once.

One with a transactional id gets what fences those before it, from the coordinator of its id.
"""

from datetime import timedelta
from typing import Any, Final

from hermes.errors import CoordinationError, HermesError
from hermes.kafka.dispatching import Call
from hermes.protocol.kafka_errors import Code, KafkaError, code_of
from hermes.security import CLUSTER, Operation, Resource
from hermes.transactions.deciding import Producer

_NONE: Final = -1
_MILLISECOND: Final = timedelta(milliseconds=1)

#: The first version in which a fenced producer is told so.
_FENCED: Final = 4


async def init_producer_id(request: Any, call: Call) -> Any:
    def answer(code: Code, producer_id: int = _NONE, epoch: int = _NONE) -> Any:
        return call.make.InitProducerIdResponse(
            error_code=code,
            producer_id=producer_id,
            producer_epoch=epoch,
            ongoing_txn_producer_id=_NONE,
            ongoing_txn_producer_epoch=_NONE,
        )

    before = Producer(
        getattr(request, "producer_id", _NONE), getattr(request, "producer_epoch", _NONE)
    )
    if (before.id == _NONE) != (before.epoch == _NONE):
        return answer(Code.INVALID_REQUEST)
    name = request.transactional_id
    if name is not None:
        try:
            made = await _initialized(name, request, before, call)
        except KafkaError as error:
            is_old = error.code is Code.PRODUCER_FENCED and call.version < _FENCED
            return answer(Code.INVALID_PRODUCER_EPOCH if is_old else error.code)
        return answer(Code.NONE, *made)
    shared = call.server.shared
    if not shared.authorization.belongs(call.client):
        call.permits(Operation.ADMIN, CLUSTER)  # counted and logged, as any refusal
        return answer(Code.CLUSTER_AUTHORIZATION_FAILED)
    try:
        # Whatever it was before, it begins anew: Kafka does so for all without transactions.
        return answer(Code.NONE, await call.server.producer_ids.take(), 0)
    except CoordinationError:
        return answer(Code.COORDINATOR_LOAD_IN_PROGRESS)
    except HermesError as error:
        shared.lines.error("producer ids", "no producer id can be given out: {error}", error=error)
        return answer(code_of(error))


async def _initialized(name: str, request: Any, before: Producer, call: Call) -> Producer:
    if not call.permits(Operation.PRODUCE, Resource.transaction(name)):
        raise KafkaError(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    timeout_ms = request.transaction_timeout // _MILLISECOND
    expected = None if before.id == _NONE else before
    made = await call.server.transactions.coordinator.initialize(name, timeout_ms, expected)
    return Producer(made.producer_id, made.epoch)
