"""DescribeAcls, CreateAcls and DeleteAcls: the access rules, as Kafka's clients know them.

Those of broker.yaml are shown, and change there. The others are kept in coordination, or in the
data directory.
"""

from collections.abc import Iterable
from typing import Any, Final

from hermes.config.broker import RULES, BrokerConfig
from hermes.config.requested import with_acls, without_acls
from hermes.errors import ConfigError, HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code, KafkaError, error_fields, invalid_request, with_error
from hermes.quoting import quoted
from hermes.security import CLUSTER, Operation
from hermes.security.acls import (
    ANY,
    CLUSTER_NAME,
    MATCH,
    Acl,
    AclFilter,
    AclKind,
    AclOperation,
    AclPattern,
    AclPermission,
    acls_of,
    rules_of,
)

#: A request may delete by so many filters, which may match so many ACLs together.
_MOST_FILTERS: Final = 1000
_MOST_MATCHES: Final = 10_000

_KINDS: Final = frozenset(AclKind)
_PATTERNS: Final = frozenset(AclPattern)
_OPERATIONS: Final = frozenset(AclOperation)
_PERMISSIONS: Final = frozenset(AclPermission)


def _check(operation: Operation, call: Call) -> None:
    """Refuse who may not, and where access rules don't decide."""
    config = call.server.shared.config
    if config.access is None:
        raise KafkaError(Code.SECURITY_DISABLED, "No Authorizer is configured.")
    if config.authorizer != RULES:
        raise KafkaError(
            Code.SECURITY_DISABLED,
            f"The authorizer {config.authorizer} decides, and knows no ACLs.",
        )
    if not call.permits(operation, CLUSTER):
        raise KafkaError(
            Code.CLUSTER_AUTHORIZATION_FAILED,
            f"Request is not authorized: {quoted(call.client.principal)} may not {operation} the "
            "cluster",
        )


def _given(config: BrokerConfig) -> frozenset[Acl]:
    """Those that broker.yaml comes to."""
    return frozenset(acl for rule in config.access or () for acl in acls_of(rule))


def _filter(asked: Any) -> AclFilter:
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )


def _check_known(wanted: AclFilter) -> None:
    for value, known, what in (
        (wanted.kind, _KINDS, "resourceType"),
        (wanted.pattern, _PATTERNS | {MATCH}, "patternType"),
        (wanted.operation, _OPERATIONS, "operation"),
        (wanted.permission, _PERMISSIONS, "permissionType"),
    ):
        if value != ANY and value not in known:
            raise invalid_request(f"Filter contains UNKNOWN elements: {what}")


# -- DescribeAcls -------------------------------------------------------------------------------


def describe_acls(request: Any, call: Call) -> Any:
    make, config = call.make, call.server.shared.config
    try:
        _check(Operation.DESCRIBE, call)
    except HermesError as error:
        return make.DescribeAclsResponse(**error_fields(error), resources=())
    wanted = _filter(request)
    found: dict[tuple[int, str, int], list[Acl]] = {}
    for acl in sorted(_given(config) | config.requested.acls):
        if wanted.matches(acl):
            found.setdefault(acl[:3], []).append(acl)
    call.is_large = sum(map(len, found.values())) > LARGE_ENTRIES
    return make.DescribeAclsResponse(
        **error_fields(),
        resources=tuple(
            make.DescribeAclsResource(
                resource_type=kind,
                resource_name=name,
                pattern_type=pattern,
                acls=tuple(
                    make.AclDescription(
                        principal=each.principal,
                        host=each.host,
                        operation=each.operation,
                        permission_type=each.permission,
                    )
                    for each in acls
                ),
            )
            for (kind, name, pattern), acls in found.items()
        ),
    )


# -- CreateAcls ---------------------------------------------------------------------------------


