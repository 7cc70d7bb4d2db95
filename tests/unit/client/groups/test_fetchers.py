"""What a fetcher makes of a broker's answers: counted in requests and rests, without a clock."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from hermes.client.fetching import FetchResult
from hermes.client.groups import fetchers
from hermes.client.groups.config import ConsumerConfig
from hermes.client.groups.fetchers import BrokerFetcher
from hermes.client.groups.streams import Claim
from hermes.client.metrics import ConsumerCounters
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.errors import (
    BrokerError,
    BrokerNotReachedError,
    BrokerNotTrustedError,
    HermesError,
    NotAuthenticatedError,
    NotAuthorizedError,
    OffsetOutOfRangeBrokerError,
    WrongPartitionError,
)
from hermes.protocol import FetchRequest, MessageSet, encode_message_set

ENOUGH = 200


class Broker:
    """Answers as it is told, at once; after enough requests the test is over."""

    def __init__(self, answer: Callable[[FetchRequest], BrokerError | bytes]) -> None:
        self.asked: list[tuple[FetchRequest, ...]] = []
        self.over = threading.Event()
        self._closed = threading.Event()
        self.commits: list[int] = []
        self.claims: list[Claim] = []
        self.refusal: HermesError | None = None
        self.meanwhile: Callable[[Claim], None] = lambda claim: None
        self._answer = answer

    def fetch(self, requests: Sequence[FetchRequest]) -> list[FetchResult]:
        if len(self.asked) >= ENOUGH:
            self.end()
        self.asked.append(tuple(requests))
        if self.refusal is not None:
            raise self.refusal
        return [self._result(each) for each in requests]

    def end(self) -> None:
        """Have the fetcher wait until the test has stopped it."""
        self.over.set()
        self._closed.wait(60)

    def close(self) -> None:
        self._closed.set()

    def _result(self, request: FetchRequest) -> FetchResult:
        answer = self._answer(request)
        data = answer if isinstance(answer, bytes) else b""
        error = None if isinstance(answer, bytes) else answer
        return FetchResult(request, MessageSet(data, request.offset), None, error)


class Clock:
    """Time passes only while the fetcher rests or idles."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class Watched(BrokerFetcher):
    """Rests and idles in no time, and asks a broker of its own."""

    def __init__(self, broker: Broker, *arguments: Any) -> None:
        self.broker = broker
        super().__init__(*arguments)

    def stop(self) -> None:
        self.broker.close()
        super().stop()

    def _fetch(self, requests: Sequence[FetchRequest], _wait_ms: int) -> list[FetchResult]:
        return self.broker.fetch(requests)

    def _find_offset(self, claim: Claim, _time_ms: int) -> int:
        self.broker.meanwhile(claim)
        return 0

    def _rest(self, seconds: float) -> None:
        CLOCK.now += max(0.0, seconds)

    def _idle(self, seconds: float) -> None:
        CLOCK.now += seconds


