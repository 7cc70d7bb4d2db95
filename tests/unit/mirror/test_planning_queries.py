"""How a target's positions of a source are read."""

from hermes.coordination.layout import BrokerPartition
from hermes.mirror.planning_queries import empty_set, latest_generation
from hermes.protocol import SourceFlags

A, B = BrokerPartition(0, 0), BrokerPartition(1, 0)


def test_a_source_that_is_unknown_has_no_generation() -> None:
    assert latest_generation("id/clicks/0-1", {A: {"id/clicks/0-10": 5}, B: {}}) == (0, {})


def test_a_source_has_its_positions_by_partition() -> None:
    told = {A: {"id/clicks/0-1": 5, "id/views/0-1": 7}, B: {"id/clicks/0-1": 9}}
    assert latest_generation("id/clicks/0-1", told) == (1, {A: 5, B: 9})


def test_the_highest_generation_counts() -> None:
    told = {A: {"s": 500, "s#2": 5}, B: {"s": 900, "s#10": 1, "s#x": 7}}
    assert latest_generation("s", told) == (10, {B: 1})


def test_an_empty_set_tells_of_a_range_without_a_message() -> None:
    told = empty_set("t", B, "s", 3, 9)
    assert (told.partition, told.source_begin, told.source_end, told.message_set) == (0, 3, 9, b"")
    assert told.flags == SourceFlags.NONE
