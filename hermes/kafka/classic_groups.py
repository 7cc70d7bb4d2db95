"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup: what members of a group send."""

from datetime import timedelta
from typing import Any, Final

from hermes.groups.values import Join, JoinResponse, Leaving, Protocol, Sync, SyncResponse
from hermes.kafka.dispatching import Call
from hermes.protocol.kafka_errors import Code
from hermes.security import LONGEST_NAME, Operation

#: From this version on a member first gets an id.
_NEEDS_ID: Final = 4
#: From this one on protocol type and name may be null in the answer.
_HAS_PROTOCOL_TYPE: Final = 7
#: From this one on a leader can be told to leave the assignment as it is.
_CAN_SKIP: Final = 9
#: From this version on SyncGroup has to name the protocol.
_SYNC_NAMES_PROTOCOL: Final = 5
#: The first LeaveGroup of several members.
_LEAVES_TOGETHER: Final = 3
#: Kafka's bound of an instance's id, and ours of other names that a member gives itself.
LONGEST_ID: Final = 249
#: A leader's answer with more bytes of what members said is encoded in a thread.
_LARGE_METADATA: Final = 64 * 1024
#: More ways to share than any client has.
_MOST_PROTOCOLS: Final = 100


def may_use(call: Call, group: str) -> Code:
    if len(group) > LONGEST_NAME:
        return Code.INVALID_GROUP_ID
    if not call.server.authorization.is_on or call.permits_group(Operation.GROUP, group):
        return Code.NONE
    return Code.GROUP_AUTHORIZATION_FAILED


async def join_group(request: Any, call: Call) -> Any:
    """Answered when all members have come."""
    name = request.group_id
    code = may_use(call, name)
    if code is Code.NONE and _is_too_much(request):
        code = Code.INVALID_REQUEST
    if code is Code.NONE:
        joining = call.server.groups.join(name, _join_of(request, call))
        del request  # it may have to wait for minutes
        call.step_aside()
        joined = await joining
    else:
        joined = JoinResponse(code, request.member_id)
    old = call.version < _HAS_PROTOCOL_TYPE
    call.is_large = sum(len(each.metadata) for each in joined.members) > _LARGE_METADATA
    return call.make.JoinGroupResponse(
        error_code=joined.code,
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name or ("" if old else None),
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=tuple(
            call.make.JoinGroupResponseMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                metadata=each.metadata,
            )
            for each in joined.members
        ),
    )


def _is_too_much(request: Any) -> bool:
    instance_id = getattr(request, "group_instance_id", None) or ""
    longest = max((len(each.name) for each in request.protocols), default=0)
    if len(request.protocols) > _MOST_PROTOCOLS:
        return True
    return max(len(instance_id), len(request.protocol_type), longest) > LONGEST_ID


def _join_of(request: Any, call: Call) -> Join:
    session_ms = milliseconds(request.session_timeout)
    rebalance = getattr(request, "rebalance_timeout", None)
    rebalance_ms = -1 if rebalance is None else milliseconds(rebalance)
    protocols = {each.name: Protocol(each.name, bytes(each.metadata)) for each in request.protocols}
    return Join(
        request.member_id,
        getattr(request, "group_instance_id", None),
        call.client_id,
        f"/{call.client.host}",
        request.protocol_type,
        tuple(protocols.values()),
        session_ms,
        session_ms if rebalance_ms == -1 else rebalance_ms,
        call.version >= _NEEDS_ID,
        call.version >= _CAN_SKIP,
    )


def milliseconds(time: timedelta) -> int:
    return round(time.total_seconds() * 1000)


async def sync_group(request: Any, call: Call) -> Any:
    """Answered once the leader has said who gets what."""
    protocol_type = getattr(request, "protocol_type", None)
    protocol_name = getattr(request, "protocol_name", None)
    code = may_use(call, request.group_id)
    if call.version >= _SYNC_NAMES_PROTOCOL and None in (protocol_type, protocol_name):
        code = Code.INCONSISTENT_GROUP_PROTOCOL
    if code is Code.NONE:
        sync = Sync(
            request.member_id,
            getattr(request, "group_instance_id", None),
            request.generation_id,
            {each.member_id: bytes(each.assignment) for each in request.assignments},
            protocol_type,
            protocol_name,
        )
        syncing = call.server.groups.sync(request.group_id, sync)
        del request, sync
        call.step_aside()
        synced = await syncing
    else:
        synced = SyncResponse(code)
    return call.make.SyncGroupResponse(
        error_code=synced.code,
        protocol_type=synced.protocol_type,
        protocol_name=synced.protocol_name,
        assignment=synced.assignment,
    )


def heartbeat(request: Any, call: Call) -> Any:
    code: Code | None = may_use(call, request.group_id)
    if code is Code.NONE:
        instance_id = getattr(request, "group_instance_id", None)
        beat = (request.group_id, request.member_id, instance_id, request.generation_id)
        code = call.server.groups.heartbeat_now(*beat)
        if code is None:
            return _heartbeat_of_unread(call, *beat)
    return call.make.HeartbeatResponse(error_code=code)


async def _heartbeat_of_unread(call: Call, *beat: Any) -> Any:
    return call.make.HeartbeatResponse(error_code=await call.server.groups.heartbeat(*beat))


async def leave_group(request: Any, call: Call) -> Any:
    if call.version < _LEAVES_TOGETHER:
        leaving = [Leaving(request.member_id, None)]
    else:
        leaving = [Leaving(each.member_id, each.group_instance_id) for each in request.members]
    code, codes = may_use(call, request.group_id), list[Code]()
    if code is Code.NONE:
        code, codes = await call.server.groups.leave(request.group_id, leaving)
    if call.version < _LEAVES_TOGETHER and code is Code.NONE:
        code = codes[0]
    call.is_large = len(codes) > 256
    make, members = call.make.MemberResponse, []
    for (member_id, instance_id), each in zip(leaving, codes, strict=False):
        members.append(make(member_id=member_id, group_instance_id=instance_id, error_code=each))
        await call.after_entry()
    return call.make.LeaveGroupResponse(error_code=code, members=tuple(members))
