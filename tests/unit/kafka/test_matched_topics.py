"""Topics that regular expressions find: looked for once, and again when anything has changed."""

from typing import Any

import pytest
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure

from hermes.kafka.matched_topics import _MOST_KNOWN, MatchedTopics
from hermes.protocol.kafka_errors import Code, KafkaError
from hermes.server.clients import Client
from hermes.server.fairness import FairScheduler


class World:
    """Topics and permissions that a test changes, and how often a thread looked."""

    def __init__(self) -> None:
        self.there = ["apples", "berries", "cherries"]
        self.revision = self.looked = 0
        self.hidden: dict[str, str] = {}
        self.matched = MatchedTopics(self, self, FairScheduler(Clock()), self.look_up)  # type: ignore[arg-type]

    def names(self) -> list[str]:
        return sorted(self.there)

    @property
    def is_on(self) -> bool:
        return bool(self.hidden)

    def stamp(self, principal: str) -> object:
        return [self.hidden.get(principal)]  # which need not be hashable

    def permits_topic(self, client: Client, _operation: Any, name: str) -> bool:
        return self.hidden.get(client.principal) != name

    def look_up(self, function: Any, *args: Any) -> Deferred[Any]:
        self.looked += 1
        return maybeDeferred(function, *args)

    def find(self, regex: str, principal: str = "anna") -> Any:
        client = Client(None)
        client.principal = principal
        found: list[Any] = []
        Deferred.fromCoroutine(self.matched.find(regex, client)).addBoth(found.append)
        return found[0]


@pytest.fixture
def world() -> World:
    return World()


def test_it_is_looked_for_once(world: World) -> None:
    first = world.find(".*rries")
    assert first == ("berries", "cherries")
    assert world.find(".*rries") is first
    assert world.looked == 1
    assert world.find("[bc].*") is first, "what is alike is shared"
    assert world.find("a.*") == ("apples",)


def test_it_is_looked_for_again_when_there_are_other_topics(world: World) -> None:
    world.find(".*rries")
    world.there += ["currants", "blueberries"]
    world.revision += 1
    assert world.find(".*rries") == ("berries", "blueberries", "cherries")


def test_what_changes_while_a_thread_looks_is_found_the_next_time(world: World) -> None:
    threads: list[Deferred[None]] = []

    def later(function: Any, *args: Any) -> Deferred[Any]:
        threads.append(Deferred())
        return threads[0].addCallback(lambda _: function(*args))

    world.matched._look_up = later
    found: list[Any] = []
    asked = Deferred.fromCoroutine(world.matched.find("a.*", Client(None)))
    asked.addBoth(found.append)
    world.there.append("apricots")
    world.revision += 1
    world.matched._look_up = world.look_up
    assert world.find("b.*") == ("berries",)
    threads[0].callback(None)
    assert found == [("apples",)]
    assert world.find("a.*") == ("apples", "apricots")


def test_each_finds_what_it_may_see_now(world: World) -> None:
    world.hidden = {"anna": "apples"}
    assert world.find(".*") == ("berries", "cherries")
    assert world.find(".*", "berta") == ("apples", "berries", "cherries")
    world.hidden = {"anna": "berries"}
    assert world.find(".*") == ("apples", "cherries")
    assert world.find(".*") is world.find(".*")


def test_little_is_remembered(world: World) -> None:
    for number in range(3 * _MOST_KNOWN):
        world.find(f"a.{{{number}}}")
    assert len(world.matched._known) == _MOST_KNOWN
    looked = world.looked
    world.find(f"a.{{{3 * _MOST_KNOWN - 1}}}")
    assert world.looked == looked


def test_what_is_no_expression_is_refused(world: World) -> None:
    found = world.find("(")
    assert isinstance(found, Failure)
    assert isinstance(found.value, KafkaError)
    assert found.value.code is Code.INVALID_REGULAR_EXPRESSION
