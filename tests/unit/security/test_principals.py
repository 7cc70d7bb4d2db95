"""Names that users can have."""

import pytest

from hermes.errors import ConfigError
from hermes.security import ANONYMOUS, INTERNAL, check_user_name


@pytest.mark.parametrize("name", ["alice", "Ü", "CN/team-7.example", "a" * 255])
def test_a_name_without_what_ends_one_is_a_users(name: str) -> None:
    check_user_name(name)


@pytest.mark.parametrize(
    "name", ["", "a b", "a:b", "a,b", "a=b", "a\nb", "\0", "a" * 256, "\ud800", ANONYMOUS, INTERNAL]
)
def test_any_other_name_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="user"):
        check_user_name(name)
