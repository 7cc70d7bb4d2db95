"""Kills of a consumer that retries, while it works; and what must be true at the end."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrying_process import DELAYS, RetryingProcess, attempts_in, letters_in

from hermes.client import Producer, ProducerConfig
from hermes.testing import RunningBroker

__all__ = ["check_nothing_is_lost"]

_MESSAGES_A_KILL = 60


def check_nothing_is_lost(
    broker: RunningBroker,
    connect: str,
    output: Path,
    eventually: Callable[..., Any],
    *,
    kills: int,
    seed: int,
) -> int:
    """Publish messages of which some fail, and kill the consumer again and again.

    At the end each that fails seldom enough was handled, and each of the others is a dead letter.

    Returns:
        How many times messages were handled that had been handled before.
    """
    chance = random.Random(seed)
    count = (kills + 1) * _MESSAGES_A_KILL
    failures = [chance.choice([0, 0, 0, 1, 2, 3, 9]) for _ in range(count)]
    numbers = iter(range(count))

    def publish(producer: Producer) -> None:
        for _ in range(_MESSAGES_A_KILL):
            number = next(numbers)
            producer.send("t", [[number, failures[number]]])

    config = ProducerConfig(
        zookeeper_connect=connect, acks="flushed", encoder="json", partitioner="round-robin"
    )
    with Producer(config) as producer:
        for _ in range(kills):
            before = len(attempts_in(output))
            publish(producer)
            wanted = before + chance.randrange(1, _MESSAGES_A_KILL)
            with RetryingProcess(connect, "t", "50ms", output) as process:
                eventually(lambda: len(attempts_in(output)) >= wanted)  # noqa: B023
                process.kill()
        publish(producer)
    most = len(DELAYS)
    good = {number for number, failed in enumerate(failures) if failed <= most}
    bad = set(range(count)) - good

    def handled() -> list[int]:
        return [each.number for each in attempts_in(output) if each.succeeded]

    def dead() -> set[int]:
        letters = letters_in(broker.host, broker.port, "t.g.dead")
        return {json.loads(each.payload)[0] for each in letters}

    with RetryingProcess(connect, "t", "50ms", output) as process:
        eventually(lambda: set(handled()) == good, "not everything was handled")
        eventually(lambda: dead() == bad, "not everything is dead")
        process.stop()
    assert set(handled()) == good
    assert dead() == bad
    return len(handled()) - len(good)