async def create_acls(request: Any, call: Call) -> Any:
    call.is_large = len(request.creations) > LARGE_ENTRIES
    results: list[dict[str, Any]] = []
    made: list[Acl] = []
    try:
        _check(Operation.ADMIN, call)
        for asked in request.creations:
            await call.after_entry()
            acl = Acl(
                asked.resource_type,
                asked.resource_name,
                asked.resource_pattern_type,
                asked.principal,
                asked.host,
                asked.operation,
                asked.permission_type,
            )
            fault = _fault_of(acl)
            results.append(error_fields(fault))
            if fault is None:
                made.append(acl)
        if made:
            await _change(call, made, is_new=True)
    except HermesError as error:
        results = with_error(results, error, len(request.creations))
    told = []
    for fields in results:
        await call.after_entry()
        told.append(call.make.AclCreationResult(**fields))
    return call.make.CreateAclsResponse(results=tuple(told))


def _fault_of(acl: Acl) -> KafkaError | None:
    """What is wrong with an ACL that is to be made, in Kafka's order and words."""
    text = ""
    if acl.kind == AclKind.CLUSTER and acl.name != CLUSTER_NAME:
        text = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.name:
        text = "Invalid empty resource name"
    elif acl.kind not in _KINDS:
        text = f"Invalid resourceType {acl.kind}"
    elif acl.pattern not in _PATTERNS:
        text = f"Invalid patternType {acl.pattern}"
    elif acl.operation not in _OPERATIONS:
        text = f"Invalid operation {acl.operation}"
    elif acl.permission not in _PERMISSIONS:
        text = f"Invalid permissionType {acl.permission}"
    else:
        try:
            rules_of(acl)
        except ValueError as error:
            text = str(error)
    return invalid_request(text) if text else None


async def _change(call: Call, acls: Iterable[Acl], *, is_new: bool) -> None:
    try:
        await call.server.requested.change(with_acls(acls) if is_new else without_acls(acls))
    except ConfigError as error:
        raise KafkaError(Code.POLICY_VIOLATION, error.message) from None
    call.server.shared.lines.info(
        "acls",
        "{client} {done} {count} ACLs: {acls}",
        client=call.client,
        done="made" if is_new else "deleted",
        count=len(list(acls)),
        acls="; ".join(_told(each) for each in list(acls)[:3]),
    )


def _told(acl: Acl) -> str:
    permission = AclPermission(acl.permission).name.lower()
    operation, kind = AclOperation(acl.operation).name, AclKind(acl.kind).name.lower()
    pattern = AclPattern(acl.pattern).name.lower()
    return f"{permission} {acl.principal} {operation} of {pattern} {kind} {quoted(acl.name)}"


# -- DeleteAcls ---------------------------------------------------------------------------------


async def delete_acls(request: Any, call: Call) -> Any:
    make, config = call.make, call.server.shared.config
    results: list[tuple[dict[str, Any], list[Acl]]] = []
    given: frozenset[Acl] = frozenset()
    gone: set[Acl] = set()
    count = 0
    try:
        _check(Operation.ADMIN, call)
        given, requested = _given(config), config.requested.acls
        every = sorted(given | requested)
        for number, asked in enumerate(request.filters):
            await call.after_entry()
            try:
                if number >= _MOST_FILTERS:
                    raise invalid_request(f"More than {_MOST_FILTERS} filters")
                wanted = _filter(asked)
                _check_known(wanted)
                matching = [each for each in every if wanted.matches(each)]
                count += len(matching)
                if count > _MOST_MATCHES:
                    raise invalid_request(f"More than {_MOST_MATCHES} matches")
                gone.update(requested.intersection(matching))
                results.append((error_fields(), matching))
            except HermesError as error:
                results.append((error_fields(error), []))
        if gone:
            await _change(call, sorted(gone), is_new=False)
    except HermesError as error:
        results = [(error_fields(error), [])] * len(request.filters)
    call.is_large = len(results) + count > LARGE_ENTRIES

    def matched(acl: Acl) -> Any:
        is_kept = acl in given
        return make.DeleteAclsMatchingAcl(
            error_code=Code.INVALID_REQUEST if is_kept else Code.NONE,
            error_message="It is a rule of broker.yaml: change it there." if is_kept else None,
            resource_type=acl.kind,
            resource_name=acl.name,
            pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )

    told = []
    for fields, matching in results:
        await call.after_entry()
        acls = tuple(map(matched, matching))
        told.append(make.DeleteAclsFilterResult(**fields, matching_acls=acls))
    return make.DeleteAclsResponse(filter_results=tuple(told))
