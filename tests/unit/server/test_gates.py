"""What strangers may do on a listener that wants users: little, and not for long. No sockets."""

from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import fetch, frame, message, produce, produce_acknowledged, waiting_fetch
from twisted.internet.address import IPv4Address
from twisted.internet.defer import CancelledError
from users_bench import HELLO, SCRAM, Connect, Directory, ask, is_served, log_in

from hermes.errors import NotAuthenticatedError, UnsupportedRequestVersionError
from hermes.protocol import (
    REQUEST_VERSIONS,
    AuthenticateRequest,
    BoundaryRequest,
    ClusterIdRequest,
    MetadataRequest,
    UnsupportedRequest,
    decode_authenticate_response,
    decode_metadata_response,
)
from hermes.security import INTERNAL
from hermes.security.scram import ScramClient
from hermes.server.gates import MAX_WAITING, TIME_SECONDS


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_who_says_who_it_is_is_served(bench: BrokerBench, connect: Connect, mechanism: str) -> None:
    connected = connect()
    log_in(connected, "alice", "wonder", mechanism)
    assert is_served(bench, connected)
    client = connected[0]._client
    assert (client.principal, client.groups, client.knows_own_codes) == ("alice", {"web"}, True)
    assert str(client) == "alice@192.0.2.1:4711"
    assert bench.authentication.counts == {(mechanism, "accepted"): 1}
    assert len(bench.connections.waiting) == 0
    bench.clock.advance(TIME_SECONDS)
    assert is_served(bench, connected)


def test_on_other_listeners_nobody_needs_to(bench: BrokerBench) -> None:
    connected = bench.connect()
    assert is_served(bench, connected)
    assert connected[0]._client.principal == "anonymous"
    with pytest.raises(UnsupportedRequestVersionError, match="takes no users"):
        ask(*connected, "SCRAM-SHA-256", b"n,,n=alice,r=x")
    assert is_served(bench, connected)


def test_what_follows_the_proof_at_once_is_served(bench: BrokerBench, connect: Connect) -> None:
    connection, transport = connect()
    client = ScramClient("alice", "wonder")
    challenge = ask(connection, transport, "SCRAM-SHA-256", client.first())
    last = AuthenticateRequest("SCRAM-SHA-256", client.answer(challenge)).encode()
    large = message(bytes(100_000))
    connection.dataReceived(last + produce("t", 0, large) + produce_acknowledged(("t", 0, HELLO)))
    bench.clock.pump([0, 0, 1, 0])
    assert len(answers(transport)) == 2
    log = bench.directory.get("t", 0)
    assert log is not None
    assert log.end_offset == len(large) + len(HELLO)


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody", "wonder"), (INTERNAL, "x")]
)
def test_a_wrong_user_and_a_wrong_password_are_told_the_same_and_end_the_connection(
    bench: BrokerBench, connect: Connect, user: str, password: str
) -> None:
    connected = connect()
    with (
        log_lines() as lines,
        pytest.raises(NotAuthenticatedError, match=r"^the user or the password is wrong$"),
    ):
        log_in(connected, user, password)
    assert connected[1].disconnecting
    assert bench.authentication.counts == {("SCRAM-SHA-256", "wrong"): 1}
    (line,) = lines
    whom = "alice" if user == "alice" else "a user that there isn't"
    assert f"192.0.2.1:4711 could not authenticate as {whom}: the user or the pass" in line


@pytest.mark.parametrize(
    "request_",
    [
        produce("t", 0, HELLO),
        produce("t", 0, message(bytes(10_000))),
        fetch("t", 0, 0),
        frame(b"\0\2" + b"\0\0"),
        frame(b"\0\3" + b"\0\0"),
        frame(b"\0\4" + b"\0\1t" + bytes(16)),
        frame(b"\0\3" + b"\0\x50" + b"\0\1t\0\0\0\0\0\0\0\0" * 80),
        frame(bytes(4097)),
        frame(b"\0\x63\0\0"),
        b"GET / HTTP/1.1\r\n",
    ],
    ids=range(10),
)
def test_strangers_requests_of_0_7_end_the_connection(
    bench: BrokerBench, connect: Connect, request_: bytes
) -> None:
    connection, transport = connect()
    connection.dataReceived(request_)
    assert transport.disconnecting
    assert transport.value() == b""
    assert list(bench.directory.logs) == []


