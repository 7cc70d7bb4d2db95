"""AlterPartitionReassignments, ListPartitionReassignments and ElectLeaders.

The broker that is asked decides by what stands in coordination, and changes that in one step for
each topic. Whoever leads the partition sees it, and carries a move out.

Source of errors and their order: Kafka 4's `ReplicationControlManager`.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from hermes.cluster.cluster_topics import ClusterTopic
from hermes.cluster.replica_changes import StateChange
from hermes.errors import HermesError, LastReplicaError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.kafka.epochs import told_epoch
from hermes.logs import ModuleLogger
from hermes.protocol.kafka_errors import Code, KafkaError, error_fields, invalid_request
from hermes.replication.state import (
    NO_LIFE,
    PartitionState,
    cancelled,
    first_state,
    led_by,
    moving,
    unclean,
)
from hermes.security import CLUSTER, Operation

_log = ModuleLogger()

_PREFERRED: Final = 0
_UNCLEAN: Final = 1

#: What each partition came to; None is well.
_Outcomes = dict[int, HermesError | None]


async def _changed(
    name: str, changes: Mapping[int, StateChange | HermesError], call: Call
) -> _Outcomes:
    """Change partitions of a topic; what stands for a partition may be why it can't be."""
    found = call.server.topics.get(name)
    if found is None:
        missing = KafkaError(
            Code.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}."
        )
        return dict.fromkeys(changes, missing)
    outcomes: _Outcomes = {}
    possible: dict[int, StateChange] = {}
    for number, change in changes.items():
        outcomes[number] = None
        if not 0 <= number < len(found.partitions):
            outcomes[number] = KafkaError(
                Code.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{number}."
            )
        elif isinstance(change, HermesError):
            outcomes[number] = change
        else:
            possible[number] = change
    if not possible:
        return outcomes
    try:
        sole = _sole_states(found, possible, call)
        outcomes |= await call.server.replica_changes.change(found, possible, sole)
    except HermesError as error:
        outcomes |= dict.fromkeys(possible, error.with_traceback(None))  # it had this frame
    return outcomes


def _sole_states(
    topic: ClusterTopic, numbers: Iterable[int], call: Call
) -> Callable[[int], PartitionState]:
    """The states of partitions as long as they have one copy: what is told of them, and in force.

    The epoch is one later: whoever knows the partition's leader looks again.
    """
    find, lives = call.server.shared.directory.get, _lives(call)
    places = {number: topic.partitions[number] for number in numbers}
    epochs = {n: told_epoch(find(topic.name, each.partition)) + 1 for n, each in places.items()}
    return lambda number: first_state((places[number].broker_id,), lives, epochs[number])


def _lives(call: Call) -> Mapping[int, int]:
    """The brokers that are there, each with its session: without a cluster this one, with none."""
    topics = call.server.topics
    return topics.lives if topics.has_cluster else {topics.broker_id: NO_LIFE}


# -- AlterPartitionReassignments ----------------------------------------------------------------


async def alter_reassignments(request: Any, call: Call) -> Any:
    make, count, code, text = call.make, 0, Code.NONE, None
    is_factor_free = getattr(request, "allow_replication_factor_change", True)
    wanted: dict[str, dict[int, Sequence[int] | None]] = {}
    for each in request.topics:
        moves = {part.partition_index: part.replicas for part in each.partitions}
        wanted.setdefault(each.name, {}).update(moves)
    try:
        call.check_admin()
    except KafkaError as error:
        code, text = error.code, str(error)
    topics = []
    for number, (name, moves) in enumerate(wanted.items()):
        await call.after_entry()
        outcomes: _Outcomes = dict.fromkeys(moves, KafkaError(code, text or ""))
        if code is Code.NONE:
            changes = {n: _move(name, n, to, is_factor_free, call) for n, to in moves.items()}
            outcomes = await _changed(name, changes, call)
        count += 1 + len(outcomes)
        partitions = tuple(
            make.ReassignablePartitionResponse(
                partition_index=number,
                **error_fields(error),
            )
            for number, error in outcomes.items()
        )
        topics.append(make.ReassignableTopicResponse(name=name, partitions=partitions))
    call.is_large = count > LARGE_ENTRIES
    more = {} if call.version == 0 else {"allow_replication_factor_change": is_factor_free}
    return make.AlterPartitionReassignmentsResponse(
        error_code=code, error_message=text, responses=tuple(topics), **more
    )


def _move(
    name: str, number: int, target: Sequence[int] | None, is_factor_free: bool, call: Call
) -> StateChange | HermesError:
    if target is None:
        return lambda state: _cancelled(state, name)
    try:
        found = call.server.topics.get(name)
        if found is not None:  # else that is what is wrong
            call.server.replica_changes.placing.check_move(found, number, target)
    except KafkaError as error:
        return error

    def change(state: PartitionState) -> PartitionState:
        if not is_factor_free and len(target) != len(state.target):
            raise KafkaError(
                Code.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(state.target)} to {len(target)}",
            )
        return moving(state, target)

    return change


def _cancelled(state: PartitionState, name: str) -> PartitionState:
    if not (state.adding or state.removing):
        raise KafkaError(
            Code.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress."
        )
    try:
        return cancelled(state)
    except LastReplicaError as error:
        raise KafkaError(
            Code.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {name} because it would require an "
            f"unclean leader election: {error}",
        ) from None


# -- ListPartitionReassignments -----------------------------------------------------------------


