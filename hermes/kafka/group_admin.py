"""ListGroups, DescribeGroups, DeleteGroups: what tools ask."""

from typing import Any, Final

from hermes.groups.values import DescribedGroup, State
from hermes.kafka.dispatching import LARGE_ENTRIES, NOT_ASKED, Call, operation_bits
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.security import LONGEST_NAME, Operation, Resource

#: The first DescribeGroups that says that there is no such group.
_KNOWS_NO_GROUP: Final = 6
#: What groups may weigh together that are described again, being named again; and each at least.
_MOST_AGAIN_BYTES: Final = 1 << 20
_ANSWER_BYTES: Final = 100
#: Kafka's numbers of what a client may do to a group, by ours.
_OPERATIONS: Final = ((Operation.GROUP, (3, 6)), (Operation.DESCRIBE, (8,)))


async def list_groups(request: Any, call: Call) -> Any:
    states = {each.lower() for each in getattr(request, "states_filter", ())}
    types = {each.lower() for each in getattr(request, "types_filter", ())}
    make, groups, shown, code = call.make, [], [], Code.NONE
    try:
        groups = await call.server.groups.list_groups()
    except KafkaError as error:
        code = error.code
    for each in groups:
        await call.after_entry()
        is_wanted = not states or each.state.lower() in states
        is_wanted = is_wanted and (not types or each.kind in types)
        if is_wanted and call.may(Operation.DESCRIBE, Resource.group(each.name)):
            shown.append(
                make.ListedGroup(
                    group_id=each.name,
                    protocol_type=each.protocol_type,
                    group_state=str(each.state),
                    group_type=each.kind,
                )
            )
    call.is_large = len(shown) > LARGE_ENTRIES
    return make.ListGroupsResponse(error_code=code, groups=tuple(shown))


async def describe_groups(request: Any, call: Call) -> Any:
    has_operations = getattr(request, "include_authorized_operations", False)
    groups, known, again_bytes = [], dict[str, Any](), 0
    for name in request.groups:
        if name in known:  # as Kafka does; but a group may weigh megabytes
            again_bytes += _ANSWER_BYTES + _weight(known[name])
            if again_bytes > _MOST_AGAIN_BYTES:
                continue
        else:
            known[name] = await _describe(name, call, has_operations)
        groups.append(known[name])
        await call.after_entry()
    call.is_large = sum(1 + len(each.members) for each in groups) > LARGE_ENTRIES
    return call.make.DescribeGroupsResponse(groups=tuple(groups))


def _weight(group: Any) -> int:
    return sum(len(e.member_metadata) + len(e.member_assignment) for e in group.members)


async def _describe(name: str, call: Call, has_operations: bool) -> Any:
    make = call.make
    found: DescribedGroup | Code
    if not call.permits(Operation.DESCRIBE, Resource.group(name)):
        found = Code.GROUP_AUTHORIZATION_FAILED
    else:
        found = await call.server.groups.describe(name)
    code, text, state = Code.NONE, None, ""
    if isinstance(found, DescribedGroup):
        state = str(found.state)
    elif found is not Code.GROUP_ID_NOT_FOUND:
        code = found
    else:
        state = str(State.DEAD)
        if call.version >= _KNOWS_NO_GROUP:
            is_consumer_group = call.server.groups.is_consumer_group(name)
            what = "is not a classic group." if is_consumer_group else "not found."
            code, text = found, f"Group {name} {what}"
    if isinstance(found, Code):
        found = DescribedGroup(State.DEAD, "", "", ())
    return make.DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=name,
        group_state=state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol_name,
        members=tuple(
            make.DescribedGroupMember(
                member_id=each.member_id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.metadata,
                member_assignment=each.assignment,
            )
            for each in found.members
        ),
        authorized_operations=group_operations(call, name) if has_operations else NOT_ASKED,
    )


def group_operations(call: Call, group: str) -> int:
    return operation_bits(_OPERATIONS, lambda each: call.may(each, Resource.group(group)))


async def delete_groups(request: Any, call: Call) -> Any:
    results = []
    for name in dict.fromkeys(request.groups_names):
        await call.after_entry()
        if len(name) > LONGEST_NAME:
            code = Code.INVALID_GROUP_ID
        elif not call.permits(Operation.GROUP, Resource.group(name)):
            code = Code.GROUP_AUTHORIZATION_FAILED
        else:
            code = await call.server.groups.delete(name)
        results.append(call.make.DeletableGroupResult(group_id=name, error_code=code))
    call.is_large = len(results) > LARGE_ENTRIES
    return call.make.DeleteGroupsResponse(results=tuple(results))