OWN = [
    produce_acknowledged(("t", 0, HELLO)),
    waiting_fetch(("t", 0, 0, 100)),
    MetadataRequest(None).encode(),
    MetadataRequest(("t",)).encode(),
    MetadataRequest(("t",) * 100).encode(),
    BoundaryRequest("t", 0, 0).encode(),
    ClusterIdRequest().encode(),
    UnsupportedRequest(66, 7).encode(),
    frame(b"\0\x40\0\0\0\1\0\0\0\0\0\x64" + b"\0\1t\0\0\0\0\0\0\0\0" * 100),
]


@pytest.mark.parametrize("request_", OWN, ids=range(len(OWN)))
def test_strangers_own_requests_are_told_to_say_who_they_are(
    bench: BrokerBench, connect: Connect, request_: bytes
) -> None:
    connected = connect()
    connected[0].dataReceived(request_)
    assert answers(connected[1]) == [b"\0\x4f"]
    assert list(bench.directory.logs) == []
    log_in(connected, "alice", "wonder")
    assert is_served(bench, connected)


def test_strangers_may_learn_which_requests_there_are_and_nothing_else(connect: Connect) -> None:
    connection, transport = connect()
    connection.dataReceived(MetadataRequest(()).encode())
    (answer,) = answers(transport)
    told = decode_metadata_response(answer)
    assert told.request_versions == REQUEST_VERSIONS
    assert (told.broker_id, told.version, told.topics) == (-1, "", ())
    assert (told.max_request_bytes, told.max_message_bytes, told.default_partitions) == (0, 0, 0)


def test_who_asks_and_leaves_without_saying_who_it_is_is_told_to_the_operator(
    connect: Connect,
) -> None:
    connected = connect()
    connected[0].dataReceived(MetadataRequest(()).encode())
    with log_lines() as lines:
        connected[0].connectionLost()
    assert "192.0.2.1:4711 did not say who it is: this listener (users) wants a user" in lines[0]
    connected = connect()
    log_in(connected, "alice", "wonder")
    with log_lines() as lines:
        connected[0].connectionLost()
        connect()[0].connectionLost()
    assert lines == []


def test_strangers_may_not_ask_on_and_on(bench: BrokerBench, connect: Connect) -> None:
    connection, transport = connect()
    connection.dataReceived(MetadataRequest(()).encode() * 17)
    assert len(answers(transport)) == 16
    assert transport.disconnecting
    assert bench.broker.metrics.refusals == {("other", "not_authenticated"): 1}


@pytest.mark.parametrize("has_begun", [False, True])
def test_strangers_have_ten_seconds(bench: BrokerBench, connect: Connect, has_begun: bool) -> None:
    connection, transport = connect()
    if has_begun:
        ask(connection, transport, "SCRAM-SHA-256", ScramClient("alice", "wonder").first())
    bench.clock.advance(TIME_SECONDS - 0.1)
    assert not transport.disconnecting
    bench.clock.advance(0.2)
    assert transport.disconnecting
    connection.connectionLost()
    assert len(bench.connections.waiting) == 0


def test_of_too_many_strangers_the_oldest_go(bench: BrokerBench, connect: Connect) -> None:
    strangers = [connect(f"10.0.{n >> 8}.{n & 255}") for n in range(MAX_WAITING)]
    known = strangers[0]
    log_in(known, "alice", "wonder")
    connect()
    assert not strangers[1][1].disconnecting
    connect()
    assert strangers[1][1].disconnecting
    assert not known[1].disconnecting
    assert not strangers[2][1].disconnecting


def test_each_stranger_too_many_costs_another_one_its_place(connect: Connect) -> None:
    strangers = [connect() for _ in range(MAX_WAITING)]
    for _ in range(10):  # before the first one that is to go has gone
        connect()
    assert [transport.disconnecting for _, transport in strangers[:11]] == [True] * 10 + [False]


def test_a_stranger_that_leaves_leaves_nothing(bench: BrokerBench, connect: Connect) -> None:
    for step in range(3):
        connection, transport = connect()
        client = ScramClient("alice", "wonder")
        if step:
            challenge = ask(connection, transport, "SCRAM-SHA-256", client.first())
        if step == 2:
            connection.dataReceived(
                AuthenticateRequest("SCRAM-SHA-256", client.answer(challenge)).encode()
            )
        connection.connectionLost()
        bench.clock.advance(0)
    assert len(bench.connections.waiting) == 0
    assert bench.authentication._connected == {}
    assert bench.broker.metrics.connections == 0
    assert bench.connections._unfinished == set()