async def list_reassignments(request: Any, call: Call) -> Any:
    make, topics = call.make, []
    if not call.permits(Operation.DESCRIBE, CLUSTER):
        return make.ListPartitionReassignmentsResponse(
            error_code=Code.CLUSTER_AUTHORIZATION_FAILED,
            error_message="Cluster authorization failed.",
            topics=(),
        )
    known = call.server.topics
    wanted: dict[str, dict[int, None] | None] = dict.fromkeys(known.names())
    if request.topics is not None:
        wanted = {each.name: dict.fromkeys(each.partition_indexes) for each in request.topics}
    for name, numbers in wanted.items():
        found, moves = known.get(name), []
        if found is None:
            continue
        for number in range(len(found.copies)) if numbers is None else numbers:
            await call.after_entry()
            state = found.state(number) if number >= 0 else None
            if state is not None and (state.adding or state.removing):
                moves.append(
                    make.OngoingPartitionReassignment(
                        partition_index=number,
                        replicas=state.replicas,
                        adding_replicas=tuple(sorted(state.adding)),
                        removing_replicas=tuple(sorted(state.removing)),
                    )
                )
        if moves:
            topics.append(make.OngoingTopicReassignment(name=name, partitions=tuple(moves)))
    call.is_large = sum(len(each.partitions) for each in topics) > LARGE_ENTRIES
    return make.ListPartitionReassignmentsResponse(**error_fields(), topics=tuple(topics))


# -- ElectLeaders -------------------------------------------------------------------------------


async def elect_leaders(request: Any, call: Call) -> Any:
    code, results, count = Code.NONE, [], 0
    wanted: dict[str, dict[int, None]] = {}
    for each in request.topic_partitions or ():
        wanted.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    kind = getattr(request, "election_type", _PREFERRED)
    refusal = None
    try:
        call.check_admin()
        if kind not in (_PREFERRED, _UNCLEAN):
            raise invalid_request(f"Unknown election type {kind}")
        if request.topic_partitions is None:
            wanted = _all_partitions(call)
    except KafkaError as error:
        code, refusal = error.code, error
    for name, numbers in wanted.items():
        await call.after_entry()
        outcomes: _Outcomes = dict.fromkeys(numbers, refusal)
        if refusal is None:
            outcomes = await _elected(name, numbers, kind == _UNCLEAN, call)
        if request.topic_partitions is None:
            outcomes = {n: each for n, each in outcomes.items() if not _is_needless(each)}
        count += 1 + len(outcomes)
        results.append(_election_result(call, name, outcomes))
    call.is_large = count > LARGE_ENTRIES
    more = {} if call.version == 0 else {"error_code": code}
    return call.make.ElectLeadersResponse(replica_election_results=tuple(results), **more)


def _all_partitions(call: Call) -> dict[str, dict[int, None]]:
    topics = call.server.topics
    found = {name: topics.get(name) for name in topics.names()}
    return {
        name: dict.fromkeys(range(len(each.partitions)))
        for name, each in found.items()
        if each is not None
    }


def _election_result(call: Call, name: str, outcomes: _Outcomes) -> Any:
    return call.make.ReplicaElectionResult(
        topic=name,
        partition_result=tuple(
            call.make.PartitionResult(
                partition_id=number,
                **error_fields(error),
            )
            for number, error in outcomes.items()
        ),
    )


def _is_needless(error: HermesError | None) -> bool:
    return isinstance(error, KafkaError) and error.code is Code.ELECTION_NOT_NEEDED


async def _elected(name: str, numbers: Iterable[int], is_unclean: bool, call: Call) -> _Outcomes:
    lives, befores = _lives(call), dict[int, PartitionState]()

    def election(number: int) -> StateChange:
        def change(state: PartitionState) -> PartitionState:
            if not is_unclean:
                return _with_preferred_leader(state, lives)
            after = _with_any_leader(state, lives)
            befores[number] = state
            return after

        return change

    outcomes = await _changed(name, {number: election(number) for number in numbers}, call)
    for number, before in befores.items():
        if outcomes[number] is None and not before.sound & lives.keys():
            _log.error(
                "{topic}-{number} is led by a replica that wasn't in sync, as {client} has asked: "
                "what only brokers {isr} had of it is lost",
                topic=name,
                number=number,
                client=call.client,
                isr=sorted(before.isr),
            )
    return outcomes


def _with_preferred_leader(state: PartitionState, lives: Mapping[int, int]) -> PartitionState:
    """Have the preferred replica lead.

    Safe to decide here, whoever leads now and whatever that one is doing: an in-sync replica has
    all that is committed, and leads in an epoch of its own.
    """
    preferred = state.replicas[0]
    if preferred not in state.isr or preferred not in lives:
        raise KafkaError(
            Code.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} is not {'in sync' if preferred in lives else 'registered'}",
        )
    if state.is_lacking:
        raise KafkaError(
            Code.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {preferred} lacks what it had; an unclean election takes another one",
        )
    if preferred == state.leader:
        raise _not_needed()
    return led_by(state, preferred, lives[preferred])


def _with_any_leader(state: PartitionState, lives: Mapping[int, int]) -> PartitionState:
    # A session that has ended leads nothing: its broker may have come back with another disk.
    if state.leader in lives and lives[state.leader] == state.life:
        raise _not_needed()
    live = [each for each in state.replicas if each in lives]
    sound = [each for each in live if each in state.sound]
    if sound:
        return led_by(state, sound[0], lives[sound[0]])
    live.sort(key=state.isr.__contains__)  # who has lost its disk comes last
    if not live:
        raise KafkaError(
            Code.ELIGIBLE_LEADERS_NOT_AVAILABLE,
            f"none of the brokers {sorted(state.replicas)} is registered",
        )
    return unclean(state, live[0], lives[live[0]])


def _not_needed() -> KafkaError:
    return KafkaError(Code.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
