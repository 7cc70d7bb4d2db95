"""Which subject a topic's schemas are under, if it isn't the one that its name says.

Confluent's clients look that up before they take `<topic>-value`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from hermes.quoting import quoted
from hermes.registry.entities import Association
from hermes.registry.errors import (
    ASSOCIATION_EXISTS,
    ASSOCIATION_NOT_FOUND,
    INVALID_REQUEST,
    RegistryError,
)
from hermes.registry.events import AssociationsMade, AssociationsRemoved
from hermes.registry.lookups import check_subject
from hermes.registry.mutations import check_deletable
from hermes.registry.state import RegistryState
from hermes.registry.writer import MutationResult

#: Where a resource may be in any namespace.
ANY_NAMESPACE: Final = "-"

_KINDS: Final = ("key", "value")
_LIFECYCLES: Final = ("WEAK", "STRONG")
_MOST_ASSOCIATIONS: Final = 10


@dataclass(frozen=True, slots=True)
class Associate:
    """Give kinds of a resource a subject each.

    `may_replace`: whether to replace another subject or lifecycle, unless it is frozen.
    """

    associations: tuple[Association, ...]
    may_replace: bool

    def decide(self, state: RegistryState) -> MutationResult:
        new = []
        for each in self.associations:
            present = state.associations.get((each.resource_id, each.resource_type, each.kind))
            if present == each:
                continue
            if present is not None and (present.is_frozen or not self.may_replace):
                raise RegistryError(
                    ASSOCIATION_EXISTS,
                    f"the {each.kind} of {quoted(each.resource_name)} has the subject "
                    f"{quoted(present.subject)}{', frozen' if present.is_frozen else ''}",
                )
            new.append(each)
        first = self.associations[0]
        answer = {
            "resourceName": first.resource_name,
            "resourceNamespace": first.resource_namespace,
            "resourceId": first.resource_id,
            "resourceType": first.resource_type,
            "associations": [_entry(each) for each in self.associations],
        }
        return MutationResult(AssociationsMade(tuple(new)) if new else None, answer)


@dataclass(frozen=True, slots=True)
class Dissociate:
    """Take the subjects from kinds of a resource, all if none are given.

    `resource_type`: None for the only one there is. `cascade`: whether subjects of its own (STRONG)
    are deleted with them, which is refused where one of them can't be.
    """

    resource_id: str
    resource_type: str | None
    kinds: tuple[str, ...]
    cascade: bool

    def decide(self, state: RegistryState) -> MutationResult:
        found = [
            each
            for each in state.associations.values()
            if each.resource_id == self.resource_id
            and self.resource_type in (None, each.resource_type)
            and (not self.kinds or each.kind in self.kinds)
        ]
        if not found:
            return MutationResult(None, None)
        types = sorted({each.resource_type for each in found})
        if len(types) > 1:
            raise RegistryError(
                INVALID_REQUEST,
                f"{quoted(self.resource_id)} has the types {', '.join(types)}: say which",
            )
        frozen = [each for each in found if each.is_frozen]
        if frozen and not self.cascade:
            # The same one after a restart, which gives associations another order.
            first = min(frozen, key=lambda each: each.kind)
            raise RegistryError(
                ASSOCIATION_EXISTS,
                f"the {first.kind} of {quoted(first.resource_name)} is frozen: it goes only with "
                "its resource (cascadeLifecycle=true)",
            )
        own = {each.subject for each in found if self.cascade and each.lifecycle == "STRONG"}
        subjects = tuple(sorted(each for each in own if state.is_live(each)))
        check_deletable(state, subjects)
        kinds = tuple(sorted(each.kind for each in found))
        return MutationResult(
            AssociationsRemoved(self.resource_id, types[0], kinds, subjects), None
        )


def associated(
    state: RegistryState,
    *,
    namespace: str | None = None,
    name: str | None = None,
    resource_id: str | None = None,
    subject: str | None = None,
    resource_type: str | None = None,
    kinds: Iterable[str] = (),
) -> list[dict[str, Any]]:
    """The associations that have these; None, no kinds and ANY_NAMESPACE mean any."""
    wanted = set(kinds)
    return [
        each.to_json()
        for _, each in sorted(state.associations.items())
        if namespace in (None, ANY_NAMESPACE, each.resource_namespace)
        and name in (None, each.resource_name)
        and resource_id in (None, each.resource_id)
        and subject in (None, each.subject)
        and resource_type in (None, each.resource_type)
        and (not wanted or each.kind in wanted)
    ]


def only_if_any(found: list[dict[str, Any]], what: str) -> list[dict[str, Any]]:
    """What was found; RegistryError 40450 if nothing was."""
    if not found:
        raise RegistryError(ASSOCIATION_NOT_FOUND, f"{quoted(what)} has no associations")
    return found


def read_associations(body: dict[str, Any]) -> tuple[Association, ...]:
    """The associations in a body; RegistryError 422 if something is missing or wrong."""
    name, space = _text(body, "resourceName"), _text(body, "resourceNamespace")
    resource_id = _text(body, "resourceId")
    resource_type = _text(body, "resourceType", "topic")
    given = body.get("associations")
    if not isinstance(given, list) or not 0 < len(given) <= _MOST_ASSOCIATIONS:
        raise _invalid(f'"associations" must be a list of 1 to {_MOST_ASSOCIATIONS}')
    found = []
    for each in given:
        if not isinstance(each, dict):
            raise _invalid("an association must be an object")
        if each.get("schema") is not None:
            raise _invalid("register the schema under its subject first, then associate that")
        subject = _text(each, "subject")
        check_subject(subject)
        kind = _one_of(each, "associationType", _KINDS, "value")
        lifecycle = _one_of(each, "lifecycle", _LIFECYCLES, "WEAK")
        frozen = each.get("frozen") or False
        if not isinstance(frozen, bool):
            raise _invalid('"frozen" must be true or false')
        found.append(
            Association(resource_id, name, space, resource_type, kind, subject, lifecycle, frozen)
        )
    if len({each.kind for each in found}) < len(found):
        raise _invalid("one kind is given two subjects")
    return tuple(found)


def _entry(association: Association) -> dict[str, Any]:
    found = association.to_json()
    return {key: found[key] for key in ("subject", "associationType", "lifecycle", "frozen")}


def _text(found: dict[str, Any], key: str, default: str | None = None) -> str:
    value = found.get(key)
    value = default if value is None else value
    if not isinstance(value, str) or not 0 < len(value) <= 1000 or not value.isprintable():
        raise _invalid(f'"{key}" must be text of 1 to 1000 characters')
    return value


def _one_of(found: dict[str, Any], key: str, known: tuple[str, ...], default: str) -> str:
    value = found.get(key)
    value = default if value is None else value
    if value not in known:
        raise _invalid(f'"{key}" must be one of {", ".join(known)}')
    return str(value)


def _invalid(reason: str) -> RegistryError:
    return RegistryError(INVALID_REQUEST, f"Invalid association: {reason}")
