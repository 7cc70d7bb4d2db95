"""What a producer's log says of what it tries again."""

import pytest

from hermes.client.sending import count_of


@pytest.mark.parametrize(
    ("sets", "refused", "text"),
    [
        (1, 0, "1 message set is"),
        (0, 2, "2 sends without a known partition are"),
        (3, 1, "3 message sets and 1 send without a known partition are"),
    ],
)
def test_only_what_there_is_is_counted(sets: int, refused: int, text: str) -> None:
    assert count_of(sets, refused) == text
