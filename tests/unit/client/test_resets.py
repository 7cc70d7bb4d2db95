"""Where a group is to continue, and what is said of one that can't be changed."""

from typing import Any

import pytest

from hermes.client.places import BEGINNING, END, PartitionPlace
from hermes.client.resets import check_inactive, reset_offset
from hermes.errors import GroupActiveError
from hermes.protocol import EARLIEST, LATEST


def test_a_group_without_members_may_be_changed() -> None:
    check_inactive("g", [])


def test_the_first_members_are_named_harmlessly() -> None:
    with pytest.raises(GroupActiveError) as refused:
        check_inactive("g", (f"m{number}\n" for number in range(7)))
    shown = ", ".join(rf"m{number}\n" for number in range(5))
    assert str(refused.value) == (
        f"group 'g' has members ({shown} and 2 more): stop them first; one that was killed stays "
        "a member until its session has timed out"
    )


class PlayedConsumer:
    """A partition with a message of ten bytes for each of three ms."""

    appended_ms = (1000, 1001, 1002)

    def get_offsets_before(self, topic: str, partition: int, time: int) -> list[int]:
        if time == LATEST:
            return [30]
        count = sum(each <= time for each in self.appended_ms)
        return [10 * count] if count or time == EARLIEST else []


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        (PartitionPlace("time", 0), 0),
        (PartitionPlace("time", 1000), 0),
        (PartitionPlace("time", 1001), 10),
        (PartitionPlace("time", 1003), 30),
        (BEGINNING, 0),
        (END, 30),
    ],
)
def test_a_group_continues_with_what_was_appended_at_a_time(
    place: PartitionPlace, expected: int
) -> None:
    """As Kafka's groups do, and `consume -o @TIME`."""
    consumer: Any = PlayedConsumer()
    assert reset_offset(consumer, "t", 0, 0, place) == expected
