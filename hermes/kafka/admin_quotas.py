"""DescribeClientQuotas and AlterClientQuotas: the quotas of users, as Kafka's clients know them.

    producer_byte_rate    bytes_in, of all requests
    consumer_byte_rate    bytes_out, of all responses
    user, default         a principal, `default`

Those of broker.yaml are shown, and change there; the others are kept as ACLs are.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final

from hermes.config.quotas import DEFAULT, Quota
from hermes.config.requested import MOST_ENTRIES, Requested
from hermes.errors import ConfigError, HermesError
from hermes.kafka.dispatching import LARGE_ENTRIES, Call
from hermes.protocol.kafka_errors import Code, KafkaError, error_fields, invalid_request, with_error
from hermes.quoting import quoted
from hermes.security import ANONYMOUS, LONGEST_NAME

_USER: Final = "user"
_CLIENT_ID: Final = "client-id"
_IP: Final = "ip"
_NOBODY: Final = "ANONYMOUS"

#: Our limits by Kafka's names.
_LIMITS: Final = {"producer_byte_rate": "bytes_in", "consumer_byte_rate": "bytes_out"}

#: What else can be limited in Kafka.
_OTHERS: Final = ("request_percentage", "controller_mutation_rate", "connection_creation_rate")

#: How filters match: a name, what holds for the rest, or both.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2

_MOST: Final = 2**63 - 1
_EPSILON: Final = 1e-6


# -- DescribeClientQuotas -----------------------------------------------------------------------


def describe_quotas(request: Any, call: Call) -> Any:
    make, config = call.make, call.server.shared.config
    try:
        call.check_admin()
        wanted = _components(request.components)
    except HermesError as error:
        return make.DescribeClientQuotasResponse(**error_fields(error), entries=None)
    entries = []
    for principal, quota in {**config.requested.quotas, **config.quotas}.items():
        limits = _shown(quota)
        name = _shown_name(principal)
        if limits and _matches(wanted, name, is_strict=request.strict):
            entries.append(
                make.EntryData(
                    entity=(make.EntityData(entity_type=_USER, entity_name=name),),
                    values=tuple(
                        make.ValueData(key=key, value=float(limit)) for key, limit in limits.items()
                    ),
                )
            )
    call.is_large = len(entries) > LARGE_ENTRIES
    return make.DescribeClientQuotasResponse(**error_fields(), entries=tuple(entries))


def _shown(quota: Quota) -> dict[str, int]:
    given = quota.as_given()
    return {theirs: given[ours] for theirs, ours in _LIMITS.items() if ours in given}


def _shown_name(principal: str) -> str | None:
    return None if principal == DEFAULT else _NOBODY if principal == ANONYMOUS else principal


def _components(asked: Iterable[Any]) -> Mapping[str, tuple[int, str | None]]:
    """What a filter asks for, by the type of entity."""
    found: dict[str, tuple[int, str | None]] = {}
    for each in asked:
        kind, how, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise invalid_request("Unexpected empty entity component type")
        if kind in found:
            raise invalid_request(f"Duplicate filter component: {quoted(kind)}")
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise KafkaError(
                Code.UNSUPPORTED_VERSION, f"Custom entity type {quoted(kind)} not supported"
            )
        if how not in (_EXACT, _DEFAULT, _SPECIFIED):
            raise invalid_request(f"Unexpected match type: {how}")
        if (how == _EXACT) != (name is not None):
            raise invalid_request("A name belongs to the exact match, and to no other")
        found[kind] = how, name
    if _IP in found and len(found) > 1:
        raise invalid_request("Invalid entity filter component combination")
    return found


def _matches(
    wanted: Mapping[str, tuple[int, str | None]], name: str | None, *, is_strict: bool
) -> bool:
    if wanted.keys() - {_USER} or (is_strict and _USER not in wanted):
        return False
    how, asked = wanted.get(_USER, (_SPECIFIED, None))
    return how == _SPECIFIED or (name is None if how == _DEFAULT else name == asked)


# -- AlterClientQuotas --------------------------------------------------------------------------


async def alter_quotas(request: Any, call: Call) -> Any:
    call.is_large = len(request.entries) > LARGE_ENTRIES
    results: list[dict[str, Any]] = []
    changes: dict[str, dict[str, int | None]] = {}
    try:
        call.check_admin()
        for entry in request.entries:
            await call.after_entry()
            try:
                if len(changes) >= MOST_ENTRIES:
                    raise invalid_request(f"More than {MOST_ENTRIES} entities")
                principal = _principal(entry.entity, call)
                if principal in changes:
                    raise invalid_request("An entity is altered twice.")
                changes[principal] = _limits(entry.ops)
                results.append(error_fields())
            except HermesError as error:
                results.append(error_fields(error))
        if changes and not request.validate_only:
            await _change(call, changes)
    except HermesError as error:
        results = with_error(results, error, len(request.entries))
    make, told = call.make, []
    for entry, fields in zip(request.entries, results, strict=True):
        await call.after_entry()
        entity = tuple(
            make.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        )
        told.append(make.EntryData(**fields, entity=entity))
    return make.AlterClientQuotasResponse(entries=tuple(told))


def _principal(entity: Iterable[Any], call: Call) -> str:
    """Whose quota an entity is; KafkaError if there can't be one, or not by request."""
    parts = [(each.entity_type, each.entity_name) for each in entity]
    if not parts:
        raise invalid_request("Invalid empty client quota entity")
    for kind, name in parts:
        if kind not in (_USER, _CLIENT_ID, _IP):
            raise invalid_request(f"Unhandled client quota entity type: {quoted(kind)}")
        if name == "":
            raise invalid_request(f"Empty {kind} not supported")
    if [kind for kind, _ in parts] != [_USER]:
        raise invalid_request("Quotas are of users alone here.")
    name = parts[0][1]
    principal = DEFAULT if name is None else ANONYMOUS if name == _NOBODY else name
    if name == DEFAULT or principal.endswith("*") or len(principal) > LONGEST_NAME:
        raise invalid_request(f"{quoted(name)} can be nobody here")
    if principal in call.server.shared.config.quotas:
        raise invalid_request(
            f"The quota of {quoted(principal)} is one of broker.yaml: change it there."
        )
    return principal


