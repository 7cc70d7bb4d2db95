"""The commands about consumer groups, on both servers and a real broker."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes.cli import program
from hermes.client import MessageSet, Producer, ProducerConfig, SyncProducer
from hermes.client.groups import Connector, Consumer, ConsumerConfig
from hermes.testing import running_broker

Run = Callable[..., Result]


@pytest.fixture
def run(connect: str) -> Run:
    runner = CliRunner()

    def invoke(*arguments: object, **options: Any) -> Result:
        env = {"HERMES_ZOOKEEPER": connect}
        return runner.invoke(program, [str(each) for each in arguments], env=env, **options)

    return invoke


@pytest.fixture
def clicks(connect: str) -> Iterator[None]:
    """A broker with 10 messages of 11 bytes in the one partition of a topic."""
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "flush_interval": "2ms",
    }
    with running_broker(None, settings):
        with Producer(ProducerConfig(zookeeper_connect=connect, acks="flushed")) as producer:
            producer.send("clicks", [b"%d" % number for number in range(10)])
        yield


def member(connect: str) -> Connector:
    config = ConsumerConfig(group="g", zookeeper_connect=connect, consumer_id="me")
    return Consumer.create(config)


@pytest.fixture
def active(clicks: None, connect: str) -> Iterator[Connector]:
    """Group g with a member that has read 4 messages."""
    with member(connect) as connector:
        (stream,) = connector.create_message_streams({"clicks": 1})["clicks"]
        for _ in range(4):
            next(stream)
        connector.commit_offsets()
        yield connector


def test_a_group_is_described(active: Connector, run: Run) -> None:
    assert run("groups", "list").stdout.split() == ["GROUP", "MEMBERS", "g", "1"]
    shown = run("groups", "describe", "g", "--json")
    assert json.loads(shown.stdout) == {
        "group": "g",
        "members": ["me"],
        "partitions": [
            {
                "topic": "clicks",
                "partition": "0-0",
                "leader": 0,
                "offset": 44,
                "end": 110,
                "lag": 66,
                "messages": 6,
                "owner": "me-0",
            }
        ],
    }
    assert run("groups", "describe", "g").stdout.splitlines()[-1].split()[2:] == [
        "44",
        "110",
        "66",
        "6",
        "me-0",
    ]
    verified = run("verify-rebalance", "g")
    assert (verified.exit_code, verified.stdout) == (
        0,
        "1 partitions are owned as they should be\n",
    )


def test_owners_that_are_wrong_are_listed(
    clicks: None, connect: str, run: Run, make_session: Any
) -> None:
    session = make_session(connect)
    session.create_ephemeral("/consumers/g/ids/me", b'{ "clicks": 1 }')
    session.create_ephemeral("/consumers/g/owners/clicks/7-0", b"you-0")
    verified = run("verify-rebalance", "g")
    assert verified.exit_code == 1
    assert verified.stdout.splitlines() == [
        "clicks 0-0: not owned, should be me-0",
        "clicks 7-0: owned by you-0, should not be",
    ]


def test_a_group_with_members_is_not_changed(active: Connector, run: Run, tmp_path: Path) -> None:
    refused = run("groups", "reset", "g", "--to", "earliest")
    assert (refused.exit_code, refused.stderr) == (
        1,
        "hermes: group 'g' has members (me): stop them first; one that was killed stays a member "
        "until its session has timed out\n",
    )
    exported = run("export-offsets")
    assert exported.stdout == "/consumers/g/offsets/clicks/0-0:44\n"
    (tmp_path / "offsets").write_text(exported.stdout)
    assert "has members" in run("import-offsets", tmp_path / "offsets").stderr


@pytest.mark.parametrize(
    ("where", "offset"),
    [
        ("earliest", 0),
        ("latest", 110),
        ("22", 22),
        ("+12", 55),
        ("-12", 22),
        ("-1000", 0),
        ("@1000", 0),
    ],
)
def test_an_inactive_group_is_reset(active: Connector, run: Run, where: str, offset: int) -> None:
    active.shutdown()
    done = run("groups", "reset", "g", "--to", where, "--json")
    row = {"topic": "clicks", "partition": "0-0", "before": 44, "now": offset}
    assert json.loads(done.stdout) == row, done.stderr
    assert run("export-offsets", "g").stdout == f"/consumers/g/offsets/clicks/0-0:{offset}\n"


def test_partitions_that_nothing_was_written_to_are_reset_with_the_others(
    connect: str, run: Run
) -> None:
    settings = {
        "coordination": "zookeeper",
        "zookeeper_connect": connect,
        "num_partitions": 2,
    }
    with running_broker(None, settings) as broker:
        with SyncProducer(broker.host, broker.port) as producer:
            producer.send("clicks", 0, MessageSet.of([b"0", b"1"]).data)
        read = run("consume", "-g", "g", "-t", "clicks", "-c", "2", "-q")
        assert read.stdout == "0\n1\n", read.stderr
        done = run("groups", "reset", "g", "--to", "-5", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["before"], each["now"]) for each in rows] == [(22, 11), (0, 0)], done.stderr


@pytest.mark.parametrize(
    ("where", "complaint"),
    [
        ("12", "no message starts at 12, but one at 11; nothing was changed"),
        ("111", "offset 111 is outside the log: it holds [0, 110]"),
        ("soon", "expected earliest, latest, @TIME, an offset, +N or -N"),
    ],
)
def test_a_place_that_is_none_is_refused(
    active: Connector, run: Run, where: str, complaint: str
) -> None:
    active.shutdown()
    assert complaint in run("groups", "reset", "g", "--to", where).stderr


def test_offsets_go_out_and_in_again(active: Connector, run: Run) -> None:
    active.shutdown()
    text = "/consumers/g/offsets/clicks/0-0:11\n/consumers/new/offsets/clicks/0-1:22\n"
    assert run("import-offsets", "-", input=text).stdout == "2 offsets stored\n"
    assert run("export-offsets").stdout == text
    wrong = run("import-offsets", "-", input=text + "/consumers/g/clicks:1\n")
    assert wrong.stderr.startswith("hermes: line 3: expected /consumers/GROUP/offsets/")


def test_consuming_as_a_member_goes_on_where_the_group_is(clicks: None, run: Run) -> None:
    first = run("consume", "-g", "cli", "-t", "clicks", "-c", "3", "-q")
    assert first.stdout == "0\n1\n2\n", first.stderr
    assert run("consume", "-g", "cli", "-t", "clicks", "-c", "2", "-q").stdout == "3\n4\n"
    as_json = run("consume", "-g", "cli", "-t", "clicks", "-c", "1", "--json")
    assert json.loads(as_json.stdout)["offset"] == 55


@pytest.mark.parametrize(
    "arguments",
    [("-g", "g", "-p", "0"), ("-g", "g", "-e"), ("-g", "g", "-o", "5"), ()],
)
def test_what_does_not_go_together_is_a_usage_error(run: Run, arguments: tuple[str, ...]) -> None:
    assert run("consume", "-t", "clicks", *arguments).exit_code == 2


def test_what_is_not_there_is_a_clear_error(
    clicks: None, run: Run, connect: str, make_session: Any
) -> None:
    for command in (("groups", "describe"), ("verify-rebalance",), ("export-offsets",)):
        done = run(*command, "nobody")
        assert (done.exit_code, "there is no group 'nobody'" in done.stderr) == (1, True)
    session = make_session(connect)
    session.ensure_path("/consumers/g/offsets/clicks/0-0")
    session.set("/consumers/g/offsets/clicks/0-0", b"two")
    shown = run("groups", "describe", "g")
    assert "/consumers/g/offsets/clicks/0-0: expected a decimal number, got 'two'" in shown.stderr
    assert (shown.exit_code, len(shown.stdout.splitlines())) == (1, 2), "the rest is shown"
    assert run("export-offsets", "g").exit_code == 1
    session.ensure_path("/consumers/h/owners/clicks/rubbish")
    assert run("groups", "list").stdout.split() == ["GROUP", "MEMBERS", "g", "0", "h", "0"]
    shown = run("groups", "describe", "h")
    assert (
        "/consumers/h/owners/clicks/rubbish: expected <broker>-<partition>, got 'rubbish'"
        in shown.stderr
    )
    away = run("groups", "list", "-Z", "127.0.0.1:1", "--timeout", "0.2")
    assert (away.exit_code, "did not answer within 0.2 s" in away.stderr) == (1, True)


@pytest.mark.parametrize("command", [("groups", "list"), ("top", "--once"), ("doctor",)])
def test_a_server_that_does_not_answer_is_said_to_be_tried(
    command: tuple[str, ...], run: Run
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        done = run(*command, "-Z", address, "--timeout", "1.1")
    first, last = done.stderr.splitlines()
    assert first == f"hermes: ZooKeeper at '{address}' has not answered yet: trying for 1.1 s"
    assert f"ZooKeeper at '{address}' did not answer within 1.1 s" in last
    assert done.exit_code == 1


def test_a_group_is_deleted_when_nobody_is_in_it(
    active: Connector, run: Run, connect: str, make_session: Any
) -> None:
    refused = run("groups", "delete", "g", "--yes")
    assert (refused.exit_code, "has members (me): stop them first" in refused.stderr) == (1, True)
    active.shutdown()
    session = make_session(connect)
    session.put("/consumers/g/owners/clicks/rubbish", b"x")
    assert run("groups", "delete", "g", "--yes").stdout == "deleted g\n"
    assert session.children("/consumers") == []
    gone = run("groups", "delete", "g", "--yes")
    assert (gone.exit_code, "there is no group 'g'" in gone.stderr) == (1, True)


def test_a_broker_tells_where_its_groups_are(active: Connector, connect: str) -> None:
    settings = {"broker_id": 3, "coordination": "zookeeper", "zookeeper_connect": connect}
    with running_broker(None, settings) as broker:
        address = f"127.0.0.1:{broker.port}"
        listed = CliRunner().invoke(program, ["groups", "list", "-b", address])
        assert listed.stdout.split() == ["GROUP", "MEMBERS", "g", "1"], listed.stderr
        both = CliRunner().invoke(program, ["groups", "list", "-b", address, "-Z", connect])
        assert (both.exit_code, "exclude each other" in both.stderr) == (2, True)
        read = ["consume", "-g", "other", "-t", "clicks", "-b", address, "-c", "10", "-q"]
        assert len(CliRunner().invoke(program, read).stdout.splitlines()) == 10
    neither = CliRunner().invoke(program, ["groups", "list"])
    assert (neither.exit_code, "missing option" in neither.stderr) == (2, True)


def test_a_broker_without_coordination_says_so() -> None:
    with running_broker(None, {"coordination": "none"}) as broker:
        listed = CliRunner().invoke(program, ["groups", "list", "-b", f"127.0.0.1:{broker.port}"])
    assert (listed.exit_code, "takes no part in coordination" in listed.stderr) == (1, True)
    assert "give -k, the address of its kafka_listen" in listed.stderr


@pytest.mark.parametrize(
    "line",
    [
        b"/consumers/g/offsets/clicks/12345678901-0:7",
        b"/consumers/g/offsets/clicks/0-4294967296:7",
        b"/consumers/g/offsets/clicks/007-0:7",
        b"/consumers/g/offsets/../0-0:7",
        b"/consumers/../offsets/clicks/0-0:7",
        b"/consumers/g/offsets/clicks/0-0:" + b"9" * 5000,
        b"/consumers/g/offsets/clicks/0-0:9999999999999999999",
        b"/consumers/\xff\xfe/offsets/clicks/0-0:7",
        b"/consumers/g/offsets/cl\x1bicks/0-0:7",
        b"x" * 1_000_000,
    ],
    ids=range(10),
)
def test_a_line_that_is_no_offset_is_refused_and_nothing_stored(
    run: Run, tmp_path: Path, make_session: Any, connect: str, line: bytes
) -> None:
    good = b"/consumers/g/offsets/clicks/0-0:7\n"
    (tmp_path / "offsets").write_bytes(good + line + b"\n")
    refused = run("import-offsets", tmp_path / "offsets")
    assert refused.exit_code == 1
    assert "line 2: " in refused.stderr
    assert len(refused.stderr.splitlines()) == 1
    assert len(refused.stderr) < 500
    assert "fault of Hermes" not in refused.stderr
    assert make_session(connect).children("/consumers") == []


def test_a_stored_offset_is_never_there_without_its_value(make_session: Any, connect: str) -> None:
    session = make_session(connect)
    session.put("/consumers/g/offsets/clicks/0-0", b"7")
    made = session.get("/consumers/g/offsets/clicks/0-0")
    assert (made.value, made.version) == (b"7", 0), "made with its value, not given it later"


def test_a_member_s_costly_expression_does_not_hold_up_the_check(
    run: Run, make_session: Any, connect: str
) -> None:
    session = make_session(connect)
    session.create_ephemeral("/consumers/g/ids/evil", b"*1*(a+)+b")
    session.create_ephemeral("/brokers/topics/" + "a" * 60 + "_/0", b"1")
    checked = run("verify-rebalance", "g")
    assert (checked.exit_code, checked.stdout) == (0, "0 partitions are owned as they should be\n")
