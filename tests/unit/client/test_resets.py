"""What is said of a group that can't be changed because it has members."""

import pytest

from hermes.client.resets import check_inactive
from hermes.errors import GroupActiveError


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
