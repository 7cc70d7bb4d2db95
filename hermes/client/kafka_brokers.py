"""The brokers of a cluster, asked in Kafka's protocol one after the other: for tools."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

from hermes.client.kafka_asking import KafkaAsker
from hermes.errors import SILENT, ClientError
from hermes.protocol.kafka_requests import KafkaRequest
from hermes.security import ClientSecurity

Address = tuple[str, int]

_Answer = TypeVar("_Answer")


class KafkaBrokers:
    """A broker that did not answer is not asked again: each attempt may take the whole timeout.

    Args:
        places: host and port of brokers' `kafka_listen`, of which one is reached.
        timeout_seconds: of connecting, and of each answer.
        elsewhere: for brokers at other places than these; None: `security`.

    Attributes:
        first: the one that was reached.
        ids: of the brokers that it has told of.

    Raises:
        ClientError: none can be reached.
        NotAuthenticatedError: the user is refused.
    """

    def __init__(
        self,
        places: Iterable[Address],
        timeout_seconds: float,
        security: ClientSecurity,
        elsewhere: ClientSecurity | None = None,
    ) -> None:
        places = list(places)
        self._timeout_seconds = timeout_seconds
        self._security = dict.fromkeys(places, security)
        self._elsewhere = security if elsewhere is None else elsewhere
        self._stack = ExitStack()
        self._askers: dict[Address, KafkaAsker] = {}
        self._silent: dict[Address, ClientError] = {}
        self.ids: dict[Address, int] = {}
        self.first = self._reach(places)

    def close(self) -> None:
        self._stack.close()

    @property
    def faults(self) -> list[str]:
        """Which brokers did not answer, and why: one line for each."""
        return [
            f"broker {self.ids[at]} does not answer: {error}" if at in self.ids else str(error)
            for at, error in self._silent.items()
        ]

    def _reach(self, places: Iterable[Address]) -> Address:
        problem = ClientError("no broker accepts Kafka clients: set kafka_listen")
        for place in places:
            try:
                self.ask(place, "ApiVersions", 0)
                return place
            except ClientError as error:
                problem = error
        raise problem

    def ask(self, place: Address, name: str, version: int, **values: Any) -> Any:
        """As `KafkaAsker.ask`, one broker."""
        return self._asked(place, lambda asker: asker.ask(name, version, **values))

    def ask_encoded(
        self, place: Address, request: KafkaRequest, decode: Callable[[memoryview], _Answer]
    ) -> _Answer:
        """As `KafkaAsker.ask_encoded`, one broker."""
        return self._asked(place, lambda asker: asker.ask_encoded(request, decode))

    def _asked(self, place: Address, question: Callable[[KafkaAsker], _Answer]) -> _Answer:
        if place in self._silent:
            raise self._silent[place]
        if place not in self._askers:
            security = self._security.get(place, self._elsewhere)
            asker = KafkaAsker(*place, self._timeout_seconds, security)
            self._askers[place] = self._stack.enter_context(asker)
        try:
            return question(self._askers[place])
        except SILENT as error:
            self._silent[place] = error
            raise

    def forgive(self) -> None:
        """Ask those again that did not answer: time has passed."""
        self._silent.clear()

    def metadata(self, topics: Sequence[Mapping[str, Any]] | None, version: int = 8) -> Any:
        given = {"topics": topics, "allow_auto_topic_creation": False}
        answer = self.ask(self.first, "Metadata", version, **given)
        self.ids |= {(each.host, each.port): each.node_id for each in answer.brokers}
        return answer
