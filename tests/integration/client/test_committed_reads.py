"""Hermes' own readers get what was committed of transactions, and wait where one is open."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings
from transacted_logs import Writer

from hermes import FetchRequest, SimpleConsumer, aio
from hermes.storage import DataDirectory
from hermes.testing import RunningBroker, running_broker


def write(path: Path) -> None:
    """A directory with committed, aborted and open transactions, and what is part of none."""
    directory = DataDirectory(path, lambda topic: settings(format="kafka"), UnsyncedFiles())
    directory.open(NOW_MS)
    writer = Writer(directory.create("paid", 0))
    writer.send(7, 2)
    writer.send(8, 2)
    writer.end(8)
    writer.send(1, plain=True)
    writer.end(7, commit=True)
    writer.send(8)
    writer.end(8, commit=True)
    writer.send(9)
    writer.send(1, plain=True)
    writer.log.flush()
    directory.close()


COMMITTED = [b"7.0", b"7.1", b"1.0", b"8.2"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    path = tmp_path_factory.mktemp("with transactions")
    write(path)
    with running_broker(path, {"topics": {"paid": {"format": "kafka"}}}) as running:
        yield running


@pytest.mark.parametrize("max_bytes", [1, 1 << 20], ids=["batch by batch", "at once"])
def test_a_consumer_leaves_out_what_was_aborted(broker: RunningBroker, max_bytes: int) -> None:
    with SimpleConsumer(broker.host, broker.port) as consumer:
        (description,) = consumer.describe_partitions("paid")
        assert (description.earliest, description.high_watermark) == (0, 9)
        assert consumer.get_offsets_before("paid", 0, -1) == [9]
        found, offset = [], 0
        while offset < 9:
            (result,) = consumer.fetch_waiting([FetchRequest("paid", 0, offset, max_bytes)], 0)
            assert result.high_watermark == 9
            found += [message.payload for message, _ in result.messages]
            offset = result.messages.next_offset
        assert found == COMMITTED
        for offset in (9, 10):  # an open transaction, and behind it
            (result,) = consumer.fetch_waiting([FetchRequest("paid", 0, offset, 1 << 20)], 0)
            assert (result.error, len(result.messages)) == (None, 0)


def test_an_asynchronous_one_leaves_it_out(broker: RunningBroker) -> None:
    async def read() -> list[bytes | None]:
        found: list[bytes | None] = []
        async with aio.SimpleConsumer(broker.host, broker.port) as consumer:
            async for message, following in consumer.follow("paid", 0, 0):
                found.append(message.payload)
                if following == 8:
                    return found
        raise AssertionError

    assert asyncio.run(read()) == COMMITTED
