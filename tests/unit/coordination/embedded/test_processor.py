"""What is said when: answers and events wait for the disk, sessions for their deadlines."""

import struct
from typing import Any

import pytest
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock

from hermes.coordination.embedded.commit_queue import CommitQueue
from hermes.coordination.embedded.jute import encode_buffer, encode_string, encode_vector
from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.server_sessions import LATE_SECONDS
from hermes.coordination.embedded.tree_changes import NodeWritten, SessionClosed, SessionOpened
from hermes.coordination.embedded.zookeeper_requests import ConnectRequest
from hermes.errors import RemoteProtocolError

CREATE, EXISTS, GET_DATA, PING, CLOSE = 1, 3, 4, 11, -11
EPHEMERAL = 1


def create(path: str, flags: int = 0) -> bytes:
    acl = encode_vector([entry.encode() for entry in OPEN_ACL])
    return encode_string(path) + encode_buffer(b"") + acl + struct.pack(">i", flags)


def watched(path: str) -> bytes:
    return encode_string(path) + b"\1"


def call(bench: Any, peer: Any, code: int, body: bytes = b"", xid: int = 1) -> None:
    bench.processor.handle(peer, memoryview(struct.pack(">ii", xid, code) + body))


def errors(peer: Any) -> list[int]:
    """The error codes of the answers after the connect answer."""
    return [struct.unpack_from(">i", answer, 16)[0] for answer in peer.answers[1:]]


def test_a_write_is_answered_when_it_is_on_disk(bench: Any) -> None:
    peer = bench.connect()
    bench.disk.is_slow = True
    call(bench, peer, CREATE, create("/a"))
    assert errors(peer) == []
    bench.disk.finish()
    assert errors(peer) == [0]


def test_nobody_is_told_of_what_is_not_on_disk(bench: Any) -> None:
    writer, reader = bench.connect(), bench.connect()
    call(bench, reader, EXISTS, watched("/a"))
    bench.disk.is_slow = True
    call(bench, writer, CREATE, create("/a"))
    call(bench, reader, EXISTS, watched("/a"), xid=2)
    call(bench, reader, PING, xid=-2)
    assert (errors(reader), reader.events) == ([-101], [])
    bench.disk.finish()
    assert errors(reader) == [-101, 0, 0]
    assert len(reader.events) == 1


def test_writes_gather_while_the_disk_is_busy(bench: Any) -> None:
    peer = bench.connect()
    bench.disk.is_slow = True
    for number in range(5):
        call(bench, peer, CREATE, create(f"/n{number}"))
    assert [zxid for _, zxid in bench.disk.batches] == [1, 2]
    bench.disk.finish()
    assert errors(peer) == [0]
    changes, zxid = bench.disk.batches[2]
    assert zxid == 6
    created = [each.path for each in changes if isinstance(each, NodeWritten) and each.path != "/"]
    assert created == ["/n1", "/n2", "/n3", "/n4"]
    bench.disk.finish()
    assert errors(peer) == [0] * 5


def test_after_a_failed_write_nothing_is_said_any_more(bench: Any) -> None:
    peer = bench.connect()
    bench.disk.is_slow = True
    call(bench, peer, CREATE, create("/a"))
    call(bench, peer, GET_DATA, watched("/a"))
    bench.disk.fail(OSError("no room"))
    call(bench, peer, CREATE, create("/b"))
    assert errors(peer) == []
    assert [failure.getErrorMessage() for failure in bench.failures] == ["no room"]
    assert len(bench.disk.batches) == 2


def test_what_is_said_in_answer_to_something_waits_for_its_turn(disk: Any) -> None:
    disk.is_slow = True
    queue = CommitQueue(disk.write, pytest.fail, Clock())
    said: list[str] = []
    queue.commit([SessionClosed(1)], 1)
    queue.call_after(lambda: (said.append("first"), queue.call_after(said.append, "third")))
    queue.call_after(said.append, "second")
    disk.finish()
    assert said == ["first", "second", "third"]


def test_thousands_that_wait_for_one_write_leave_turns_to_others(disk: Any) -> None:
    disk.is_slow = True
    clock = Clock()
    queue = CommitQueue(disk.write, pytest.fail, clock)
    said: list[int] = []

    def say(number: int) -> None:
        said.append(number)
        clock.rightNow += 0.001

    queue.commit([SessionClosed(1)], 1)
    for number in range(100):
        queue.call_after(say, number)
    idle: list[None] = []
    queue.idle().addCallback(idle.append)
    disk.finish()
    assert len(said) <= 11
    assert not idle
    queue.call_after(say, 100)
    (turn,) = clock.getDelayedCalls()
    clock.calls.remove(turn)
    turn.func()
    assert len(said) <= 22, "one turn is as short as the other"
    clock.advance(1)
    assert said == list(range(101))
    assert len(idle) == 1
    assert queue.held_bytes == 0


