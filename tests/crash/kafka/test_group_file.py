"""The file of groups' offsets: after any crash it has all that was answered, and no mixture."""

import os
from collections.abc import Iterator
from contextlib import suppress
from errno import EIO, ENOSPC
from pathlib import Path
from random import Random

import pytest
from storage_fakes import Crash, FaultyFiles, ForgetfulFiles, UnsyncedFiles

from hermes.errors import HermesError, StorageError
from hermes.groups import offset_file
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offset_records import encode_change, new_header
from hermes.groups.offsets import Change, Committed, GroupRecord, TopicPartition
from hermes.storage import FileLayer

HEADER_BYTES = len(new_header())
PLACES = [TopicPartition("clicks", each) for each in range(3)]
State = dict[str, dict[TopicPartition, int]]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the file written anew every few commits."""
    monkeypatch.setattr(offset_file, "_SMALL_BYTES", 500)


def commits(count: int) -> Iterator[list[Change]]:
    """What clients commit: offsets that only grow, of some groups, one of which is deleted."""
    for number in range(1, count + 1):
        committed = Committed(number, -1, "m" * (number % 7), number)
        changes = [Change(f"g{number % 3}", offsets={PLACES[number % 3]: committed})]
        if number % 5 == 0:
            changes.append(Change("g0", GroupRecord(number, "consumer", -1)))
        if number % 11 == 0:
            changes.append(Change("g1", forget=True))
        yield changes


def apply(state: State, changes: list[Change]) -> State:
    after = {group: dict(offsets) for group, offsets in state.items()}
    for each in changes:
        if each.forget:
            after.pop(each.group, None)
            continue
        offsets = after.setdefault(each.group, {})
        offsets |= {place: new.offset for place, new in each.offsets.items() if new is not None}
    return after


def opened(path: str, files: FileLayer, lines: list[str] | None = None) -> OffsetFile:
    store = OffsetFile(path, files, (lines if lines is not None else []).append)
    for number in range(3):
        store.load(f"g{number}")
    return store


def state_of(store: OffsetFile) -> State:
    state: State = {}
    for name in store.names():
        found = store.load(name)
        assert found is not None
        state[name] = {place: each.offset for place, each in found.offsets.items()}
    return state


def run(store: OffsetFile, states: list[State]) -> None:
    """Commit, and note down each state before it is asked for and after it was answered."""
    for changes in commits(40):
        states.append(apply(states[-1], changes))
        assert store.write(changes) == [None] * len(changes)
        del states[:-1]


def test_after_a_loss_of_power_at_any_call_what_was_answered_is_there(tmp_path: Path) -> None:
    for number in range(500):
        root = tmp_path / f"at-{number}"
        root.mkdir()
        files = ForgetfulFiles(str(root), crash_at=number)
        states: list[State] = [{}]
        store = None
        try:
            store = opened(str(root / "groups"), files)
            run(store, states)
            files.crash_at = None
        except Crash:
            pass
        crashed = files.crash_at is not None
        for seed in (None, 1, 2):
            disk = tmp_path / f"disk-{number}-{seed}"
            files.disk(str(disk), None if seed is None else Random(seed * 1000 + number))
            after = opened(str(disk / "groups"), UnsyncedFiles())
            # Of several changes that were asked for together, the first may have come alone.
            found = state_of(after)
            last = list(commits(40))
            allowed = list(states)
            if len(states) == 2:
                for changes in last:
                    if apply(states[0], changes) == states[1]:
                        allowed += [apply(states[0], changes[:n]) for n in range(len(changes))]
            assert found in allowed, number
            # ... and it goes on from there.
            change = Change("g2", offsets={PLACES[0]: Committed(99, -1, "", 1)})
            assert after.write([change]) == [None]
            after.close()
            again = opened(str(disk / "groups"), UnsyncedFiles())
            assert state_of(again) == apply(found, [change])
        if store is not None:
            store.close()
        files.close_all()
        if not crashed:
            assert number > 100  # it was stopped everywhere
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("error", [EIO, ENOSPC, None], ids=["EIO", "ENOSPC", "short write"])
def test_after_any_call_that_fails_commits_go_on(tmp_path: Path, error: int | None) -> None:
    for number in range(500):
        root = tmp_path / f"at-{number}"
        root.mkdir()
        files = FaultyFiles(number, error)
        state: State = {}
        try:
            store = opened(str(root / "groups"), files)
        except StorageError:
            continue
        for changes in commits(40):
            results = store.write(changes)
            if results[0] is not None:
                assert isinstance(results[0], HermesError)
                assert state_of(store) == state  # as if it had never been asked for
                results = store.write(changes)  # the client tries again
            assert results == [None] * len(changes)
            state = apply(state, changes)
        store.close()
        assert state_of(opened(str(root / "groups"), UnsyncedFiles())) == state
        if files.counted <= number:
            assert number > 50
            return
    pytest.fail("it never came to its end")


@pytest.mark.parametrize("call", ["open_new", "rename", "fsync_directory", "open_append"])
def test_what_is_answered_while_calls_keep_failing_outlives_a_kill(
    tmp_path: Path, call: str
) -> None:
    path = str(tmp_path / "groups")
    files = FaultyFiles(1, EIO, stays=True, only=(call,))  # the first one makes the file
    store, state, refused = opened(path, files), State(), 0
    for changes in commits(40):
        if store.write(changes)[0] is None:
            state = apply(state, changes)
        else:
            refused += 1
        assert state_of(opened(path, UnsyncedFiles())) == state
    assert refused
    files.fail_at = None
    assert store.write([Change("g0", forget=True)]) == [None]
    store.close()
    assert state_of(opened(path, UnsyncedFiles())).keys() == state.keys() - {"g0"}


def test_a_file_cut_at_every_byte_keeps_what_is_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offset_file, "_SMALL_BYTES", 1 << 20)
    path = tmp_path / "groups"
    store = opened(str(path), UnsyncedFiles())
    states: list[tuple[int, State]] = []
    state: State = {}
    for changes in list(commits(10))[:9]:
        for change in changes:
            assert store.write([change]) == [None]
            state = apply(state, [change])
            states.append((path.stat().st_size, state))
    store.close()
    data = path.read_bytes()
    for length in range(HEADER_BYTES, len(data)):
        path.write_bytes(data[:length])
        lines: list[str] = []
        expected = [{}, *(each for end, each in states if end <= length)][-1]
        assert state_of(opened(str(path), UnsyncedFiles(), lines)) == expected
        ends = [HEADER_BYTES, *(end for end, _ in states)]
        assert bool(lines) == (length not in ends)


def test_damage_costs_what_is_damaged_and_is_told(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    store = opened(str(path), UnsyncedFiles())
    for number in range(3):
        change = Change(f"g{number}", offsets={PLACES[0]: Committed(number, -1, "x" * 50, 1)})
        assert store.write([change]) == [None]
    store.close()
    data = path.read_bytes()
    for position in range(12, len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 0x55
        path.write_bytes(damaged)
        lines: list[str] = []
        found = opened(str(path), UnsyncedFiles(), lines)
        assert len(lines) == 1
        assert len(found.names()) == (3 if position < HEADER_BYTES else 2)
        # Once something is written, the file is whole again.
        change = Change("g0", offsets={PLACES[1]: Committed(5, -1, "", 1)})
        assert found.write([change]) == [None]
        found.close()
        lines.clear()
        assert state_of(opened(str(path), UnsyncedFiles(), lines)) == state_of(found)
        assert not lines


def test_what_a_client_wrote_into_a_torn_record_is_not_taken_for_one(tmp_path: Path) -> None:
    """Whoever may commit for one group could commit for all of them by a loss of power."""
    path, place = str(tmp_path / "groups"), PLACES[0]
    for text in map(str, range(1 << 20)):
        committed = Committed(9999, 0, text, 1, 0x7F7F7F7F7F7F)
        forged = encode_change(Change("g1", offsets={place: committed}), 0)
        with suppress(UnicodeDecodeError):
            metadata = forged.decode()
            break
    store = opened(path, UnsyncedFiles())
    store.write([Change("g1", offsets={place: Committed(5, -1, "", 1)})])
    store.write([Change("g2", offsets={place: Committed(1, -1, metadata + "x" * 3000, 1)})])
    store.close()
    os.truncate(path, os.path.getsize(path) - 1000)
    lines: list[str] = []
    assert state_of(opened(path, UnsyncedFiles(), lines))["g1"] == {place: 5}
    assert len(lines) == 1


def test_another_file_of_that_name_is_refused_and_left(tmp_path: Path) -> None:
    path = tmp_path / "groups"
    path.write_bytes(b"something else entirely")
    with pytest.raises(StorageError, match="move it away"):
        opened(str(path), UnsyncedFiles())
    assert path.read_bytes() == b"something else entirely"


def test_the_file_stays_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offset_file, "_SMALL_BYTES", 10_000)
    path = tmp_path / "groups"
    store = opened(str(path), UnsyncedFiles())
    largest = 0
    for number in range(3000):
        change = Change("g1", offsets={PLACES[0]: Committed(number, -1, "", number)})
        assert store.write([change]) == [None]
        largest = max(largest, path.stat().st_size)
    assert 9_000 < largest < 11_000
    assert os.listdir(tmp_path) == ["groups"]