CLOCK = Clock()
Run = Callable[..., tuple[Broker, float]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Lets a fetcher work on claims until it has asked `ENOUGH` times, or ten minutes passed."""
    monkeypatch.setattr(fetchers, "time", CLOCK)

    def go(
        answer: Callable[[FetchRequest], BrokerError | bytes],
        partitions: int = 1,
        refusal: HermesError | None = None,
        meanwhile: Callable[[Claim], None] = lambda claim: None,
    ) -> tuple[Broker, float]:
        CLOCK.now = 0.0
        broker = Broker(answer)
        broker.refusal, broker.meanwhile = refusal, meanwhile
        lock = threading.Condition()
        lease = Lease(1, lambda: 0.0)
        lease.until = 1.0
        claims = [Claim("t", BrokerPartition(0, n), "c-0", lock, lease) for n in range(partitions)]
        for claim in claims:
            claim.start_at(7)
            claim.committed = 7
        broker.claims = claims

        def owned(_: int) -> tuple[Sequence[Claim], int]:
            if CLOCK.now > 600:
                broker.end()
            return claims, 1 << 20

        def commit(claim: Claim, start: int) -> bool:
            broker.commits.append(start)
            claim.committed = start
            return True

        config = ConsumerConfig(group="g", zookeeper_connect="any")
        fetcher = Watched(broker, 0, ("127.0.0.1", 1), config, commit, owned, ConsumerCounters())
        try:
            assert broker.over.wait(60)
        finally:
            fetcher.stop()
            fetcher.join()
        return broker, CLOCK.now

    return go


def test_a_broker_that_answers_nothing_at_once_is_asked_as_often_as_one_that_waits(
    run: Run,
) -> None:
    broker, seconds = run(lambda _: b"")
    assert seconds >= 0.249 * (len(broker.asked) - 1)


def test_a_partition_out_of_range_for_good_is_asked_ever_rarer(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    broker, seconds = run(lambda _: OffsetOutOfRangeBrokerError("no"))
    assert seconds > 600  # ten minutes passed first
    assert len(broker.asked) < 600 / 5 + 10
    assert len(caplog.records) <= 3
    assert broker.commits == [0]


def test_a_seek_counts_though_the_search_for_another_start_ends_later(run: Run) -> None:
    def answer(request: FetchRequest) -> BrokerError | bytes:
        return OffsetOutOfRangeBrokerError("no") if request.offset == 7 else b""

    broker, _ = run(answer, meanwhile=lambda claim: claim.start_at(500))
    assert {each.offset for asked in broker.asked[1:] for each in asked} == {500}


def test_one_bad_partition_does_not_slow_the_others(run: Run) -> None:
    sets = encode_message_set([b"x"])

    def answer(request: FetchRequest) -> BrokerError | bytes:
        return WrongPartitionError("none") if request.partition == 1 else sets

    broker, seconds = run(answer, 2)
    bad = sum(each.partition == 1 for asked in broker.asked for each in asked)
    good = sum(each.partition == 0 for asked in broker.asked for each in asked)
    assert good >= ENOUGH - 1
    assert bad <= 3
    assert seconds < 1


def test_a_partition_that_may_not_be_read_is_asked_for_once_and_the_others_go_on(run: Run) -> None:
    sets = encode_message_set([b"x"])
    refusal = NotAuthorizedError("not you")

    def answer(request: FetchRequest) -> BrokerError | bytes:
        return refusal if request.partition == 1 else sets

    broker, _ = run(answer, 2)
    assert sum(each.partition == 1 for asked in broker.asked for each in asked) == 1
    assert [each.failure for each in broker.claims] == [None, refusal]


@pytest.mark.parametrize("kind", [NotAuthenticatedError, NotAuthorizedError, BrokerNotTrustedError])
def test_a_broker_that_refuses_its_client_is_asked_once_and_the_streams_learn_of_it(
    run: Run, kind: type[HermesError], caplog: pytest.LogCaptureFixture
) -> None:
    broker, _ = run(lambda _: b"", 3, kind("not you"))
    assert len(broker.asked) == 1
    assert [str(each.failure) for each in broker.claims] == ["not you"] * 3
    assert len(caplog.records) == 1


def test_a_broker_that_is_out_of_reach_is_asked_again(run: Run) -> None:
    broker, _ = run(lambda _: b"", 1, BrokerNotReachedError("restarting"))
    assert len(broker.asked) > 100
    assert broker.claims[0].failure is None


def test_what_was_fetched_is_read_before_an_offset_out_of_range_is_reset(run: Run) -> None:
    sets = encode_message_set([b"x"])

    def answer(request: FetchRequest) -> BrokerError | bytes:
        return sets if request.offset == 7 else OffsetOutOfRangeBrokerError("no")

    broker, _ = run(answer)
    (claim,) = broker.claims
    assert broker.commits == []
    with claim.lock:
        message = claim.take()
        assert message is not None
        assert message.message == b"x"
        assert not claim.wants_bytes(1 << 20, 1 << 20)
        claim.finish()
        assert claim.take() is None
    assert claim.wants_bytes(1 << 20, 1 << 20)
    assert (claim.finished, claim.fetch_offset) == (18, 18)
