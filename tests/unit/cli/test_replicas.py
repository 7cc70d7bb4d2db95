"""`hermes replicas`, whose brokers are played."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from hermes.client.kafka_replicas import Broker, KafkaReplicas, Partition


def partition(topic: str, *replicas: int, **others: Any) -> Partition:
    return Partition((topic, 0), replicas[0], 0, replicas, frozenset(replicas), **others)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Iterator[list[Partition]]]:
    """Lets three brokers say one after the other what there is; the last one is said for good."""
    monkeypatch.setattr("hermes.cli.replica_options._POLL_SECONDS", 0)

    def play(*told: list[Partition], fixed: tuple[str, ...] = ()) -> Iterator[list[Partition]]:
        answers = iter(told)
        last: list[list[Partition]] = []

        def partitions(*_: Any) -> list[Partition]:
            last[:] = [next(answers, *last)]
            return last[0]

        def move(_: Any, moves: Any) -> dict[Any, str]:
            return {place: "it can't be" for place in moves if place[0] in fixed}

        brokers = {each: Broker(("localhost", each), "") for each in (1, 2, 3)}
        monkeypatch.setattr(KafkaReplicas, "_reach", lambda _, places: next(iter(places)))
        monkeypatch.setattr(KafkaReplicas, "partitions", partitions)
        monkeypatch.setattr(KafkaReplicas, "move", move)
        monkeypatch.setattr(KafkaReplicas, "brokers", lambda _: brokers)
        return answers

    return play


def test_a_drain_ends_when_the_broker_has_nothing(run: Any, cluster: Any) -> None:
    moving = partition("x", 1, 3, 2, adding=frozenset({3}), removing=frozenset({2}))
    cluster([partition("x", 1, 2)], [moving], [partition("x", 1, 3)])
    result = run("replicas", "drain", 2, "-k", "localhost:1")
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "moves x:0 from 1,2 to 1,3\n"


def test_a_drain_that_goes_on_is_waited_for(run: Any, cluster: Any) -> None:
    moving = partition("x", 1, 3, 2, adding=frozenset({3}), removing=frozenset({2}))
    done = [partition("x", 1, 3)]
    answers = cluster([moving], [moving], done, done)
    result = run("replicas", "drain", 2, "-k", "localhost:1")
    assert list(answers) == []
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")


def test_a_drain_that_left_something_says_so(run: Any, cluster: Any) -> None:
    undone, new = partition("x", 1, 2), partition("new", 2, 3)
    cluster([undone, partition("old", 2)], [undone, new, partition("old", 2)], fixed=("old",))
    result = run("replicas", "drain", 2, "-k", "localhost:1")
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        "hermes: x:0 is on broker 2: it was put there meanwhile; drain it once more",
        "hermes: new:0 is on broker 2: it was put there meanwhile; drain it once more",
        "hermes: old:0 stays on broker 2: a topic with Kafka 0.7's format; have `hermes mirror` "
        "copy it elsewhere, or delete it",
    ]


def test_copies_that_have_nothing_in_common_are_not_equal(
    run: Any, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds = {1: (1000, 2000), 2: (0, 500), 3: (1000, 1000)}
    monkeypatch.setattr(KafkaReplicas, "bounds", lambda _, broker, place: bounds[broker.address[1]])
    monkeypatch.setattr(KafkaReplicas, "is_compacted", lambda *_: False)
    monkeypatch.setattr(KafkaReplicas, "batches", lambda *_: iter(()))
    cluster([partition("x", 1, 2, 3)])
    result = run("replicas", "verify", "-k", "localhost:1")
    text = "not compared: it has offsets 0 to 500, and the leader 1000 to 2000"
    assert result.stderr == f"hermes: x:0 on broker 2: {text}\n"
    assert result.exit_code == 1
    assert "equal" in result.stdout
