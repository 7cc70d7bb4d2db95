"""DescribeCluster and DescribeLogDirs: the live brokers, and what is on this one's disk."""

import os
from typing import Any, Final

from hermes.errors import HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, NOT_ASKED, Call, operation_bits
from hermes.protocol.kafka_errors import Code
from hermes.security import CLUSTER, Operation

_BROKERS: Final = 1
_CONTROLLERS: Final = 2

#: Kafka's numbers of what a client may do to the cluster, by ours.
_OPERATIONS: Final = (
    (Operation.ADMIN, (5, 7, 10, 11, 12)),
    (Operation.DESCRIBE, (8,)),
    (Operation.REPLICATE, (9,)),
)


def describe_cluster(request: Any, call: Call) -> Any:
    make, topics = call.make, call.server.topics
    kind = getattr(request, "endpoint_type", _BROKERS)
    code, message = Code.NONE, None
    if kind == _CONTROLLERS:
        code, message = Code.MISMATCHED_ENDPOINT_TYPE, "The request was sent to an endpoint of "
        message += "type BROKER, but we wanted an endpoint of type CONTROLLER"
    elif kind != _BROKERS:
        code, message = Code.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {kind}"
    brokers = topics.brokers(call.client.listener) if code is Code.NONE else ()
    allowed = NOT_ASKED
    if request.include_cluster_authorized_operations and code is Code.NONE:
        allowed = cluster_operations(call)
    return make.DescribeClusterResponse(
        error_code=code,
        error_message=message,
        endpoint_type=kind if code is Code.NONE else _BROKERS,
        cluster_id=topics.cluster_id if code is Code.NONE else "",
        controller_id=topics.controller_id if code is Code.NONE else -1,
        brokers=tuple(
            make.DescribeClusterBroker(
                broker_id=each.id,
                host=each.host,
                port=each.port,
                rack=each.rack or None,
                is_fenced=False,
            )
            for each in brokers
        ),
        cluster_authorized_operations=allowed,
    )


def cluster_operations(call: Call) -> int:
    return operation_bits(_OPERATIONS, lambda operation: call.may(operation, CLUSTER))


async def describe_log_dirs(request: Any, call: Call) -> Any:
    make, server = call.make, call.server
    if not call.permits(Operation.DESCRIBE, CLUSTER):
        code = Code.CLUSTER_AUTHORIZATION_FAILED
        return make.DescribeLogDirsResponse(error_code=code, results=())
    wanted = None
    if request.topics is not None:
        wanted = {each.topic: frozenset(each.partitions) for each in request.topics}
    found = {}
    for name in server.topics.names() if wanted is None else wanted:
        await call.after_entry()
        numbers = None if wanted is None else wanted[name]
        sizes = server.topics.sizes(name, numbers)
        if sizes:
            found[name] = sizes
    call.is_large = sum(map(len, found.values())) > LARGE_ENTRIES
    path = server.shared.directory.path
    total, usable, code = -1, -1, Code.NONE
    try:
        total, usable = await server.in_thread(_volume, path)
    except (OSError, HermesError):
        code = Code.KAFKA_STORAGE_ERROR
    result = make.DescribeLogDirsResult(
        error_code=code,
        log_dir=path,
        topics=tuple(
            make.DescribeLogDirsTopic(
                name=name,
                partitions=tuple(
                    make.DescribeLogDirsPartition(
                        partition_index=number,
                        partition_size=size,
                        offset_lag=lag,
                        is_future_key=False,
                    )
                    for number, size, lag in sizes
                ),
            )
            for name, sizes in found.items()
        ),
        total_bytes=total,
        usable_bytes=usable,
        is_cordoned=False,
    )
    return make.DescribeLogDirsResponse(error_code=Code.NONE, results=(result,))


def _volume(path: str) -> tuple[int, int]:
    status = os.statvfs(path)
    return status.f_blocks * status.f_frsize, status.f_bavail * status.f_frsize
