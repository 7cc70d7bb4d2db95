"""A leader's side of copying: when a follower's request is answered, and with what."""

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.errors import StorageError
from hermes.kafka.replicas.fetches import (
    Answered,
    FollowerRequest,
    Place,
    Wanted,
    decode_answers,
)
from hermes.kafka.replicas.serving import Serving
from hermes.protocol.kafka_errors import Code
from hermes.replication.messages import Answer, Records, Refused, ReplicaFetch
from hermes.server.clients import Client
from hermes.server.outcomes import CloseConnection, DeferredResponse
from hermes.server.sends import FileSend
from hermes.storage import NotInMemoryError, ToldSources

FOLLOWER = 2
LIFE = 77


class Copy:
    """Has `end` messages, of one byte each."""

    def __init__(self, number: int) -> None:
        self.place: Place = UUID(int=5).bytes, number
        self.end = 0
        self.high_watermark = 0
        self.verdict: Answer | None = None
        self.error: StorageError | None = None
        self.judged: list[ReplicaFetch] = []
        self.told: ToldSources | None = None
        self.delayed = 0.0
        self.refreshed = 0
        self.is_cold = False

    def judge(self, fetch: ReplicaFetch, answered_at: float) -> Answer | None:
        self.judged.append(fetch)
        self.answered_at = answered_at
        return self.verdict

    def has_after(self, fetch: ReplicaFetch) -> bool:
        return fetch.offset < self.end or self.verdict is not None

    def refresh(self, fetch: ReplicaFetch, answered_at: float) -> None:
        self.refreshed += 1

    def delay(self, fetch: ReplicaFetch) -> float:
        return self.delayed

    def answer(
        self, fetch: ReplicaFetch, max_bytes: int, *, resident: bool
    ) -> tuple[Answer, bytes]:
        if resident and self.is_cold:
            raise NotInMemoryError
        if self.error is not None:
            raise self.error
        if self.verdict is not None:
            return self.verdict, b""
        return Records(self.high_watermark, 0), bytes(min(self.end - fetch.offset, max_bytes))

    def warm(self, fetch: ReplicaFetch, max_bytes: int) -> "Deferred[None]":
        self.warming: Deferred[None] = Deferred()
        return self.warming

    def sources(self, fetch: ReplicaFetch, size_bytes: int) -> ToldSources | None:
        return self.told if size_bytes or fetch.wants_sources else None

    def is_told(self, fetch: ReplicaFetch) -> bool:
        return fetch.high_watermark >= self.high_watermark


class Bench:
    def __init__(self) -> None:
        self.clock = Clock()
        self.copies = {copy.place: copy for copy in (Copy(0), Copy(1))}
        self.may = True
        self.serving = Serving(self.clock, self.copies.get, lambda client: self.may)
        self.client = Client("a follower")
        self.session = self.epoch = 0
        self.known = 0  # what of each partition the follower knows to be committed

    @property
    def first(self) -> Copy:
        return next(iter(self.copies.values()))

    def ask(self, *offsets: tuple[Copy, int], forgotten: Any = (), **others: Any) -> Any:
        """Send a request; its response, or what is awaited for it."""
        wanted = [Wanted(copy.place, 3, offset, 2, self.known) for copy, offset in offsets]
        request = FollowerRequest(
            FOLLOWER, LIFE, self.session, self.epoch, 500, 1 << 20, wanted, forgotten
        )._replace(**others)
        data = request.encode().encode(7)[4:]
        frame = SimpleNamespace(
            data=data, body=10 + int.from_bytes(data[8:10]), correlation_id=7, version=18
        )
        outcome = self.serving.serve(frame, self.client)
        if request.session_epoch == self.epoch:
            self.epoch += 1
        return outcome

    def read(self, response: Any) -> tuple[Code, list[Answered]]:
        if isinstance(response, DeferredResponse):
            assert response.is_known
            response = response.response
        if isinstance(response, FileSend):
            response = b"".join(response._parts)  # type: ignore[arg-type]
        code, self.session, answered = decode_answers(response[9:])
        return code, list(answered)

    def turn(self, seconds: float = 0.0) -> None:
        self.clock.advance(seconds)
        self.clock.advance(0)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_what_is_there_is_sent_at_once(bench: Bench) -> None:
    bench.first.end = 3
    code, (answered,) = bench.read(bench.ask((bench.first, 1)))
    assert (code, answered.place, len(answered.data)) == (Code.NONE, bench.first.place, 2)


