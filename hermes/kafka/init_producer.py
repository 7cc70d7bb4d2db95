"""InitProducerId: what a producer asks for first, so that it stores each message once.

There are no transactions: a producer that wants them is refused at once, by the one code that all
of Kafka's clients take for final.
"""

from typing import Any, Final

from hermes.errors import CoordinationError, HermesError
from hermes.kafka.dispatching import Call
from hermes.protocol.kafka_errors import Code, code_of
from hermes.security import CLUSTER, Operation

_NONE: Final = -1


async def init_producer_id(request: Any, call: Call) -> Any:
    def answer(code: Code, producer_id: int = _NONE, epoch: int = _NONE) -> Any:
        return call.make.InitProducerIdResponse(
            error_code=code,
            producer_id=producer_id,
            producer_epoch=epoch,
            ongoing_txn_producer_id=_NONE,
            ongoing_txn_producer_epoch=_NONE,
        )

    if request.transactional_id is not None:
        return answer(Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    before = getattr(request, "producer_id", _NONE), getattr(request, "producer_epoch", _NONE)
    if (before[0] == _NONE) != (before[1] == _NONE):
        return answer(Code.INVALID_REQUEST)
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
