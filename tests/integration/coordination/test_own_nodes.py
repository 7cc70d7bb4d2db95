"""Groups in embedded coordination, by the broker's own way to it: what a failing disk leaves."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from own_coordination import AtOnce, OwnCoordination, own_coordination

from hermes.errors import CoordinationUnavailableError, HermesError
from hermes.groups.offset_tree import OffsetTree
from hermes.groups.offsets import (
    Change,
    Committed,
    GroupMovedError,
    GroupRecord,
    GroupStore,
    StoredGroup,
    TopicPartition,
)

CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 1)
ONE, TWO = Committed(1, -1, "", 1000), Committed(2, -1, "", 2000)
RECORD, NEXT = GroupRecord(1, "consumer", -1), GroupRecord(2, "consumer", -1)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnCoordination]:
    with own_coordination(tmp_path / "coordination") as own:
        yield own


@pytest.fixture(params=["in its thread", "at once"])
def store(request: pytest.FixtureRequest, own: OwnCoordination) -> GroupStore:
    return AtOnce(own) if request.param == "at once" else OffsetTree(lambda: own.nodes)


def fail(monkeypatch: pytest.MonkeyPatch, own: OwnCoordination, write: Any) -> Any:
    """What a write gives, or raises, when the disk takes nothing; the server serves afterwards."""

    def full(*_: Any) -> None:
        raise OSError(28, "no room")

    with monkeypatch.context() as patch:
        patch.setattr("hermes.coordination.embedded.store.apply_changes", full)
        try:
            (result,) = write()
        except HermesError as error:
            result = error
    own.wait_until_serving()
    return result


@pytest.mark.parametrize(
    "change",
    [
        Change("g", offsets={CLICKS: TWO}),
        Change("g", offsets={VIEWS: ONE}),
        Change("g", offsets={CLICKS: None}),
        Change("g", NEXT),
        Change("g", NEXT, {CLICKS: TWO, VIEWS: TWO}),
    ],
    ids=["another offset", "a new one", "one less", "a generation", "both"],
)
def test_what_the_disk_did_not_take_is_written_when_it_does(
    own: OwnCoordination, store: GroupStore, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.load("g")
    assert store.write([Change("g", RECORD, {CLICKS: ONE})]) == [None]
    failed = fail(monkeypatch, own, lambda: store.write([change]))
    assert isinstance(failed, CoordinationUnavailableError)
    assert OffsetTree(lambda: own.nodes).names() == ["g"]
    assert store.write([change]) == [None]
    offsets = {CLICKS: ONE, **change.offsets}
    left = {place: each for place, each in offsets.items() if each is not None}
    assert store.load("g") == StoredGroup(change.record or RECORD, left)


def test_a_group_that_the_disk_did_not_take_is_loaded_anew(
    own: OwnCoordination, store: GroupStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.load("g")
    change = Change("g", offsets={CLICKS: ONE})
    failed = fail(monkeypatch, own, lambda: store.write([change]))
    assert isinstance(failed, CoordinationUnavailableError)
    (result,) = store.write([change])
    if result is not None:
        assert isinstance(result, GroupMovedError)
        assert store.load("g") is None
        assert store.write([change]) == [None]
    assert store.load("g") == StoredGroup(None, {CLICKS: ONE})


def test_nothing_is_there_while_the_server_is_stopped(
    own: OwnCoordination, store: GroupStore
) -> None:
    store.load("g")
    own.in_reactor(own.service.stopService)
    try:
        (result,) = store.write([Change("g", offsets={CLICKS: ONE})])
    except HermesError as error:
        result = error
    assert isinstance(result, CoordinationUnavailableError)
    own.in_reactor(own.service.startService)
    assert store.write([Change("g", offsets={CLICKS: ONE})]) == [None]
