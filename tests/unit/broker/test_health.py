"""What a broker says of its readiness, to whom."""

from types import SimpleNamespace
from typing import Any

import pytest

from hermes.broker.health import copies_in_sync, readiness
from hermes.replication.state import PartitionState


def run_of(*, is_guarded: bool, count: int) -> Any:
    """A broker that serves, but for so many partitions that are offline, and copies that lag."""
    logs = {
        number: SimpleNamespace(name=f"secret-{number}", is_offline=True, offline_reason="gone")
        for number in range(count)
    }
    state = PartitionState((2, 1), 2, 1, 0, frozenset((2,)))
    topic = SimpleNamespace(copies=(state,) * count)
    return SimpleNamespace(
        addresses=[("127.0.0.1", 9092)],
        stopping=False,
        opened=SimpleNamespace(recovered={}),
        opening_seconds=0.1,
        coordination=SimpleNamespace(is_enabled=False),
        directory=SimpleNamespace(logs=logs),
        config=SimpleNamespace(is_guarded=is_guarded, broker_id=1),
        cluster=SimpleNamespace(
            topics=SimpleNamespace(names=lambda: ["secret"], get=lambda _: topic, is_known=True)
        ),
    )


@pytest.mark.parametrize("count", [1, 12])
def test_topics_are_named_unless_there_are_access_rules(count: int) -> None:
    """Anybody may ask, and who may see which topics is for these to say."""
    for is_guarded in (False, True):
        run = run_of(is_guarded=is_guarded, count=count)
        (offline,) = (each for each in readiness(run) if each.name == "partitions")
        for each in (offline, copies_in_sync(run)):
            assert not each.is_ok
            assert ("secret" in each.detail) is not is_guarded
            if is_guarded or count > 10:
                assert str(count if is_guarded else count - 10) in each.detail
