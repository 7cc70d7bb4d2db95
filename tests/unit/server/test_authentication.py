"""What becomes of users who are connected when users change, and of clear passwords."""

from collections.abc import Callable
from typing import Any

import pytest
from broker_bench import BrokerBench, answers, log_lines
from hermes_testkit import produce_acknowledged, waiting_fetch
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import Clock
from users_bench import HELLO, USERS, Connect, Directory, ask, is_served, log_in

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import TokenHolder
from hermes.security import INTERNAL
from hermes.security.scram import ScramClient
from hermes.security.users import Users
from hermes.server.authentication import Authentication
from hermes.server.policies import ListenerPolicy

# -- what becomes of those who are known -----------------------------------------------------------


def test_connections_end_when_their_user_goes_or_has_another_password(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    alice, bob, open_one = connect(), connect(), bench.connect()
    log_in(alice, "alice", "wonder")
    log_in(bob, "bob", "builder")
    bench.authentication.refresh()
    assert is_served(bench, alice)
    directory.users = directory.users.with_password("alice", "new", iterations=4096)
    with log_lines() as lines:
        bench.authentication.refresh()
    assert alice[1].disconnecting
    assert "alice@192.0.2.1:4711: its user has another password" in lines[0]
    assert is_served(bench, bob)
    directory.users = directory.users.without("bob")
    with log_lines() as lines:
        bench.authentication.refresh()
    assert bob[1].disconnecting
    assert "bob@192.0.2.1:4711: its user was removed" in lines[0]
    assert is_served(bench, open_one)
    log_in(connect(), "alice", "new")


def test_a_fetch_that_waits_does_not_outlive_its_user(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    connection, transport = connect()
    log_in((connection, transport), "alice", "wonder")
    bench.clock.advance(0)
    connection.dataReceived(waiting_fetch(("t", 0, 0, 100), max_wait_ms=60_000))
    directory.users = directory.users.without("alice")
    bench.authentication.refresh()
    assert transport.disconnecting
    assert transport.value() == b""


def test_a_produce_under_way_is_answered_when_its_user_goes(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    connection, transport = connect()
    log_in((connection, transport), "alice", "wonder")
    bench.clock.advance(0)
    connection.dataReceived(produce_acknowledged(("t", 0, HELLO), acks=2))
    directory.users = directory.users.without("alice")
    bench.authentication.refresh()
    bench.clock.advance(5)
    assert len(answers(transport)) == 1
    assert transport.disconnecting


def test_other_groups_hold_at_once(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    seen: list[frozenset[str]] = []
    bench.authentication.on_change(lambda: seen.append(bench.authentication.groups_of("alice")))
    connected = connect()
    log_in(connected, "alice", "wonder")
    assert bench.authentication.groups_of("alice") == {"web"}
    directory.users = directory.users.with_groups("alice", ["ops"])
    bench.authentication.refresh()
    assert connected[0]._client.groups == {"ops"}
    assert seen == [{"ops"}]
    assert is_served(bench, connected)
    bench.authentication.refresh()
    assert len(seen) == 1


def test_a_change_between_the_look_and_the_proof_is_noticed(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    connected = connect()
    client = ScramClient("alice", "wonder")
    challenge = ask(*connected, "SCRAM-SHA-256", client.first())
    directory.users = directory.users.without("alice")
    bench.authentication.refresh()
    client.verify(ask(*connected, "SCRAM-SHA-256", client.answer(challenge)))
    bench.authentication.refresh()
    assert connected[1].disconnecting


def test_who_comes_while_users_are_looked_up_is_looked_up_next(
    bench: BrokerBench, connect: Connect, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[tuple[Deferred[Any], Any]] = []

    def in_thread(*call: Any) -> "Deferred[Any]":
        held.append((Deferred(), call))
        return held[-1][0]

    with monkeypatch.context() as patch:
        patch.setattr(bench.authentication, "in_thread", in_thread)
        bench.authentication.refresh()
    connected = connect()
    log_in(connected, "alice", "wonder")
    directory.users = directory.users.without("alice")
    for waiting, (function, *args) in held:
        waiting.callback(function(*args))
    bench.authentication.refresh()
    assert connected[1].disconnecting


def test_users_that_stay_as_they_were_are_told_once(
    bench: BrokerBench, directory: Directory
) -> None:
    directory.problem = "users_file: line 3: nonsense"
    with log_lines() as lines:
        bench.authentication.refresh()
        bench.authentication.refresh()
    (line,) = lines
    assert "users stay as they were: users_file: line 3: nonsense" in line
    assert not bench.authentication.is_current
    directory.problem = None
    bench.authentication.refresh()
    assert bench.authentication.is_current


def test_the_broker_itself_is_served_on_its_own_listener_only(
    bench: BrokerBench, connect: Connect
) -> None:
    own = ListenerPolicy("own", "scram", authenticator=Users.only(INTERNAL, "secret"))
    connected = connect("127.0.0.1", own)
    log_in(connected, INTERNAL, "secret")
    assert connected[0]._client.principal == INTERNAL
    assert is_served(bench, connected)
    with pytest.raises(NotAuthenticatedError):
        log_in(connect("127.0.0.1", own), "alice", "wonder")


def test_nobody_keeps_the_broker_from_its_own_listener(
    bench: BrokerBench, connect: Connect
) -> None:
    """Every user of the machine reaches it, and comes from the address that the broker has."""
    own = ListenerPolicy("own", "scram", authenticator=Users.only(INTERNAL, "secret"))
    for _ in range(30):
        with pytest.raises(NotAuthenticatedError, match="is wrong"):
            log_in(connect("127.0.0.1", own), INTERNAL, "guess")
    log_in(connect("127.0.0.1", own), INTERNAL, "secret")


def test_an_authenticator_does_not_make_anybody_the_broker_itself(
    bench: BrokerBench, connect: Connect, directory: Directory
) -> None:
    directory.users = Users.only(INTERNAL, "secret")
    with pytest.raises(NotAuthenticatedError):
        log_in(connect(), INTERNAL, "secret")


# -- clear passwords -------------------------------------------------------------------------------


def result_of(found: "Deferred[Any]") -> Any:
    results: list[Any] = []
    found.addBoth(results.append)
    return results[0] if results else "not yet"


def test_clear_passwords_are_checked_counted_and_slowed_down(bench: BrokerBench) -> None:
    authentication = bench.authentication
    assert result_of(authentication.check_password("192.0.2.1", "alice", "wonder")).name == "alice"
    assert authentication.groups_of("alice") == {"web"}
    for _ in range(5):
        found = authentication.check_password("192.0.2.9", "alice", "wrong")
        assert result_of(found) is None
    slow = authentication.check_password("192.0.2.9", "alice", "wonder")
    assert result_of(slow) == "not yet"
    bench.clock.advance(0.5)
    assert authentication.counts == {("password", "accepted"): 2, ("password", "wrong"): 5}
    for _ in range(20):
        authentication.attempts.begin("192.0.2.9", "alice")
    assert result_of(authentication.check_password("192.0.2.9", "alice", "wonder")) is None
    assert authentication.counts["password", "too_many"] == 1


def test_a_clear_password_that_can_not_be_checked_is_an_error(
    bench: BrokerBench, directory: Directory
) -> None:
    directory.is_down = True
    failure = result_of(bench.authentication.check_password("192.0.2.1", "alice", "wonder"))
    assert failure.getErrorMessage() == "users can't be looked up now"


class Tokens:
    """Takes every token for its holder's name."""

    def verify(self, token: str) -> TokenHolder:
        return TokenHolder(token, frozenset(), 60.0)


def check_token(authentication: Authentication, name: str) -> "Deferred[Any]":
    return Deferred.fromCoroutine(authentication.check_token(name))


def check_password(authentication: Authentication, name: str) -> "Deferred[Any]":
    return authentication.check_password("192.0.2.1", name, "wonder")


@pytest.mark.parametrize("check", [check_token, check_password])
def test_who_leaves_while_a_thread_checks_makes_room_for_nobody_before_it_is_done(
    directory: Directory, check: "Callable[[Authentication, str], Deferred[Any]]"
) -> None:
    threads: list[Deferred[Any]] = []

    def in_thread(*_: object) -> "Deferred[Any]":
        threads.append(Deferred())
        return threads[-1]

    authentication = Authentication(directory, Clock(), in_thread, Tokens())
    left = [check(authentication, "alice") for _ in range(4)]
    stays = check(authentication, "alice")
    for each in left:
        each.addErrback(lambda failure: failure.trap(CancelledError))
        each.cancel()
    assert len(threads) == 2
    found = Tokens().verify("alice") if check is check_token else USERS.find("alice")
    threads[0].callback(None)
    assert len(threads) == 3
    threads[2].callback(found)
    assert result_of(stays) is found
