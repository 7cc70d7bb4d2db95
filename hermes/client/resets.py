"""Where a consumer group is to continue: from what people ask for to an offset of a partition."""

from collections.abc import Iterable
from typing import Final

from hermes.client.places import PartitionPlace
from hermes.client.simple_consumer import SimpleConsumer
from hermes.errors import GroupActiveError, HermesError
from hermes.protocol import EARLIEST, LATEST, BoundaryRequest
from hermes.quoting import printable

_MOST_MEMBERS: Final = 5


def check_inactive(group: str, members: Iterable[str]) -> None:
    """Raise GroupActiveError if a group has members: they would overwrite what is changed."""
    names = list(members)
    if names:
        shown = ", ".join(printable(each, 100) for each in names[:_MOST_MEMBERS])
        more = f" and {len(names) - _MOST_MEMBERS} more" if len(names) > _MOST_MEMBERS else ""
        raise GroupActiveError(
            f"group {group!r} has members ({shown}{more}): stop them first; one that was killed "
            "stays a member until its session has timed out"
        )


def reset_offset(
    consumer: SimpleConsumer,
    topic: str,
    partition: int,
    stored: int | HermesError,
    place: PartitionPlace,
) -> int:
    """Find the offset that a place stands for: where a message starts, or the partition's end.

    `stored` is the group's offset; or the error, where it can't be understood. Raises HermesError
    if there is no such place.
    """
    if place.kind == "time":
        # What was appended at that time belongs to what follows; the two named ones are negative.
        before = place.value if place.value < 0 else max(place.value - 1, 0)
        found = consumer.get_offsets_before(topic, partition, before)
        # Where nothing is older, the group continues from the beginning.
        return (found or consumer.get_offsets_before(topic, partition, EARLIEST))[0]
    wanted = place.value
    if place.kind == "shift":
        if not isinstance(stored, int):
            raise stored
        wanted += stored
    return _boundary(consumer, topic, partition, wanted, is_exact=place.kind == "offset")


def _boundary(
    consumer: SimpleConsumer, topic: str, partition: int, wanted: int, *, is_exact: bool
) -> int:
    """Where a message starts, at or before an offset; no other than that if it is exact."""
    (earliest,) = consumer.get_offsets_before(topic, partition, EARLIEST)
    (latest,) = consumer.get_offsets_before(topic, partition, LATEST)
    inside = min(max(wanted, earliest), latest)
    if is_exact and inside != wanted:
        raise HermesError(f"offset {wanted} is outside the log: it holds [{earliest}, {latest}]")
    if inside in (earliest, latest):  # also of a partition that nothing was ever written to
        return inside
    if not consumer.supports(BoundaryRequest.TYPE):
        if not is_exact:
            raise HermesError("a broker of Kafka 0.7 can't tell where messages start")
        return inside
    (described,) = consumer.metadata([topic]).topics
    if described.holds_records:  # a consumer goes on at any record, also within a batch
        return inside
    boundary = consumer.boundary_before(topic, partition, inside)
    if is_exact and boundary != wanted:
        raise HermesError(f"no message starts at {wanted}, but one at {boundary}")
    return boundary