def test_one_that_cannot_be_told_does_not_keep_others_from_hearing(disk: Any) -> None:
    disk.is_slow = True
    queue = CommitQueue(disk.write, pytest.fail, Clock())
    said: list[str] = []
    queue.commit([SessionClosed(1)], 1)
    queue.call_after(lambda: 1 // 0)
    queue.call_after(said.append, "second")
    disk.finish()
    assert said == ["second"]


def test_the_queue_is_idle_when_nothing_is_being_written(disk: Any) -> None:
    disk.is_slow = True
    queue = CommitQueue(disk.write, lambda failure: None, Clock())
    done: list[None] = []
    queue.idle().addCallback(done.append)
    assert len(done) == 1
    queue.commit([SessionClosed(1)], 1)
    queue.commit([SessionClosed(2)], 2)
    idle: Deferred[None] = queue.idle()
    idle.addCallback(done.append)
    disk.finish()
    assert len(done) == 1
    disk.finish()
    assert len(done) == 2


def test_sessions_are_stored_and_deleted(bench: Any) -> None:
    peer = bench.connect(timeout_ms=5000)
    session = peer.session
    call(bench, peer, CREATE, create("/e", EPHEMERAL))
    call(bench, peer, CLOSE)
    stored = [change for changes, _ in bench.disk.batches for change in changes]
    assert stored[0] == SessionOpened(session.session_id, session.password, 5000)
    assert stored[-1] == SessionClosed(session.session_id)
    assert peer.has_ended
    assert peer.session is None
    assert "/e" not in bench.state.tree.nodes


@pytest.mark.parametrize(("wanted", "given"), [(0, 1000), (5000, 5000), (99_999, 10_000)])
def test_timeouts_have_limits(bench: Any, wanted: int, given: int) -> None:
    assert bench.connect(wanted).session.timeout_ms == given


def test_a_silent_client_expires_in_time(bench: Any) -> None:
    silent, watcher = bench.connect(3000), bench.connect(10_000)
    call(bench, silent, CREATE, create("/e", EPHEMERAL))
    call(bench, watcher, EXISTS, watched("/e"))
    bench.clock.advance(2.999)
    assert not silent.has_ended
    assert watcher.events == []
    bench.clock.advance(0.001)
    assert silent.has_ended
    assert len(watcher.events) == 1
    assert not watcher.has_ended


def test_signs_of_life_put_off_the_end(bench: Any) -> None:
    peer = bench.connect(3000)
    for _ in range(5):
        bench.clock.advance(2)
        call(bench, peer, PING, xid=-2)
    assert not peer.has_ended
    bench.clock.advance(2.5)
    assert not peer.has_ended
    bench.clock.advance(0.5)
    assert peer.has_ended


def test_a_later_session_may_have_an_earlier_deadline(bench: Any) -> None:
    bench.connect(10_000)
    short = bench.connect(1000)
    bench.clock.advance(1)
    assert short.has_ended


def test_a_server_that_was_asleep_does_not_blame_its_clients(bench: Any) -> None:
    peer = bench.connect(3000)
    bench.clock.advance(3 + LATE_SECONDS + 1)
    assert not peer.has_ended
    bench.clock.advance(2.9)
    assert not peer.has_ended
    bench.clock.advance(0.1)
    assert peer.has_ended


def test_a_session_outlives_its_connection(bench: Any) -> None:
    peer = bench.connect(3000)
    session = peer.session
    call(bench, peer, CREATE, create("/e", EPHEMERAL))
    call(bench, peer, EXISTS, watched("/e"))
    bench.processor.leave(peer)
    assert len(bench.state.watches) == 0
    bench.clock.advance(2)
    again = type(peer)()
    request = ConnectRequest(0, 3000, session.session_id, session.password, None)
    bench.processor.connect(again, request)
    assert again.session is session
    bench.clock.advance(2)
    assert "/e" in bench.state.tree.nodes
    bench.clock.advance(1)
    assert "/e" not in bench.state.tree.nodes


def test_a_former_connection_does_not_take_the_session_with_it(bench: Any) -> None:
    former = bench.connect(3000)
    session = former.session
    newer = type(former)()
    request = ConnectRequest(0, 3000, session.session_id, session.password, None)
    bench.processor.connect(newer, request)
    assert former.has_ended
    bench.processor.leave(former)
    assert session.connection is newer


def test_ids_are_never_given_twice(bench: Any) -> None:
    ids = []
    for _ in range(50):  # all in the same millisecond
        peer = bench.connect()
        ids.append(peer.session.session_id)
        call(bench, peer, CLOSE)
    assert len(set(ids)) == 50
    assert min(ids) > 0


@pytest.mark.parametrize(("code", "ends"), [(19, False), (102, False), (106, False), (9999, True)])
def test_only_strangers_are_cut_off(bench: Any, code: int, ends: bool) -> None:
    peer = bench.connect()
    call(bench, peer, code)
    assert errors(peer) == [-6]
    assert peer.has_ended is ends


def test_a_request_without_a_header(bench: Any) -> None:
    peer = bench.connect()
    with pytest.raises(RemoteProtocolError):
        bench.processor.handle(peer, memoryview(b"\0\0\0\1"))


def test_the_next_process_ends_the_session_of_the_one_before_and_no_other(bench: Any) -> None:
    own, other = bench.connect(), bench.connect()
    call(bench, own, CREATE, create("/own", EPHEMERAL))
    call(bench, other, CREATE, create("/other", EPHEMERAL))
    bench.processor.mark_own(own.session.session_id)
    bench.processor.mark_own(own.session.session_id)
    bench.processor.mark_own(12345)  # it has expired meanwhile
    marks = [batch for batch, _ in bench.disk.batches if getattr(batch[0], "is_own", False)]
    session = own.session
    assert marks == [[SessionOpened(session.session_id, session.password, 5000, is_own=True)]]
    for peer in (own, other):
        bench.processor.leave(peer)
    bench.processor.end_own()
    assert [each.session_id for each in bench.state.sessions] != [session.session_id]
    assert len(bench.state.sessions) == 1
    assert "/own" not in bench.state.tree.nodes
    assert "/other" in bench.state.tree.nodes
    assert SessionClosed(session.session_id) in bench.disk.batches[-1][0]
