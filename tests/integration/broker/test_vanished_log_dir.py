"""A running broker whose data directory is taken away, put back, or exchanged."""

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hermes_testkit import BrokerProcess, RawClient, fetch, message, produce_acknowledged

from hermes.protocol import ErrorCode

StartBroker = Callable[..., BrokerProcess]

HELLO = message(b"hello")


def produced(client: RawClient, topic: str = "t") -> tuple[int, int]:
    """Produce one message with acks=flushed; the code and offset of the answer."""
    answer = client.call(produce_acknowledged((topic, 0, HELLO)))
    return struct.unpack_from(">hq", answer, 12)


def begun(start_broker: StartBroker) -> BrokerProcess:
    broker = start_broker()
    with broker.connect() as client:
        assert [produced(client)[0] for _ in range(3)] == [0, 0, 0]
    return broker


@pytest.mark.parametrize("how", ["removed", "removed and made again"])
def test_nothing_is_acknowledged_that_no_start_would_find(
    start_broker: StartBroker, how: str
) -> None:
    broker = begun(start_broker)
    shutil.rmtree(broker.log_dir)
    if how == "removed and made again":
        broker.log_dir.mkdir()
    with broker.connect() as client:
        assert produced(client) == (ErrorCode.OUTCOME_UNKNOWN, -1)
        refusals = {produced(client) for _ in range(50)}
        assert refusals == {(ErrorCode.STORAGE_UNAVAILABLE, -1)}
        assert produced(client, "new") == (ErrorCode.STORAGE_UNAVAILABLE, -1)
    line = broker.wait_for_line("removed, replaced or unmounted")
    assert "flushing t-0 failed" in line
    assert "restart the broker" in line
    broker.stop()
    assert not list(broker.log_dir.glob("*")), "nothing is written where something else is"

    broker.start()
    with broker.connect() as client:
        assert produced(client) == (0, 0)


def test_a_directory_that_is_put_back_is_served_again(start_broker: StartBroker) -> None:
    broker = begun(start_broker)
    away = Path(f"{broker.log_dir}-away")
    broker.log_dir.rename(away)
    with broker.connect() as client:
        assert produced(client) == (ErrorCode.OUTCOME_UNKNOWN, -1)
        away.rename(broker.log_dir)
        broker.wait_for_line("t-0 is back online")
        end = 4 * len(HELLO)  # what was appended meanwhile went into the same file
        assert produced(client) == (0, end)
        assert client.call(fetch("t", 0, 0)).endswith(HELLO * 5)
    assert broker.stop() == 0
    assert (broker.log_dir / ".kafka_cleanshutdown").exists()
