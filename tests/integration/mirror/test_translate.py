"""A group moves to the cluster that its topics are mirrored to, and misses nothing."""

import json

import pytest
from click.testing import CliRunner, Result
from mirror_clusters import ClusterProcess, Clusters, eventually

from hermes.cli import program
from hermes.client import FetchRequest, SimpleConsumer
from hermes.coordination.group_state import read_group, store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session

PLACE = BrokerPartition(0, 0)


@pytest.fixture
def source(clusters: Clusters) -> ClusterProcess:
    source = clusters.cluster("source")
    for first in range(0, 500, 100):
        source.send("clicks", [b"%d" % n for n in range(first, first + 100)])
    source.send("views", [b"a view"])
    return source


def translate(source: ClusterProcess, target: ClusterProcess, *options: str) -> Result:
    arguments = ["mirror", "translate", "--from", source.connect, "-Z", target.connect]
    return CliRunner().invoke(program, [*arguments, *options])


def offset_of(source: ClusterProcess, number: int) -> int:
    with SimpleConsumer("127.0.0.1", source.port) as consumer:
        offset = 0
        for message, next_offset in consumer.fetch(FetchRequest("clicks", 0, 0, 1 << 20)):
            if message.payload == b"%d" % number:
                return offset
            offset = next_offset
    raise AssertionError(number)


def store(source: ClusterProcess, **offsets: int) -> None:
    session = Session(source.connect)
    session.start()
    store_offsets(session, "g", {(topic, PLACE): n for topic, n in offsets.items()})
    session.stop()


def test_a_group_goes_on_in_the_target(clusters: Clusters, source: ClusterProcess) -> None:
    # What is there already moves everything that is mirrored.
    target = clusters.cluster("target")
    target.send("east.clicks", [b"of its own"])
    clusters.mirror(source, target, topics={"prefix": "east."})
    eventually(lambda: target.count("east.clicks") == 501 and target.count("east.views") == 1)
    store(source, clicks=offset_of(source, 250))
    shown = translate(source, target, "-g", "g", "--to-group", "h", "--commit", "--json")
    assert shown.exit_code == 0, shown.stderr
    row = json.loads(shown.stdout)
    assert (row["topic"], row["partition"]) == ("east.clicks", "0-0")
    assert (row["unread"], row["ahead"]) == (0, 0)
    with SimpleConsumer("127.0.0.1", target.port) as consumer:
        request = FetchRequest("east.clicks", 0, row["offset"], 1 << 20)
        read = [message.payload for message, _ in consumer.fetch(request)]
    assert read == [b"%d" % number for number in range(250, 500)]
    session = Session(target.connect)
    session.start()
    assert read_group(session, "h").offsets == {("east.clicks", PLACE): row["offset"]}
    session.stop()


def test_what_is_not_mirrored_is_said_and_nothing_is_stored(
    clusters: Clusters, source: ClusterProcess
) -> None:
    target = clusters.cluster("target")
    clusters.mirror(source, target, whitelist="clicks")
    eventually(lambda: target.count("clicks") == 500)
    store(source, clicks=0, views=0)
    shown = translate(source, target, "-g", "g", "--commit")
    assert shown.exit_code == 1
    assert shown.stderr == "hermes: views 0-0: nothing of it is in the target\n"
    assert shown.stdout.splitlines()[1].split() == ["clicks", "0-0", "0", "0", "0"]
    session = Session(target.connect)
    session.start()
    assert session.children("/consumers") == []
    session.stop()
    nobody = translate(source, target, "-g", "nobody")
    assert "there is no group 'nobody'" in nobody.stderr
