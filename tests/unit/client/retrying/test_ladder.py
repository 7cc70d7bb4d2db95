"""The names of retry topics, and where a message goes that fails."""

from typing import Any

import pytest

from hermes.client.retrying.ladder import Ladder, Rung
from hermes.errors import ArgumentError, ConfigError, InvalidTopicError


def test_a_message_climbs_and_ends_among_the_dead() -> None:
    ladder = Ladder("billing", ["orders"], ["5s", 60_000])
    way = [ladder.above(Rung("orders", level)) for level in range(4)]
    assert way == [
        "orders.billing.retry.1",
        "orders.billing.retry.2",
        "orders.billing.dead",
        "orders.billing.dead",
    ]
    assert [ladder.delay(level) for level in (1, 2, 3)] == [5.0, 60.0, 60.0]


def test_without_delays_every_failure_is_a_dead_letter() -> None:
    ladder = Ladder("g", ["t"], [])
    assert ladder.above(Rung("t", 0)) == "t.g.dead"
    assert ladder.delay(1) == 0


@pytest.mark.parametrize("topic", ["orders", "a b,c", "a.g.retry", 'x"y\\z', "ö|(["])
def test_the_filter_allows_the_retry_topics_and_no_others(topic: str) -> None:
    ladder = Ladder("g*", [topic, "other"], ["1s"])
    allows = ladder.retry_topics().allows
    for level in (1, 9, 10, 9999):
        name = ladder.retry(topic, level)
        assert allows(name)
        assert ladder.rung(name) == Rung(topic, level)
    wrong = ["0", "01", "x", "", "10000", "1\u0663", "1.1", "-1"]
    for name in [topic, ladder.dead(topic), *(f"{topic}.g*.retry.{each}" for each in wrong)]:
        assert not allows(name), name
        assert ladder.rung(name) is None, name


def test_topics_count_once() -> None:
    assert Ladder("g", ["t", "t", "u"], []).topics == ("t", "u")


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("g", "orders", ["1s"]), ArgumentError, "expected a list of names, got 'orders'"),
        (("g", [], ["1s"]), ArgumentError, "expected a list of names"),
        (("g", [b"t"], ["1s"]), ArgumentError, "expected a str"),
        (("g", ["t"], "1s"), ConfigError, "delays: expected a list of durations, got '1s'"),
        (("g", ["t"], ["soon"]), ConfigError, "delays: "),
        (("g", ["t"], [-1]), ConfigError, "delays: "),
        (("g", ["t"], ["1s"] * 101), ConfigError, "delays: expected 100 at most"),
        (("g", ["t" * 250], ["1s"]), InvalidTopicError, "255 are allowed"),
        (("g", ["t/u"], ["1s"]), InvalidTopicError, "U+002F"),
        (("g", ["t", "t.g.retry.1"], ["1s"]), ConfigError, "is a retry topic of another one"),
    ],
)
def test_what_can_not_be(arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error) as raised:
        Ladder(*arguments)
    assert text in str(raised.value)
