"""Clients of Kafka's in other languages: those in Go, kafkajs, and the oldest of Java's."""

import os
from pathlib import Path

from fetched_tools import fetched
from kafka_4 import java_command
from kafka_clients import Driven

__all__ = ["OTHERS", "FranzGo", "KafkaJs", "OldJava", "Sarama"]


def _built(variable: str) -> Path:
    folder = os.environ.get(variable)
    if folder is None:
        raise RuntimeError(f"scripts/soak builds what this needs, and names it in {variable}")
    return Path(folder)


def _go_driver() -> Path:
    folder = fetched("HERMES_GO_CLIENTS", "kafka-clients-go-*", "ensure_go_clients")
    return folder / "driver"


class FranzGo(Driven):
    """franz-go."""

    name = "franz-go"

    def command(self) -> list[str]:
        """See `Driven`."""
        return [str(_go_driver()), self.name]


class Sarama(Driven):
    """sarama, which by its defaults speaks as to a Kafka 2.1."""

    name = "sarama"

    def command(self) -> list[str]:
        """See `Driven`."""
        return [str(_go_driver()), self.name]


class KafkaJs(Driven):
    """kafkajs."""

    name = "kafkajs"
    has_null_headers = False
    keeps_headers = False

    def command(self) -> list[str]:
        """See `Driven`."""
        return ["node", str(_built("HERMES_NODE_CLIENTS") / "driver.js")]


class OldJava(Driven):
    """Kafka 2.1's own client."""

    name = "java-2.1"

    def command(self) -> list[str]:
        """See `Driven`."""
        return self.java("KafkaDriver.java")

    @staticmethod
    def java(*arguments: str) -> list[str]:
        """A command that runs Java with this client's classes."""
        return java_command(*arguments, jars=_built("HERMES_OLD_KAFKA_JARS"))


#: All of them.
OTHERS: tuple[type[Driven], ...] = (FranzGo, Sarama, KafkaJs, OldJava)
