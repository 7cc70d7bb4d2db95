"""A broker compacts its logs by itself, at a bounded rate, and stops when it does."""

from pathlib import Path
from typing import Any

import pytest
from kafka_logs import append_batch, read_records, sent
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, settings
from twisted.internet.defer import maybeDeferred
from twisted.internet.task import Clock

from hermes.broker.maintenance import COMPACTION_BYTES_PER_SECOND, Maintenance
from hermes.config.broker import BrokerConfig
from hermes.config.origins import DEFAULT, TOPIC_ENTRY, settings_in_force
from hermes.config.topic import TopicConfig, TopicSettings, check_format
from hermes.errors import ConfigError
from hermes.interfaces import SegmentInfo
from hermes.protocol.record_batches import decode_header
from hermes.protocol.records import Record
from hermes.server.checks import retention_policy
from hermes.storage import DataDirectory, Log, compaction
from hermes.storage.compaction import STEP_BYTES


class Compacting:
    def __init__(self, path: Path) -> None:
        self.directory = DataDirectory(
            path, lambda topic: settings(1 << 20, format="kafka"), UnsyncedFiles()
        )
        self.directory.open(NOW_MS)
        self.clock = Clock()
        self.steps = 0
        self.maintenance = Maintenance(
            self.directory,
            lambda topic: None,  # type: ignore[arg-type, return-value]
            lambda: NOW_MS,
            self.clock.seconds,
            self.in_thread,
            compacts=lambda topic: (topic == "compacted", 1000),
            call_later=self.clock.callLater,
        )

    def in_thread(self, function, *args):  # type: ignore[no-untyped-def]
        self.steps += 1
        return maybeDeferred(function, *args)

    def fill(self, topic: str):  # type: ignore[no-untyped-def]
        log = self.directory.create(topic, 0)
        for number in range(40):
            value = b"%d" % number + b"x" * 100_000
            append_batch(log, sent([Record(0, NOW_MS, b"k%d" % (number % 3), value)]))
        log.flush()
        return log


def test_a_brokers_logs_share_what_it_remembers_of_producers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hermes.broker.maintenance.MOST_OF_ALL", 10)
    kept = Compacting(tmp_path)
    known = []
    for topic, count in (("few", 2), ("many", 30)):
        log = kept.directory.create(topic, 0)
        for producer in range(count):
            data = sent([b"x"])
            header = decode_header(data)._replace(producer_id=producer, producer_epoch=0)
            assert log.producers is not None
            log.producers.note([header._replace(base_sequence=0)], producer)
        known.append(log.producers)
    kept.maintenance.bound_producers()
    assert [len(each or ()) for each in known] == [2, 8]


def test_only_topics_that_want_it_are_compacted_a_step_at_a_time(tmp_path: Path) -> None:
    compacting = Compacting(tmp_path)
    log, other = compacting.fill("compacted"), compacting.fill("other")
    ended: list[object] = []
    compacting.maintenance.compact().addBoth(ended.append)
    seconds = STEP_BYTES / COMPACTION_BYTES_PER_SECOND
    pauses = 0
    while not ended:
        before = compacting.steps
        compacting.clock.advance(seconds)
        assert compacting.steps <= before + 2
        pauses += 1
    assert ended == [None]
    assert pauses >= 4
    assert len(read_records(other)) == 40
    records = read_records(log)
    assert len(records) < 20
    assert {each.key for each in records} == {b"k0", b"k1", b"k2"}
    assert compacting.maintenance.compactions == 1
    assert compacting.maintenance.compacted_bytes > 10 * 100_000
    compacting.maintenance.compact().addBoth(ended.append)
    assert ended == [None, None]
    assert compacting.maintenance.compactions == 1
    compacting.directory.close()


def test_a_log_that_cannot_be_compacted_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacting = Compacting(tmp_path)
    for topic in ("compacted", "other"):
        compacting.fill(topic)
    compacting.maintenance._compacts = lambda topic: (True, 1000)
    first, *_ = compacting.directory.logs.values()

    def is_due(log: Log, compacted_to: int) -> bool:
        if log is first:
            raise ZeroDivisionError("a fault")
        return compaction.is_due(log, compacted_to)

    monkeypatch.setattr("hermes.broker.maintenance.is_due", is_due)
    ended: list[object] = []
    compacting.maintenance.compact().addBoth(ended.append)
    while not ended:
        compacting.clock.advance(1.0)
    assert compacting.maintenance.compactions == 1
    compacting.directory.close()


def test_a_stop_ends_it(tmp_path: Path) -> None:
    compacting = Compacting(tmp_path)
    log = compacting.fill("compacted")
    before = read_records(log)
    ended: list[object] = []
    compacting.maintenance.compact().addBoth(ended.append)
    assert ended == []
    compacting.maintenance.stop()
    assert ended == [None]
    assert compacting.clock.getDelayedCalls() == []
    assert read_records(log) == before
    assert compacting.directory.close()
    assert not list((tmp_path / "compacted-0").glob("*.cleaned"))


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"cleanup_policy": "compact"}, "have no keys"),
        ({"message_timestamp_type": "LogAppendTime"}, "have no timestamps"),
        ({"max_batch_bytes": 5}, "come in no batches"),
    ],
)
def test_what_needs_record_batches_is_refused_without_them(
    given: dict[str, Any], text: str
) -> None:
    entry = TopicConfig(**given)
    with pytest.raises(ConfigError, match=text) as refused:
        check_format(entry, composed(**given))
    assert [refused.value.key] == list(given)
    check_format(entry, composed(format="kafka", **given))


def test_what_is_only_compacted_has_no_retention_but_what_is_set_for_later() -> None:
    check_format(TopicConfig(cleanup_policy="delete"), composed(cleanup_policy="delete"))
    hour_ago = NOW_MS - 3_600_000
    old = SegmentInfo(0, 1000, hour_ago, False), SegmentInfo(1000, 1000, hour_ago, True)
    for policy, expired in (("compact", 0), ("compact,delete", 2), ("delete", 2)):
        given = TopicConfig(cleanup_policy=policy, format="kafka", retention_time_ms=60_000)
        config = BrokerConfig(broker_id=0, log_dir=Path("/x"), topics={"t": given})
        shown = {each.name: (each.value, each.origin) for each in settings_in_force(config, "t")}
        assert shown["retention_time"] == ("1m", TOPIC_ENTRY), policy
        assert shown["retention_policy"] == ("time-and-size", DEFAULT), policy
        assert retention_policy(config, "t", {}).expired(old, NOW_MS) == expired, policy


def composed(**given: Any) -> TopicSettings:
    config = BrokerConfig(broker_id=0, log_dir=Path("/x"), topics={"t": TopicConfig(**given)})
    return config.topic("t")
