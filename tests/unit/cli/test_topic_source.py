"""Topics of which a broker of a cluster has some partitions, or none."""

from contextlib import nullcontext
from typing import Any

import pytest

from hermes.cli.options import BrokerOption
from hermes.cli.partition_reader import PartitionReader
from hermes.protocol import BrokerMetadata, PartitionLeader, PartitionMetadata, TopicMetadata


class PlayedConsumer:
    """A broker with some of three partitions, in which there is nothing."""

    def __init__(self, *numbers: int) -> None:
        partitions = tuple(PartitionMetadata(each, 0, 0, 0) for each in numbers)
        leaders = tuple(PartitionLeader(each, 1, 1, 0) for each in range(3))
        self.topic = TopicMetadata("t", 0, 3, partitions, True, 1, leaders)

    def supports(self, request_type: int) -> bool:
        return True

    def metadata(self, topics: Any) -> BrokerMetadata:
        return BrokerMetadata(1, "0", 1 << 20, 1 << 20, 1, (), (self.topic,))


@pytest.fixture
def read(run: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    def invoke(consumer: PlayedConsumer, *line: str) -> Any:
        monkeypatch.setattr(BrokerOption, "consumer", lambda *_, **__: nullcontext(consumer))
        return run(*line, "-b", "localhost:1", "-e")

    monkeypatch.setattr(PartitionReader, "is_done", True)
    return invoke


@pytest.mark.parametrize(
    "line", [("consume", "-o", "end", "-t", "t"), ("tail", "-n", "0", "t")], ids=["consume", "tail"]
)
def test_that_other_brokers_have_the_rest_is_said(read: Any, line: Any) -> None:
    result = read(PlayedConsumer(0, 2), *line)
    text = "hermes: this broker has 2 of the 3 partitions of topic 't', other brokers the rest\n"
    assert (result.exit_code, result.stderr) == (0, text)
    assert read(PlayedConsumer(0, 1, 2), *line).stderr == ""
    result = read(PlayedConsumer(), *line)
    text = "hermes: this broker has no partition of topic 't': name another one of the cluster\n"
    assert (result.exit_code, result.stderr) == (1, text)


def test_who_asks_for_a_partition_is_told_nothing_of_the_others(read: Any) -> None:
    line = ("consume", "-o", "end", "-t", "t", "-p", "2")
    assert read(PlayedConsumer(0, 2), *line).stderr == ""
