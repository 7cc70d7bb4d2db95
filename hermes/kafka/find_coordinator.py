"""FindCoordinator: which broker a group's members turn to, and a transactional producer."""

from typing import Any, Final

from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code
from hermes.security import Operation, Resource

_GROUP: Final = 0
_TRANSACTION: Final = 1

#: The first version with several keys.
_BATCHED: Final = 4


async def find_coordinator(request: Any, call: Call) -> Any:
    kind = getattr(request, "key_type", _GROUP)
    if call.version >= _BATCHED:
        call.is_large = len(request.coordinator_keys) > LARGE_ENTRIES
        found = []
        for key in request.coordinator_keys:
            found.append(call.make.Coordinator(key=key, **await _find(kind, key, call, "")))
            await call.after_entry()
        return call.make.FindCoordinatorResponse(coordinators=tuple(found))
    return call.make.FindCoordinatorResponse(**await _find(kind, request.key, call, "NONE"))


async def _find(kind: int, key: str, call: Call, no_error: str) -> dict[str, Any]:
    code, text = Code.NONE, no_error
    if kind == _TRANSACTION:
        if not call.permits(Operation.DESCRIBE, Resource.transaction(key)):
            code, text = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "you may not use this id"
        elif not key:
            code, text = Code.INVALID_REQUEST, "a transactional id isn't empty"
    elif kind != _GROUP:
        code, text = Code.INVALID_REQUEST, "only groups and transactions have coordinators here"
    elif not call.permits(Operation.DESCRIBE, Resource.group(key)):
        code, text = Code.GROUP_AUTHORIZATION_FAILED, "you may not describe this group"
    if code is Code.NONE:
        if kind == _GROUP:
            coordinator = call.server.groups.local.coordinator_for(key)
        else:
            coordinator = await call.server.transactions.coordinator.coordinator_of(key)
        for broker in call.server.topics.brokers(call.client.listener):
            if broker.id == coordinator:
                place = {"node_id": broker.id, "host": broker.host, "port": broker.port}
                return {"error_code": code, "error_message": text, **place}
        code, text = Code.COORDINATOR_NOT_AVAILABLE, "no broker coordinates it now"
    return {"error_code": code, "error_message": text, "node_id": -1, "host": "", "port": -1}
