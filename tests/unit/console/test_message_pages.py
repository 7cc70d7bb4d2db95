"""What a download is made of."""

import json

from hermes.console.message_pages import _json_lines
from hermes.console.messages import SearchEnd, SearchProgress


def test_a_download_that_finds_nothing_can_be_ended_between_two_looks() -> None:
    """Who has gone is noticed between two pieces: to the next match it may take minutes."""
    pieces = _json_lines("t", iter([SearchProgress(1, 0, 1, 2), SearchProgress(2, 0, 2, 2)]))
    assert list(pieces) == [b"", b""]


def test_what_could_not_be_read_is_in_a_line_of_its_own() -> None:
    end = SearchEnd(0, 0, False, {}, {}, ("partition 0: no answer",))
    (line,) = _json_lines("t", [end])
    assert json.loads(line) == {"topic": "t", "errors": ["partition 0: no answer"]}