def test_a_response_is_full_however_many_it_is_about(bench: Bench) -> None:
    first, second = bench.copies.values()
    first.end = second.end = 1 << 23
    for asked, sizes in (
        ([(first, 0)], [4 << 20]),
        ([(first, 0), (second, 0)], [1 << 20, 3 << 20]),
    ):
        _, answered = bench.read(bench.ask(*asked))
        assert [len(each.data) for each in answered] == sizes


def test_a_request_waits_for_an_append(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    assert not waiting.is_known
    bench.first.end = 2
    bench.serving.changed(bench.first.place)
    bench.first.end = 4  # in the same turn
    bench.turn()

    _, (answered,) = bench.read(waiting)
    assert len(answered.data) == 4


def test_the_next_request_ends_the_wait(bench: Bench) -> None:
    first, second = bench.copies.values()
    waiting = bench.ask((first, 0))
    bench.session = 1
    again = bench.ask((second, 0))

    assert bench.read(waiting) == (Code.NONE, [])
    assert not again.is_known
    first.end = 1  # of which nothing new was said: it still waits
    bench.serving.changed(first.place)
    bench.turn()
    _, (answered,) = bench.read(again)
    assert answered.place == first.place


def test_what_is_throttled_is_sent_later(bench: Bench) -> None:
    bench.first.end, bench.first.delayed = 3, 0.2
    assert bench.read(bench.ask((bench.first, 0))) == (Code.NONE, [])
    waiting = bench.ask()
    bench.turn()
    assert not waiting.is_known
    bench.first.delayed = 0.0
    bench.turn(0.25)
    _, (answered,) = bench.read(waiting)
    assert len(answered.data) == 3


def test_an_idle_wait_ends_in_time(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.turn(0.6)
    assert bench.read(waiting) == (Code.NONE, [])


def test_each_wait_has_all_of_its_time(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.turn(0.3)
    bench.session = 1  # which the answer will say
    again = bench.ask((bench.first, 0))
    assert waiting.is_known
    bench.turn(0.4)
    assert not again.is_known
    bench.turn(0.2)
    assert bench.read(again) == (Code.NONE, [])


def test_a_new_watermark_is_told_when_the_wait_ends(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.first.high_watermark = 5
    bench.turn(0.6)
    _, (answered,) = bench.read(waiting)
    assert answered.answer == Records(5, 0)

    # It was being mended, say: what it hears then doesn't count.
    again = bench.ask((bench.first, 0))
    bench.turn(0.6)
    assert [each.answer for each in bench.read(again)[1]] == [Records(5, 0)]

    bench.known = 5
    last = bench.ask((bench.first, 0))
    bench.turn(0.6)
    assert bench.read(last) == (Code.NONE, [])


def test_a_verdict_is_sent_at_once(bench: Bench) -> None:
    bench.first.verdict = Refused(Code.FENCED_LEADER_EPOCH)
    _, (answered,) = bench.read(bench.ask((bench.first, 0)))
    assert answered.answer == bench.first.verdict


def test_who_waits_hears_that_the_leader_leads_no_more(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.first.verdict = Refused(Code.NOT_LEADER_OR_FOLLOWER)
    bench.serving.changed(bench.first.place)
    bench.turn()
    _, (answered,) = bench.read(waiting)
    assert answered.answer == bench.first.verdict


def test_what_cannot_be_read_is_refused(bench: Bench) -> None:
    bench.first.end, bench.first.error = 1, StorageError("the disk failed")
    _, (answered,) = bench.read(bench.ask((bench.first, 0)))
    assert answered.answer == Refused(Code.KAFKA_STORAGE_ERROR)


def test_a_partition_that_is_not_here_is_refused(bench: Bench) -> None:
    _, (answered,) = bench.read(bench.ask((Copy(9), 0)))
    assert isinstance(answered.answer, Refused)


def test_what_is_forgotten_counts_no_more(bench: Bench) -> None:
    first, second = bench.copies.values()
    bench.ask((first, 0), (second, 0))
    bench.session = 1
    waiting = bench.ask(forgotten=[first.place])
    first.end = 1
    bench.serving.changed(first.place)
    bench.turn()
    assert not waiting.is_known
    before = first.refreshed
    bench.turn(0.6)
    bench.ask()
    assert first.refreshed == before
    assert second.refreshed


@pytest.mark.parametrize(
    "others", [{"session": 5}, {"session_epoch": 9}, {"life": 78}, {"broker_id": 3}]
)
def test_a_session_that_is_not_known_is_refused(bench: Bench, others: dict[str, int]) -> None:
    bench.ask((bench.first, 0))
    bench.session = 1
    code, _ = bench.read(bench.ask(**others))
    assert code == Code.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_that_begins_again_forgets_the_one_before(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.epoch = 0
    again = bench.ask()
    assert bench.read(waiting) == (Code.NONE, [])
    bench.first.end = 1
    bench.serving.changed(bench.first.place)
    bench.turn()
    assert not again.is_known


def test_only_who_may_copies(bench: Bench) -> None:
    bench.may = False
    code, _ = bench.read(bench.ask((bench.first, 0)))
    assert code == Code.CLUSTER_AUTHORIZATION_FAILED
    assert not bench.first.judged


def test_what_cannot_be_understood_closes_the_connection(bench: Bench) -> None:
    frame = SimpleNamespace(data=b"\0\1\0\x12\0\0\0\7\xff\xff\0\0", body=10, correlation_id=7)
    with pytest.raises(CloseConnection):
        bench.serving.serve(frame, bench.client)


def test_a_lost_follower_is_missed(bench: Bench) -> None:
    bench.ask((bench.first, 0))
    assert bench.serving.followers == {FOLLOWER}
    bench.client.has_left = True
    assert bench.serving.followers == set()


def test_what_a_follower_had_heard_when_it_asked_is_known(bench: Bench) -> None:
    """It may have asked before it got the last answer, but not before the one before that."""
    bench.first.end = 9
    for second in range(1, 5):
        bench.read(bench.ask((bench.first, second)))
        assert bench.first.answered_at == (second - 3 if second > 2 else float("-inf"))
        bench.turn(1.0)


def test_a_stop_answers_who_waits(bench: Bench) -> None:
    waiting = bench.ask((bench.first, 0))
    bench.serving.stop()
    assert waiting.is_known
    assert not bench.clock.getDelayedCalls()


def test_what_is_not_in_memory_is_looked_up_in_a_thread_and_others_go_first(bench: Bench) -> None:
    cold, warm = bench.copies.values()
    cold.is_cold, cold.end, warm.end = True, 5, 3
    _, answered = bench.read(bench.ask((cold, 0), (warm, 0)))
    assert [each.place for each in answered] == [warm.place]
    waiting = bench.ask((warm, 3))
    bench.turn()
    assert not waiting.is_known
    cold.warming.callback(None)  # what was read may be gone from memory again: it is read anyway
    bench.turn()
    _, (answer,) = bench.read(waiting)
    assert (answer.place, len(answer.data)) == (cold.place, 5)
    # Of what comes after that nobody knows yet.
    cold.end = 9
    waiting = bench.ask((cold, 5))
    assert bench.read(waiting)[1] == []
