"""Parses broker.yaml's `quotas:`: how much a principal may do per second."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from hermes.config import kinds
from hermes.config.kinds import Kind
from hermes.quoting import quoted

#: Whose quota that of all others is.
DEFAULT: Final = "default"


@dataclass(frozen=True, slots=True)
class Quota:
    """A principal's limits, over all its connections; None for unlimited.

    `bytes_in`, `bytes_out` (of responses) and `requests` are per second.
    """

    bytes_in: int | None = None
    bytes_out: int | None = None
    requests: int | None = None
    connections: int | None = None

    def as_given(self) -> dict[str, int]:
        limits = {key: getattr(self, key) for key in _LIMITS}
        return {key: limit for key, limit in limits.items() if limit is not None}

    def __str__(self) -> str:
        given = self.as_given().items()
        shown = ", ".join(f"{key}: {_LIMITS[key].show(limit)}" for key, limit in given)
        return "{" + (shown or "connections: unlimited") + "}"


_COUNT: Final = kinds.unlimited_or(kinds.COUNT)
_SIZE: Final = kinds.unlimited_or(kinds.size(1))
_LIMITS: Final[Mapping[str, Kind]] = {
    "bytes_in": _SIZE,
    "bytes_out": _SIZE,
    "requests": _COUNT,
    "connections": _COUNT,
}


def quota_of(quotas: Mapping[str, Quota], principal: str) -> Quota | None:
    """The one quota that applies to a principal.

    Args:
        quotas: by name, by the beginning of names (`web-*`), and `default`.

    Returns:
        That of its name; else that of the longest beginning; else the default's, if there is one.
    """
    found = quotas.get(principal) if principal != DEFAULT else None
    if found is not None:
        return found
    beginnings = [
        key for key in quotas if key.endswith("*") and principal.startswith(key.removesuffix("*"))
    ]
    return quotas[max(beginnings, key=len)] if beginnings else quotas.get(DEFAULT)


def _parse_quotas(value: object) -> Mapping[str, Quota]:
    example = "{default: {bytes_in: 10MB, requests: 1000}}"
    if not isinstance(value, Mapping):
        raise ValueError(f"expected principals with quotas such as {example}, got {quoted(value)}")
    quotas = {}
    for name, limits in value.items():
        if not isinstance(name, str) or not name:
            raise ValueError(f"expected the name of a principal in quotes, got {quoted(name)}")
        try:
            quotas[name] = _parse_quota(limits)
        except ValueError as error:
            raise ValueError(f"{quoted(name)}: {error}") from None
    return quotas


def _parse_quota(value: object) -> Quota:
    if not isinstance(value, Mapping) or not value:
        raise ValueError(f"expected some of {', '.join(_LIMITS)}, got {quoted(value)}")
    limits: dict[str, Any] = {}
    for key, limit in value.items():
        if key not in _LIMITS:
            raise ValueError(f"unknown key {quoted(key)}: expected {', '.join(_LIMITS)}")
        try:
            limits[key] = _LIMITS[key].parse(limit)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    return Quota(**limits)


def _show(quotas: Mapping[str, Quota]) -> str:
    return "{" + ", ".join(f"{name}: {quota}" for name, quota in quotas.items()) + "}"


QUOTAS: Final = Kind("[quotas by principal](security.md#quotas)", _parse_quotas, _show)
