"""Where a group's offsets are moved to."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from hermes.cli.ensemble import Brokers
from hermes.cli.options import option_type
from hermes.cli.times import parse_time_ms
from hermes.coordination.group_state import GroupState
from hermes.coordination.layout import BrokerPartition
from hermes.errors import HermesError
from hermes.protocol import EARLIEST, LATEST, BoundaryRequest

__all__ = ["TARGET", "Target", "new_offsets"]

_Place = tuple[str, BrokerPartition]


@dataclass(frozen=True, slots=True)
class Target:
    """Where to go.

    Attributes:
        kind: how to read the value.
        value: a time as for `get_offsets_before`, an offset, or how many bytes to move.
    """

    kind: Literal["time", "offset", "shift"]
    value: int


def _parse(text: str) -> Target:
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text)
    if named is not None:
        return Target("time", named)
    if text.startswith("@"):
        return Target("time", parse_time_ms(text[1:]))
    sign = text[:1] if text[:1] in "+-" else ""
    digits = text[len(sign) :]
    if not (digits.isascii() and digits.isdecimal()):
        raise ValueError(f"expected earliest, latest, @TIME, an offset, +N or -N; got {text!r}")
    return Target("shift", int(text)) if sign else Target("offset", int(text))


TARGET: Final = option_type(_parse, "where")


def new_offsets(
    brokers: Brokers, state: GroupState, places: Iterable[_Place], target: Target
) -> dict[_Place, int]:
    """Find the offset for each partition; all are found before any is stored.

    Raises:
        HermesError: for a partition there is none: its broker is away, no message starts there.
    """
    found = {}
    for place in places:
        try:
            found[place] = _new_offset(brokers, state, place, target)
        except HermesError as error:
            raise HermesError(f"{place[0]} {place[1]}: {error}; nothing was changed") from error
    return found


def _new_offset(brokers: Brokers, state: GroupState, place: _Place, target: Target) -> int:
    topic, partition = place
    consumer = brokers.of(partition)
    if target.kind == "time":
        offsets = consumer.get_offsets_before(topic, partition.partition, target.value)
        time = target.value if offsets else EARLIEST  # nothing is older: from the beginning
        return consumer.get_offsets_before(topic, partition.partition, time)[0]
    wanted = target.value
    if target.kind == "shift":
        stored = state.offsets[place]
        if not isinstance(stored, int):
            raise stored
        wanted += stored
    (earliest,) = consumer.get_offsets_before(topic, partition.partition, EARLIEST)
    (latest,) = consumer.get_offsets_before(topic, partition.partition, LATEST)
    inside = min(max(wanted, earliest), latest)
    if target.kind == "offset" and inside != wanted:
        raise HermesError(f"offset {wanted} is outside the log: it holds [{earliest}, {latest}]")
    if inside in (earliest, latest):  # also of a partition that nothing was ever written to
        return inside
    if not consumer.supports(BoundaryRequest.TYPE):
        if target.kind == "shift":
            raise HermesError("a broker of Kafka 0.7 can't tell where messages start")
        return inside
    boundary = consumer.boundary_before(topic, partition.partition, inside)
    if target.kind == "offset" and boundary != wanted:
        raise HermesError(f"no message starts at {wanted}, but one at {boundary}")
    return boundary