def _limits(changes: Iterable[Any]) -> dict[str, int | None]:
    """What becomes of our limits; None for what goes."""
    limits: dict[str, int | None] = {}
    for each in changes:
        key = each.key
        if key in _OTHERS:
            raise invalid_request(f"There is no {key} here: bytes are limited.")
        if key not in _LIMITS:
            raise invalid_request(f"Invalid configuration key {quoted(key)}")
        if _LIMITS[key] in limits:
            raise invalid_request(f"Duplicate key {key}")
        limits[_LIMITS[key]] = None if each.remove else _whole(key, each.value)
    return limits


def _whole(key: str, value: float) -> int:
    if not math.isfinite(value) or value > _MOST or abs(round(value) - value) > _EPSILON:
        raise invalid_request(f"{key} cannot be represented as a LONG value.")
    if round(value) <= 0:
        raise invalid_request(f"{key} must be greater than 0")
    return round(value)


async def _change(call: Call, changes: Mapping[str, Mapping[str, int | None]]) -> None:
    def change(now: Requested) -> Requested:
        quotas = dict(now.quotas)
        for principal, limits in changes.items():
            merged = {**quotas.pop(principal, Quota()).as_given(), **limits}
            left = {key: limit for key, limit in merged.items() if limit is not None}
            if left:
                quotas[principal] = Quota(**left)
        return Requested(now.acls, quotas)

    try:
        await call.server.requested.change(change)
    except ConfigError as error:
        raise KafkaError(Code.POLICY_VIOLATION, error.message) from None
    names = [quoted(each) for each in changes]
    call.server.shared.lines.info(
        "quotas",
        "{client} changed the quotas of {principals}",
        client=call.client,
        principals=", ".join(names[:3]) + (" and others" if len(names) > 3 else ""),
    )
