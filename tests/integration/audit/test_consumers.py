"""Groups that are audited: what they have finished with, and what they are given twice."""

import os
import signal
import subprocess
import sys
import time

import pytest

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.consumers import AuditedConnector, UnstampedDecoder
from hermes.client import Producer, ProducerConfig
from hermes.client.groups import Consumer, ConsumerConfig
from hermes.errors import ConsumerTimeoutError
from hermes.protocol.stamps import Stamper
from hermes.testing import running_broker


@pytest.fixture(scope="module")
def broker():
    with running_broker(settings={"coordination": "embedded", "num_partitions": 3}) as running:
        yield running


def send(broker, topic, count, **settings):
    config = ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": 0.2},
        **settings,
    )
    with Producer(config) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def group(broker, name, **settings):
    return ConsumerConfig(
        group=name,
        zookeeper_connect=broker.zookeeper_connect,
        **({"consumer_timeout": "1s"} | settings),
    )


def read(broker, topic, name, most=None, **settings):
    """Read as a member that is audited, up to the end or until there were so many."""
    with AuditedConnector(group(broker, name, **settings), window_ms=200) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        messages = []
        try:
            for each in stream:
                messages.append(each.message)
                if len(messages) == most:
                    break
        except ConsumerTimeoutError:
            pass
        return messages


def judged(broker, topic, tier):
    """The windows of a tier, once they are over."""
    address = ClusterAddress("main", broker.zookeeper_connect)
    deadline = time.monotonic() + 60
    with Audit([address], grace_seconds=0, window_ms=200) as auditing:
        while True:
            report = auditing.look(["producers", tier], [topic])
            states = {each.state for each in report.windows}
            if states and "open" not in states:
                return report
            assert time.monotonic() < deadline, report


def test_a_group_that_has_finished_all_is_complete(broker):
    send(broker, "whole", 3000)
    messages = read(broker, "whole", "whole")
    assert sorted(map(int, messages)) == list(range(3000))
    report = judged(broker, "whole", "group:whole")
    assert {each.state for each in report.windows} == {"complete"}
    assert sum(each.found for each in report.windows) == 3000


def test_members_go_on_where_others_stopped(broker):
    send(broker, "handed", 3000)
    first = read(broker, "handed", "handed", 1234)
    rest = read(broker, "handed", "handed")
    # The last one of the first was in its hands, and so is delivered again.
    assert len(first) + len(rest) == 3001
    report = judged(broker, "handed", "group:handed")
    assert {each.state for each in report.windows} == {"complete"}


def test_offsets_are_not_committed_before_the_report(broker, monkeypatch):
    send(broker, "unreported", 100)
    with monkeypatch.context() as patch:
        patch.setattr("hermes.audit.counting.TierCounter._publish", lambda *_, **__: False)
        assert len(read(broker, "unreported", "unreported")) == 100
    assert len(read(broker, "unreported", "unreported")) == 100


def test_what_a_group_is_given_again_is_over(broker):
    send(broker, "again", 500)
    assert len(read(broker, "again", "again", auto_commit=False)) == 500
    assert len(read(broker, "again", "again", auto_commit=False)) == 500
    report = judged(broker, "again", "group:again")
    assert {each.state for each in report.windows} == {"over"}
    # Of each partition the last message was in the application's hands when its time was up.
    assert 990 <= sum(each.found for each in report.windows) <= 1000


def test_what_a_group_has_not_read_is_behind_or_short(broker):
    send(broker, "unread", 500)
    assert len(read(broker, "unread", "unread", 200)) == 200
    report = judged(broker, "unread", "group:unread")
    assert {each.state for each in report.windows} & {"behind", "short"}
    assert sum(each.found for each in report.windows) == 199


def test_a_member_that_is_killed_leaves_no_difference(broker):
    send(broker, "killed", 20_000)
    code = """
import sys
from hermes.audit.consumers import AuditedConnector
from hermes.client.groups import ConsumerConfig
config = ConsumerConfig(group="killed", zookeeper_connect=sys.argv[1],
    auto_commit_interval="200ms", zookeeper_session_timeout="2s")
connector = AuditedConnector(config, window_ms=200)
(stream,) = connector.create_message_streams({"killed": 1})["killed"]
for number, message in enumerate(stream):
    if number == 5000:
        print("going", flush=True)
"""
    with subprocess.Popen(
        [sys.executable, "-c", code, broker.zookeeper_connect], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"going\n"
        os.kill(process.pid, signal.SIGKILL)
    read(broker, "killed", "killed", zookeeper_session_timeout="2s", consumer_timeout="8s")
    report = judged(broker, "killed", "group:killed")
    assert sum(each.short for each in report.windows) == 0


def test_decoders_get_what_was_sent(broker):
    send(broker, "decoded", 3)
    for settings in ({}, {"decoder": "json"}):
        values = read(broker, "decoded", f"decoded{len(settings)}", **settings)
        assert sorted(map(int, values)) == [0, 1, 2]
    plain = group(broker, "plain", decoder="audit", decoder_options={"decoder": "string"})
    with Consumer.create(plain) as connector:
        (stream,) = connector.create_message_streams({"decoded": 1})["decoded"]
        assert {next(stream).message for _ in range(3)} == {"0", "1", "2"}


def test_the_decoder_leaves_what_has_no_stamp():
    (stamped,) = Stamper(1, "web").stamped([b"5"], 1)
    assert [UnstampedDecoder("json").decode("t", each) for each in (stamped, b"5")] == [5, 5]
    assert UnstampedDecoder().decode("t", stamped) == b"5"
