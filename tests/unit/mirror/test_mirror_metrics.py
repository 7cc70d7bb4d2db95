"""The names of a mirror's metrics, and what is told of it."""

from pathlib import Path
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from hermes.coordination.mirrors import MirrorProcess
from hermes.errors import CoordinationUnavailableError
from hermes.metrics import OPENMETRICS, Family
from hermes.mirror.figures import PartitionFigures
from hermes.mirror.mirror_metrics import FAMILIES, write_families
from hermes.mirror.status import StatusPublisher

ROOT = Path(__file__).parents[3]


class FakeMirror:
    target_session: Any = None
    target_id = "uuid"

    def __init__(self) -> None:
        self.errors = {"source far": "down"}
        self.refused = {"far: t": "a loop"}
        self.all = [
            PartitionFigures("far", "t", f"0-{n}", "t", 10 * n, 100, 5, 50, 1, 2, 3, "", n != 2)
            for n in range(3)
        ]

    def figures(self) -> list[PartitionFigures]:
        return self.all


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def mirror() -> FakeMirror:
    return FakeMirror()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def status(mirror: FakeMirror, clock: Clock) -> StatusPublisher:
    fake: Any = mirror
    return StatusPublisher(fake, "m", {"far": "id"}, clock=clock, now_ms=lambda: 5_000)


def test_the_document_has_all_families(status: StatusPublisher) -> None:
    def row(family: Family) -> str:
        labels = ", ".join(f"`{label}`" for label in family.labels)
        return f"| `{family.name}` | {family.kind} | {labels} | {family.help} |"

    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = {line for line in document.splitlines() if line.startswith("| `hermes_mirror_")}
    assert rows == {row(family) for family in FAMILIES.values()}


def test_the_exposition_has_all_families(status: StatusPublisher) -> None:
    text = b"".join(write_families(status, OPENMETRICS)).decode() + "# EOF\n"
    found = {family.name: family for family in text_string_to_metric_families(text)}
    names = {f"{n}_total" if each.type == "counter" else n for n, each in found.items()}
    assert names == set(FAMILIES)
    (messages,) = found["hermes_mirror_messages"].samples
    assert (messages.labels, messages.value) == ({"source": "far", "topic": "t"}, 15)
    lags = {
        each.labels["partition"]: each.value for each in found["hermes_mirror_lag_bytes"].samples
    }
    assert lags == {"0-0": 100, "0-1": 90}
    assert found["hermes_mirror_troubles"].samples[0].value == 1


def test_what_is_told_counts_all_and_shows_what_it_has(
    status: StatusPublisher, mirror: FakeMirror, clock: Clock
) -> None:
    status.look()
    clock.now += 2
    mirror.all[0].bytes += 100
    status.look()
    told = status.now()
    assert MirrorProcess.parse(told.path, told.format()) == told
    assert (told.messages, told.mirrored_bytes, told.duplicates) == (15, 250, 3)
    assert (told.damaged, told.lost_bytes, told.lag_bytes, told.count) == (6, 9, 190, 2)
    assert [each.partition for each in told.partitions] == ["0-0", "0-1"]
    assert told.partitions[0].rate_bytes == told.rate_bytes == 50
    assert told.errors == mirror.errors
    assert (told.time_ms, told.started_ms, told.target) == (5_000, 5_000, "uuid")


def test_rates_are_those_of_the_last_looks(status: StatusPublisher, clock: Clock) -> None:
    for _ in range(10):
        status.look()
        clock.now += 1
    assert status.now().rate_bytes == 0


class FakeSession:
    def __init__(self) -> None:
        self.told: list[tuple[str, bytes]] = []
        self.is_down = False

    def create_ephemeral(self, path: str, value: bytes) -> None:
        if self.is_down:
            raise CoordinationUnavailableError("no answer")
        self.told.append((path, value))

    def delete_own(self, path: str) -> bool:
        self.told.append((path, b""))
        return True


def test_it_is_told_as_long_as_it_runs(
    status: StatusPublisher, mirror: FakeMirror, caplog: pytest.LogCaptureFixture
) -> None:
    session = FakeSession()
    mirror.target_session = session
    assert status._publish() == len(session.told[0][1])
    session.is_down = True
    assert status._publish() == status._publish()
    assert len(caplog.records) == 1  # once, however often
    session.is_down = False
    status.start()
    status.stop()
    assert session.told[-1] == (status.now().path, b"")
