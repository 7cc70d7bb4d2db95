"""What becomes of partitions that are fetched together when one of them fails."""

import logging
import threading
from collections.abc import Sequence
from typing import Any

import pytest

from hermes.client.fetching import FetchResult
from hermes.client.groups.config import ConsumerConfig
from hermes.client.metrics import ConsumerCounters
from hermes.coordination.layout import BrokerPartition
from hermes.errors import OffsetOutOfRangeBrokerError, UnknownTopicError
from hermes.mirror.fetchers import SourceFetcher
from hermes.mirror.figures import Problems
from hermes.mirror.source_claim import SourceClaim
from hermes.mirror.throttle import BandwidthLimit
from hermes.protocol import FetchRequest, MessageSet, encode_message_set

FETCHED = encode_message_set([b"a"])


class Fetcher(SourceFetcher):
    """Without a thread; nobody says where partition 0 begins, whose offset is out of range."""

    def __init__(self, claims: Sequence[Any]) -> None:
        problems = Problems(logging.getLogger("test"))
        place = (problems, BandwidthLimit(None), 0, ("localhost", 1))
        config = ConsumerConfig(group="g", zookeeper_connect="none")
        asked = (config, None, lambda _: (claims, 1 << 20), ConsumerCounters())
        super().__init__("east", *place, *asked)

    def _run(self) -> None: ...

    def _fetch(self, requests: Sequence[FetchRequest], wait_ms: int) -> list[FetchResult]:
        gone = OffsetOutOfRangeBrokerError("it is gone")
        return [
            FetchResult(each, MessageSet(FETCHED, 0), None, None if each.partition else gone)
            for each in requests
        ]

    def _find_offset(self, claim: Any, time_ms: int) -> int:
        raise UnknownTopicError("it is being deleted")


class Claim:
    """Remembers what came of it; raises `fault` at what it is given."""

    topic, epoch, fetch_offset = "clicks", 1, 0
    __class__ = SourceClaim  # type: ignore[assignment]

    def __init__(self, number: int, fault: Exception | None = None) -> None:
        self.partition = BrokerPartition(0, number)
        self.lock = threading.RLock()
        self.figures: Any = type("Figures", (), {"end": 0})
        self.came: list[str] = []
        self._fault = fault

    def wants_bytes(self, share_bytes: int, fetch_bytes: int) -> int:
        return fetch_bytes

    def add(self, messages: MessageSet, epoch: int) -> None:
        if self._fault is not None:
            raise self._fault
        self.came.append("messages")

    def pause(self, text: str, seconds: float) -> None:
        self.came.append(text)

    def restart(self, epoch: int, error: Any) -> None:
        self.came.append(f"anew: {error}")


@pytest.fixture
def claims() -> list[Claim]:
    return [Claim(0), Claim(1, RuntimeError("a fault")), Claim(2)]


def test_a_partition_that_fails_holds_up_none_behind_it(claims: list[Claim]) -> None:
    fetcher = Fetcher(claims)
    fetcher._fetch_once()
    found = [each.came for each in claims]
    assert found == [["it is being deleted"], ["anew: RuntimeError('a fault')"], ["messages"]]
    fetcher.stop()
