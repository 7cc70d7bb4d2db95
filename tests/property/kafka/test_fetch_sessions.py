"""Whatever happens, who has a session is told what one without a session is told.

So is who names all partitions each time, and has a session without knowing of it.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from kafka_bench import KafkaBench
from kafka_logs import append_values
from session_consumer import SessionConsumer

from hermes.kafka import fetch_sessions
from hermes.kafka.fetching import session_fetch

PARTITIONS = 4
partitions = st.integers(0, PARTITIONS)  # one more than there are


class Sessions(RuleBasedStateMachine):
    """A consumer with a session beside one that names all of its partitions each time."""

    @initialize()
    def begin(self) -> None:
        self.directory = TemporaryDirectory()
        topics = {"new": {"format": "kafka", "partitions": PARTITIONS}}
        self.bench = KafkaBench(Path(self.directory.name), topics=topics)
        self.bench.shared.topics.create_declared("new")
        self.plain = SessionConsumer(self.bench)
        self.plain.ask({}, session_epoch=-1)
        self.consumer = SessionConsumer(self.bench)
        self.whole = SessionConsumer(self.bench)
        self.offsets: dict[int, int] = {0: 0, 1: 0}
        self.news: dict[int, int] = dict(self.offsets)
        self.forgotten: set[int] = set()

    def log(self, number: int) -> Any:
        return self.bench.shared.topics.for_produce("new", number % PARTITIONS)

    @rule(number=partitions, is_flushed=st.booleans())
    def append(self, number: int, is_flushed: bool) -> None:
        append_values(self.log(number), b"value")
        if is_flushed:
            self.flush(number)

    @rule(number=partitions)
    def flush(self, number: int) -> None:
        self.bench.flush(self.log(number))

    @rule(number=partitions)
    def delete(self, number: int) -> None:
        log = self.log(number)
        log.delete_records(log.high_watermark)
        self.bench.shared.waiting.changed("new", number % PARTITIONS)

    @rule(number=partitions, offset=st.integers(0, 6))
    def move(self, number: int, offset: int) -> None:
        self.offsets[number] = self.news[number] = offset
        self.forgotten.discard(number)

    @rule(number=partitions)
    def forget(self, number: int) -> None:
        if number in self.offsets and len(self.offsets) > 2:
            del self.offsets[number]
            self.news.pop(number, None)
            self.forgotten.add(number)

    @rule(wait_ms=st.sampled_from([0, 0, 1000]))
    def ask(self, wait_ms: int) -> None:
        self.consumer.send(self.news, self.forgotten, wait_ms=wait_ms)
        self.news, self.forgotten = {}, set()
        found = self.received(self.consumer, wait_ms)
        assert found.error_code == 0
        self.compare(found)

    @rule(wait_ms=st.sampled_from([0, 0, 1000]), is_turned=st.booleans(), level=st.booleans())
    def ask_for_all(self, wait_ms: int, is_turned: bool, level: bool) -> None:
        """Clients name them in another order each time."""
        numbers = sorted(self.offsets, reverse=is_turned)
        wanted = {each: self.offsets[each] for each in numbers}
        few = {"MANY_PARTITIONS": 1}
        with patch.multiple(fetch_sessions, **few), patch.multiple(session_fetch, **few):
            how: dict[str, Any] = {"session_epoch": -1, "isolation_level": level}
            self.whole.send(wanted, wait_ms=wait_ms, **how)
            found = self.received(self.whole, wait_ms)
        assert found == self.plain.ask(wanted, **how)

    def received(self, consumer: SessionConsumer, wait_ms: int) -> Any:
        if consumer.is_waiting:
            assert wait_ms
            self.append(0, is_flushed=True)
            if consumer.is_waiting:
                self.bench.clock.advance(2)
        self.bench.turns(consumer.transport)
        return consumer.receive()

    def compare(self, found: Any) -> None:
        whole = self.plain.ask(self.offsets, session_epoch=-1)
        records = {
            part.partition_index: part.records
            for each in found.responses
            for part in each.partitions
        }
        for topic in whole.responses:
            for part in topic.partitions:
                number = part.partition_index
                assert records.get(number, b"") == part.records
                told = part.error_code, part.high_watermark, part.log_start_offset
                assert self.consumer.known["new", number] == told

    @invariant()
    def bounded(self) -> None:
        sessions = self.bench.server.fetch_sessions
        assert sessions.used_bytes == sum(each.size_bytes for each in sessions)

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.close()
            self.directory.cleanup()


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
