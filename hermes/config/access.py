"""Parses broker.yaml's `access:` into rules."""

from collections.abc import Mapping
from typing import Final

from hermes.config.kinds import Kind
from hermes.quoting import quoted
from hermes.security import AccessRule, Operation

_EXAMPLE: Final = "{principal: alice, operations: [produce], topic: clicks}"
_NAMES: Final = ("topic", "group", "transactional_id")
_KEYS: Final = ("principal", "operations", *_NAMES, "cluster", "allow")
_ALL: Final = "all"


def _parse_rules(value: object) -> tuple[AccessRule, ...]:
    # Null is refused: a list whose lines were all commented out would allow everything.
    if not isinstance(value, list):
        raise ValueError(
            f"expected a list of rules such as {_EXAMPLE}, got {quoted(value)} "
            "([] refuses everything to everybody)"
        )
    rules = []
    for number, each in enumerate(value, 1):
        try:
            rules.append(_parse_rule(each))
        except ValueError as error:
            raise ValueError(f"rule {number}: {error}") from None
    return tuple(rules)


def _parse_rule(value: object) -> AccessRule:
    if not isinstance(value, Mapping):
        raise ValueError(f"expected a rule such as {_EXAMPLE}, got {quoted(value)}")
    for key in value:
        if key not in _KEYS:
            raise ValueError(f"unknown key {quoted(key)}: expected {', '.join(_KEYS)}")
    for key in ("principal", "operations"):
        if key not in value:
            raise ValueError(f"it has no {key}")
    flags = {"allow": value.get("allow", True), "cluster": value.get("cluster", False)}
    for key, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"expected true or false for {key}, got {quoted(flag)}")
    names = {key: _parse_name(key, value[key]) for key in _NAMES if key in value}
    return AccessRule(
        principal=_parse_name("principal", value["principal"]),
        operations=_parse_operations(value["operations"]),
        allow=flags["allow"],
        cluster=flags["cluster"],
        **names,
    )


def _parse_name(key: str, value: object) -> str:
    if isinstance(value, str) and value:
        return value
    raise ValueError(f"expected a name in quotes for {key}, got {quoted(value)}")


def _parse_operations(value: object) -> frozenset[Operation]:
    known = ", ".join(Operation)
    if not isinstance(value, list) or not value:
        raise ValueError(
            f"expected a list of operations ({known}), or [{_ALL}], got {quoted(value)}"
        )
    if value == [_ALL]:
        return frozenset(Operation)
    try:
        return frozenset(map(Operation, value))
    except ValueError:
        unknown = next(each for each in value if each not in list(Operation))
        hint = "; all stands alone" if unknown == _ALL else ""
        raise ValueError(f"{quoted(unknown)} is no operation: {known}, or [{_ALL}]{hint}") from None


def _show(rules: tuple[AccessRule, ...] | None) -> str:
    return "none" if rules is None else f"[{', '.join(map(str, rules))}]"


ACCESS_RULES: Final = Kind("list of [rules](security.md#access-rules)", _parse_rules, _show)