def test_another_mechanism_than_there_is_may_be_followed_by_one_that_is(connect: Connect) -> None:
    connected = connect()
    for mechanism in ("PLAIN", "SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", ""):
        with pytest.raises(UnsupportedRequestVersionError, match="SCRAM-SHA-256 or SCRAM-SHA-512"):
            ask(*connected, mechanism, b"\0alice\0wonder")
    log_in(connected, "alice", "wonder")


@pytest.mark.parametrize("text", [b"", b"\xff", b"n,,n=alice", b"x" * 2048])
def test_what_is_no_scram_ends_the_connection(connect: Connect, text: bytes) -> None:
    connected = connect()
    with pytest.raises(NotAuthenticatedError, match="not a message of SCRAM"):
        ask(*connected, "SCRAM-SHA-256", text)
    assert connected[1].disconnecting


def test_a_conversation_does_not_change_its_mechanism(connect: Connect) -> None:
    connected = connect()
    client = ScramClient("alice", "wonder")
    challenge = ask(*connected, "SCRAM-SHA-256", client.first())
    with pytest.raises(NotAuthenticatedError, match="one mechanism"):
        ask(*connected, "SCRAM-SHA-512", client.answer(challenge))


def test_failures_slow_down_whoever_made_them_and_hold_nothing_up(
    bench: BrokerBench, connect: Connect
) -> None:
    for _ in range(5):
        with pytest.raises(NotAuthenticatedError, match="wrong"):
            log_in(connect(), "alice", "wrong")
    slow, quick = connect(), connect("198.51.100.7")
    client = ScramClient("alice", "wonder")
    challenge = ask(*slow, "SCRAM-SHA-256", client.first())
    slow[0].dataReceived(AuthenticateRequest("SCRAM-SHA-256", client.answer(challenge)).encode())
    assert slow[1].value() == b""
    log_in(quick, "bob", "builder")
    assert is_served(bench, quick)  # a second passes
    (answer,) = answers(slow[1])
    client.verify(decode_authenticate_response(answer))


def test_far_too_many_failures_are_not_looked_at(bench: BrokerBench, connect: Connect) -> None:
    for _ in range(20):
        bench.authentication.attempts.begin("192.0.2.1", "alice")
    with pytest.raises(NotAuthenticatedError, match="too many failures: try again later"):
        log_in(connect(), "alice", "wonder")
    assert bench.authentication.counts == {("SCRAM-SHA-256", "too_many"): 1}


def test_who_leaves_while_it_is_slowed_down_is_forgotten(
    bench: BrokerBench, connect: Connect
) -> None:
    for _ in range(10):
        bench.authentication.attempts.begin("192.0.2.1", "alice")
    connection, transport = connect()
    client = ScramClient("alice", "wonder")
    challenge = ask(connection, transport, "SCRAM-SHA-256", client.first())
    connection.dataReceived(AuthenticateRequest("SCRAM-SHA-256", client.answer(challenge)).encode())
    connection.connectionLost()
    bench.clock.pump([1] * 10)
    assert bench.authentication.counts == {}
    assert bench.clock.getDelayedCalls() == []


def test_users_that_can_not_be_looked_up_may_try_again(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    directory.is_down = True
    connected = connect()
    with log_lines() as lines:
        connected[0].dataReceived(AuthenticateRequest("SCRAM-SHA-256", b"n,,n=alice,r=x").encode())
    (answer,) = answers(connected[1])
    assert answer.startswith(b"\0\x43"), "which is worth another try"
    assert connected[1].disconnecting
    assert "the directory is down" in lines[0]
    assert bench.authentication.attempts.begin("192.0.2.1", "alice") == 0.0
    directory.is_down = False
    log_in(connect(), "alice", "wonder")


def test_who_leaves_while_it_is_looked_up_is_forgotten_without_a_word(
    held_bench: tuple[BrokerBench, Any],
) -> None:
    bench, run = held_bench
    with log_lines() as lines:
        connection, transport = bench.connect(SCRAM, IPv4Address("TCP", "192.0.2.1", 1))
        first = ScramClient("alice", "wonder").first()
        connection.dataReceived(AuthenticateRequest("SCRAM-SHA-256", first).encode())
        connection.connectionLost()
        checked = bench.authentication.check_password("192.0.2.1", "alice", "wonder")
        checked.addErrback(lambda failure: failure.trap(CancelledError))
        checked.cancel()
        run()
        bench.clock.advance(0)
    assert lines == []
    assert bench.authentication.counts == {}
    assert transport.value() == b""
    assert bench.connections._unfinished == set()
