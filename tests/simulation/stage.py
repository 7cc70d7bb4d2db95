"""Three simulated brokers for what is played by hand: nothing fails but what a test lets fail."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import requests
from brokers import SimulatedBroker, simulate_brokers
from clients import run
from coordination import Coordination
from invariants_today import Books
from machines import Machine
from network import Network
from requests import Client
from simulated_threading import simulated_threads
from world import World

__all__ = ["Stage", "on_stage"]


class Stage:
    """Attributes:
    client: asks brokers.

    Args:
        settings: of the brokers, beside the usual ones.
    """

    def __init__(self, world: World, settings: Mapping[str, Any]) -> None:
        self.world = world
        self.network = Network(world, late=0.0)
        self.coordination = Coordination(world, self.network)
        self.books = Books(world)
        self.brokers = {
            number: SimulatedBroker(
                world, self.network, self.coordination, number, self.books, settings=settings
            )
            for number in (1, 2, 3)
        }
        simulate_brokers(world, self.coordination, self.brokers)
        self.client = Client(Machine(world, "client").start(), self.brokers, "client")
        for broker in self.brokers.values():
            world.at(0, broker.start)
        self.wait(2)

    def wait(self, seconds: float) -> None:
        self.world.run(self.world.now_us + int(seconds * 1e6))
        assert self.world.broken is None, self.world.broken

    def begin(self, work: Callable[[], Awaitable[Any]]) -> None:
        """Have a client do something, and don't wait."""
        run(self.client, work)

    def play(self, work: Callable[[], Awaitable[Any]]) -> Any:
        """Have a client do something, and wait for what comes of it."""
        results: list[Any] = []

        async def play() -> None:
            results.append(await work())

        run(self.client, play)
        for _ in range(100):
            self.wait(0.1)
            if results:
                return results[0]
        raise AssertionError("it doesn't end")

    def ask(self, broker_id: int, request: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return self.play(lambda: self.client.ask(broker_id, request, *arguments))

    def create(self, name: str, partitions: int) -> requests.Topic:
        self.ask(1, requests.create, name, partitions, {})
        self.wait(1)
        topic: requests.Topic = self.ask(1, requests.metadata, name)
        return topic

    def directories(self, name: str) -> list[str]:
        """What all brokers' disks have of a topic."""
        return [
            f"{broker.id}: {each}"
            for broker in self.brokers.values()
            for each in broker.disk.files.listdir("/data/logs")
            if each.startswith(f"{name}-")
        ]


@contextmanager
def on_stage(seed: int = 1, **settings: Any) -> Iterator[Stage]:
    world = World(seed)
    with simulated_threads(world):
        yield Stage(world, settings)
