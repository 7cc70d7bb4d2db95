"""Where topics come from and what mirrors tell, on both servers: kept, read and shown."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from hermes.cli import program
from hermes.coordination.layout import MIRRORS
from hermes.coordination.mirrors import MirroredPartition, MirrorProcess, read_mirrors
from hermes.coordination.origins import (
    ORIGINS,
    TreeOrigins,
    add_origins,
    forget_origins,
    list_origins,
    read_origins,
    remove_origins,
)
from hermes.coordination.sessions import Session
from hermes.errors import InvalidNodeError
from hermes.mirror.loop_guard import LoopGuard

Run = Callable[..., Result]
MakeSession = Callable[..., Session]


@pytest.fixture
def run(connect: str) -> Run:
    def invoke(*arguments: str) -> Result:
        env = {"HERMES_ZOOKEEPER": connect}
        return CliRunner().invoke(program, ["mirror", *arguments], env=env)

    return invoke


@pytest.fixture
def session(connect: str, make_session: MakeSession) -> Session:
    return make_session(connect)


def process(name: str = "west", **more: Any) -> MirrorProcess:
    row = MirroredPartition("far", "clicks", "0-3", "far.clicks", 100, 1124, 512.0)
    figures = {
        "host": "h",
        "pid": 7,
        "started_ms": 0,
        "time_ms": time.time_ns() // 1_000_000,
        "sources": {"far": "id"},
        "messages": 5,
        "mirrored_bytes": 2048,
        "rate_bytes": 512.0,
        "lag_bytes": 1024,
        "count": 1,
        "partitions": (row,),
    }
    return MirrorProcess(name, "h-1-aa", **{**figures, **more})


def test_a_mirror_is_shown_as_long_as_its_process_lives(
    connect: str, make_session: MakeSession, session: Session, run: Run
) -> None:
    own = make_session(connect)
    told = process()
    own.create_ephemeral(told.path, told.format())
    assert read_mirrors(session) == ({"west": [told]}, [])
    shown = run("status")
    assert (shown.exit_code, shown.stderr) == (0, "")
    head, names, row = shown.stdout.splitlines()
    assert head.startswith("mirror west from far: h-1-aa, pid 7, since 1970-01-01T00:00:00.000Z")
    assert head.endswith(": 5 messages, 2.0 KiB, 512 B/s, 1.0 KiB behind")
    assert names.split()[:3] == ["SOURCE", "TOPIC", "PARTITION"]
    assert " ".join(row.split()) == "far clicks 0-3 far.clicks 100 1124 1024 512 -"
    as_json = json.loads(run("status", "--json").stdout)
    assert as_json["partitions"][0]["target_topic"] == "far.clicks"
    assert run("status", "west").stdout.startswith("mirror west")
    other = run("status", "east")
    assert (other.exit_code, other.stderr) == (
        1,
        "hermes: there is no mirror 'east' (west)\n",
    )
    own.stop()
    gone = run("status")
    assert (gone.exit_code, gone.stderr) == (1, "hermes: mirror west: no process runs\n")


def test_there_may_be_none(run: Run) -> None:
    shown = run("status")
    assert (shown.exit_code, shown.stdout) == (0, "no mirror writes to this cluster\n")


def test_what_is_wrong_is_said(session: Session, run: Run) -> None:
    row = MirroredPartition("far", "t", "0-0", "t", 0, None, 0.0, "no room")
    bad = process(time_ms=1, partitions=(row,), errors={"far": "down"}, refused={"far/x": "a loop"})
    session.create_ephemeral(bad.path, bad.format())
    session.put(f"{MIRRORS}/west/torn", b"{")
    shown = run("status")
    assert shown.exit_code == 1
    lines = shown.stderr.splitlines()
    assert lines[0].startswith("hermes: /mirrors/west/torn: expected what a mirror says")
    assert "h-1-aa has said nothing for" in lines[1]
    assert lines[2:] == [
        "hermes: mirror west: far: down",
        "hermes: mirror west: far/x is refused: a loop",
        "hermes: mirror west: far t 0-0: no room",
    ]


def test_origins_are_kept_and_forgotten(session: Session, run: Run) -> None:
    assert read_origins(session, "t") == {}
    assert add_origins(session, "t", {"A": "m"}) == ["A"]
    assert add_origins(session, "t", {"A": "other", "B": "n"}) == ["B"]
    assert add_origins(session, "u", {"A": "m"}) == ["A"]
    assert read_origins(session, "t") == {"A": "m", "B": "n"}
    remove_origins(session, "t", ["B"])
    remove_origins(session, "u", ["A"])
    assert list_origins(session) == {"t": {"A": "m"}}
    assert run("origins").stdout.split() == ["TOPIC", "CLUSTER", "MIRROR", "t", "A", "m"]
    assert run("origins", "--forget", "t").stdout == "forgotten t\n"
    assert "comes from nowhere else" in run("origins", "--forget", "t").stderr
    assert not forget_origins(session, "t")
    session.put(f"{ORIGINS}/t", b'{"origins": []}')
    with pytest.raises(InvalidNodeError, match=f"{ORIGINS}/t: expected"):
        add_origins(session, "t", {"A": "m"})
    assert run("origins").exit_code == 1


def test_many_may_add_at_once(connect: str, make_session: MakeSession) -> None:
    sessions = [make_session(connect) for _ in range(4)]
    threads = [
        threading.Thread(target=add_origins, args=(each, "t", {f"{n}": "m"}))
        for n, each in enumerate(sessions)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(read_origins(sessions[0], "t")) == {"0", "1", "2", "3"}


def test_a_circle_of_three_is_refused(connect: str, make_session: MakeSession) -> None:
    a, b, c = (TreeOrigins(make_session(f"{connect}/{name}")) for name in "abc")
    assert LoopGuard("ab", "A", "B", a, b).admit("t", "t") == ""
    assert LoopGuard("bc", "B", "C", b, c).admit("t", "t") == ""
    assert "comes from the target cluster A" in LoopGuard("ca", "C", "A", c, a).admit("t", "t")
    assert "comes from the target cluster A" in LoopGuard("ba", "B", "A", b, a).admit("t", "t")
