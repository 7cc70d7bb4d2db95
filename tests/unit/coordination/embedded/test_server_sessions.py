"""Sessions' ids come from the wall clock, and are not given twice when it goes back."""

from hermes.coordination.embedded.server_sessions import SessionTable
from hermes.coordination.embedded.tree_changes import SessionOpened

NOW_MS = 1_700_000_000_000


def test_an_id_is_given_once_though_the_wall_clock_goes_back() -> None:
    table: SessionTable[str] = SessionTable()
    ids = [table.unused_id(NOW_MS - 3_600_000 * back) for back in range(5)]
    assert ids == sorted(set(ids))


def test_nor_after_a_restart() -> None:
    before: SessionTable[str] = SessionTable()
    stored = SessionOpened(before.unused_id(NOW_MS), b"", 6000)
    after: SessionTable[str] = SessionTable()
    after.restore([stored], 0.0)
    assert after.unused_id(NOW_MS - 3_600_000) > stored.session_id


def test_a_stored_session_has_its_whole_timeout_by_the_clock_of_the_new_process() -> None:
    table: SessionTable[str] = SessionTable()
    table.restore([SessionOpened(1, b"", 6000)], 17.0)
    assert table.next_deadline == 23.0
    assert table.expired(22.9) == []
    assert [session.session_id for session in table.expired(23.0)] == [1]
