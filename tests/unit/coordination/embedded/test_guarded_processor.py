"""Clients that have to authenticate, and access rules, on a processor without sockets."""

import struct
from typing import Any

import pytest
from jute_frames import OPEN_ACL, acl, text

from hermes.coordination.embedded.proofs import Proof
from hermes.coordination.embedded.visible_names import VisibleNames
from hermes.coordination.embedded.zookeeper_requests import ConnectRequest
from hermes.security import INTERNAL, AccessRule, AccessRules, Operation, Resource

NO_NODE, NO_AUTH, AUTH_FAILED, MUST_AUTHENTICATE = -101, -102, -115, -124
CREATE, DELETE, EXISTS, GET, SET, GET_ACL, SET_ACL, CHILDREN = range(1, 9)
PING, CHILDREN2, CHECK, MULTI, CREATE2, AUTH, SET_WATCHES, CLOSE = 11, 12, 13, 14, 15, 100, 101, -11


class Rules:
    """The rules of `access:`, which a test may change."""

    def __init__(self, *rules: AccessRule) -> None:
        self.is_on = True
        self.rules = rules

    def may(self, principal: str, operation: Operation, resource: Resource) -> bool:
        return AccessRules(self.rules).decide(principal, frozenset(), operation, resource).allowed

    def stamp(self, principal: str) -> object:
        return self.rules


def rule(principal: str, *operations: str, **options: Any) -> AccessRule:
    return AccessRule(principal, frozenset(map(Operation, operations)), **options)


class Guarded:
    """A bench whose listener asks for passwords."""

    def __init__(self, bench: Any, rules: Rules | None = None) -> None:
        self.bench = bench
        self.processor = bench.processor
        self.rules = rules
        self.shown = None if rules is None else VisibleNames(rules.stamp)

    def connect(self, session_id: int = 0, password: bytes = bytes(16), zxid: int = 0) -> Any:
        peer = type(self.bench.connect())()
        peer.asks_for_passwords = True
        peer.rights.rules = self.rules
        peer.rights.shown = self.shown
        self.processor.connect(peer, ConnectRequest(zxid, 5000, session_id, password, None))
        return peer

    def user(self, name: str, **options: Any) -> Any:
        peer = self.connect(**options)
        self.prove(peer, name)
        return peer

    def prove(self, peer: Any, name: str) -> bool:
        self.ask(peer, AUTH, bytes(4) + text("digest") + text(f"{name}:secret"))
        return bool(self.processor.admit(peer, peer.proofs.pop(), name))

    def ask(self, peer: Any, code: int, body: bytes = b"") -> int | None:
        """The error of what is answered; None for no answer."""
        before = len(peer.answers)
        self.processor.handle(peer, memoryview(struct.pack(">ii", 7, code) + body))
        if len(peer.answers) == before:
            return None
        return int(struct.unpack_from(">i", peer.answers[-1], 16)[0])

    def create(self, peer: Any, path: str, data: bytes = b"", flags: int = 0) -> int | None:
        return self.ask(peer, CREATE, text(path) + text(data) + OPEN_ACL + struct.pack(">i", flags))

    def get(self, peer: Any, path: str, watch: bool = False) -> int | None:
        return self.ask(peer, GET, text(path) + bytes([watch]))

    def children(self, peer: Any, path: str, watch: bool = False) -> list[str]:
        assert self.ask(peer, CHILDREN, text(path) + bytes([watch])) == 0
        answer, names = peer.answers[-1][24:], []
        while answer:
            (length,) = struct.unpack_from(">i", answer)
            names.append(answer[4 : 4 + length].decode())
            answer = answer[4 + length :]
        return names


@pytest.fixture
def guarded(bench: Any) -> Guarded:
    return Guarded(bench)


# -- until a client has authenticated -------------------------------------------------------------


def test_a_session_is_only_promised(bench: Any, guarded: Guarded) -> None:
    before = len(bench.state.sessions), bench.state.tree.zxid, len(bench.disk.batches)
    peer = guarded.connect()
    session_id, password = session_of(peer)
    assert session_id > 0
    after = len(bench.state.sessions), bench.state.tree.zxid, len(bench.disk.batches)
    assert after == (before[0] + 1, before[1] + 1, before[2] + 1)  # the bench's own connect
    assert guarded.prove(peer, "alice")
    session = bench.state.sessions.find(session_id, password)
    assert session is peer.session
    assert session.principal == peer.rights.principal == "alice"


def session_of(peer: Any) -> tuple[int, bytes]:
    """What a connect request was answered with."""
    (session_id,) = struct.unpack_from(">q", peer.answers[0], 12)
    return session_id, peer.answers[0][24:40]


BODIES = {
    CREATE: text("/consumers") + text("") + OPEN_ACL + bytes(4),
    CREATE2: text("/consumers") + text("") + OPEN_ACL + bytes(4),
    DELETE: text("/x") + bytes(4),
    EXISTS: text("/") + b"\1",
    GET: text("/") + b"\1",
    CHILDREN: text("/") + b"\1",
    CHILDREN2: text("/") + b"\1",
    SET: text("/") + text("x") + bytes(4),
    GET_ACL: text("/"),
    SET_ACL: text("/") + OPEN_ACL + bytes(4),
    9: text("/"),
    MULTI: struct.pack(">i?i", -1, True, -1),
    SET_WATCHES: bytes(8) + text("/") * 0 + struct.pack(">i", 1) + text("/") + bytes(8),
    16: b"",
    102: text("sasl"),
    9999: b"",
    -1: b"",
}


@pytest.mark.parametrize("code", BODIES)
def test_nothing_is_served_and_nothing_told(bench: Any, guarded: Guarded, code: int) -> None:
    peer = guarded.connect()
    nodes, watches, zxid = (
        len(bench.state.tree.nodes),
        len(bench.state.watches),
        bench.state.tree.zxid,
    )
    assert guarded.ask(peer, code, BODIES[code]) == MUST_AUTHENTICATE
    assert peer.has_ended
    assert len(peer.answers[-1]) == 20  # no body
    assert struct.unpack_from(">q", peer.answers[-1], 8) == (0,)  # nor the newest transaction
    assert len(bench.state.tree.nodes) == nodes
    assert len(bench.state.watches) == watches
    assert bench.state.tree.zxid == zxid


def test_a_sign_of_life_and_an_end_are_answered(guarded: Guarded) -> None:
    peer = guarded.connect()
    assert guarded.ask(peer, PING) == 0
    assert struct.unpack_from(">q", peer.answers[-1], 8) == (0,)
    assert not peer.has_ended
    assert guarded.ask(peer, CLOSE) == 0
    assert peer.has_ended


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (text("digest") + text("nocolon"), AUTH_FAILED),
        (text("digest") + text("a:" + "x" * 1023), AUTH_FAILED),
        (text("sasl") + text("a:b"), AUTH_FAILED),
        (text("x509") + text("CN=alice"), AUTH_FAILED),
        (text("digest"), -5),
        (b"", -5),
    ],
)
def test_what_is_no_proof(guarded: Guarded, body: bytes, error: int) -> None:
    peer = guarded.connect()
    assert guarded.ask(peer, AUTH, bytes(4) + body) == error
    assert peer.has_ended
    assert not peer.proofs


def test_a_proof_is_taken_apart_at_the_first_colon_and_not_shown(guarded: Guarded) -> None:
    peer = guarded.connect()
    assert guarded.ask(peer, AUTH, bytes(4) + text("digest") + text("alice:p:w")) is None
    (proof,) = peer.proofs
    assert proof == Proof(7, "alice", "p:w", b"alice:p:w")
    assert "p:w" not in repr(proof)
    guarded.processor.refuse(peer, proof.xid)
    assert struct.unpack_from(">i", peer.answers[-1], 16) == (AUTH_FAILED,)
    assert peer.has_ended


def test_a_client_that_has_seen_more_is_only_told_so_as_a_user(guarded: Guarded) -> None:
    peer = guarded.connect(zxid=1 << 40)
    assert session_of(peer)[0] > 0
    assert not guarded.prove(peer, "alice")
    assert peer.has_ended


def test_nobody_is_two_users(guarded: Guarded) -> None:
    peer = guarded.user("alice")
    assert guarded.prove(peer, "alice")
    assert not guarded.prove(peer, "bob")
    assert peer.has_ended
    assert peer.rights.principal == "alice"


# -- sessions -------------------------------------------------------------------------------------


def test_a_session_is_resumed_by_who_has_begun_it(bench: Any, guarded: Guarded) -> None:
    first = guarded.user("alice")
    session_id, password = session_of(first)
    guarded.create(first, "/e", flags=1)
    second = guarded.connect(session_id=session_id, password=password)
    assert not first.has_ended  # not before it is known who takes over
    assert first.session is not None
    assert guarded.prove(second, "alice")
    assert first.has_ended
    assert second.session.session_id == session_id
    assert "/e" in bench.state.tree.nodes


def test_a_session_is_nobody_else_s(bench: Any, guarded: Guarded) -> None:
    first = guarded.user("alice")
    session_id, password = session_of(first)
    second = guarded.connect(session_id=session_id, password=password)
    assert not guarded.prove(second, "bob")
    assert second.has_ended
    assert second.session is None
    assert not first.has_ended
    assert first.session.session_id == session_id


def test_a_session_s_password_is_needed_too(guarded: Guarded) -> None:
    session_id, _ = session_of(guarded.user("alice"))
    peer = guarded.connect(session_id=session_id, password=b"p" * 16)
    assert session_of(peer) == (0, bytes(16))
    assert peer.has_ended


def test_a_client_that_goes_before_it_has_authenticated_leaves_nothing(
    bench: Any, guarded: Guarded
) -> None:
    count = len(bench.state.sessions)
    for _ in range(100):
        guarded.processor.leave(guarded.connect())
    assert len(bench.state.sessions) - count == 100  # the bench's own connects


# -- ACLs -----------------------------------------------------------------------------------------


def test_acls_hold_users_by_name(bench: Any, guarded: Guarded) -> None:
    alice, bob = guarded.user("alice"), guarded.user("bob")
    own = acl((31, "auth", ""))
    guarded.ask(alice, CREATE, text("/a") + text("") + own + bytes(4))
    (entry,) = bench.state.tree.nodes["/a"].acl
    assert entry.identity == ("digest", "alice:verified")  # no hash of her password
    assert guarded.get(alice, "/a") == 0
    assert guarded.get(bob, "/a") == NO_AUTH
    internal = guarded.user(INTERNAL)
    assert guarded.get(internal, "/a") == 0


# -- rules ----------------------------------------------------------------------------------------


@pytest.fixture
def ruled(bench: Any) -> Guarded:
    """Alice has group `a`, bob has `b`; each may consume a topic; carol may all, dave nothing."""
    rules = Rules(
        rule("alice", "group", group="a"),
        rule("alice", "consume", topic="clicks"),
        rule("bob", "group", group="b"),
        rule("bob", "consume", topic="views"),
        rule("eve", "describe", group="a"),
        rule("carol", *Operation),
    )
    made = Guarded(bench, rules)
    internal = made.user(INTERNAL)
    for path in (
        *("/brokers", "/brokers/ids", "/brokers/topics", "/consumers", "/consumers/a"),
        *("/consumers/b", "/brokers/topics/clicks", "/brokers/topics/views", "/brokers/ids/0"),
    ):
        assert made.create(internal, path) == 0
    return made


def test_a_group_is_whose_rule_says_so(ruled: Guarded) -> None:
    alice, bob, eve = ruled.user("alice"), ruled.user("bob"), ruled.user("eve")
    assert ruled.create(alice, "/consumers/a/offsets", b"17") == 0
    for stranger in (bob, eve):
        assert ruled.create(stranger, "/consumers/a/owners") == NO_AUTH
        assert (
            ruled.ask(stranger, SET, text("/consumers/a/offsets") + text("0") + bytes(4)) == NO_AUTH
        )
        assert ruled.ask(stranger, DELETE, text("/consumers/a/offsets") + bytes(4)) == NO_AUTH
        acls = text("/consumers/a") + OPEN_ACL + bytes(4)
        assert ruled.ask(stranger, SET_ACL, acls) == NO_AUTH
    assert ruled.get(bob, "/consumers/a/offsets") == NO_AUTH
    assert ruled.get(eve, "/consumers/a/offsets") == 0
    # Also whether a node is there isn't told.
    assert ruled.ask(bob, EXISTS, text("/consumers/a/offsets") + b"\0") == NO_AUTH
    assert ruled.ask(bob, EXISTS, text("/consumers/a/nothing") + b"\0") == NO_AUTH
    assert ruled.create(bob, "/consumers/a/offsets") == NO_AUTH
    assert ruled.ask(bob, GET_ACL, text("/consumers/a")) == NO_AUTH


def test_lists_show_what_may_be_described(ruled: Guarded) -> None:
    shown = {
        name: (ruled.children(peer, "/consumers"), ruled.children(peer, "/brokers/topics"))
        for name in ("alice", "bob", "eve", "dave", "carol")
        if (peer := ruled.user(name))
    }
    assert shown["alice"] == (["a"], ["clicks"])
    assert shown["bob"] == (["b"], ["views"])
    assert shown["eve"] == (["a"], [])
    assert shown["dave"] == ([], [])
    assert shown["carol"] == (["a", "b"], ["clicks", "views"])
    peer = ruled.user("alice")
    ruled.ask(peer, EXISTS, text("/consumers") + b"\0")
    assert struct.unpack_from(">i", peer.answers[-1], 20 + 4 * 8 + 3 * 4 + 8 + 4) == (0,)
    ruled.ask(peer, CHILDREN2, text("/consumers") + b"\0")
    assert struct.unpack_from(">i", peer.answers[-1][-12:]) == (1,)


def test_lists_are_those_of_now(ruled: Guarded) -> None:
    alice, internal = ruled.user("alice"), ruled.user(INTERNAL)
    assert ruled.children(alice, "/consumers") == ["a"]
    assert ruled.rules is not None
    before = ruled.rules.rules
    ruled.rules.rules = (*before, rule("alice", "describe", group="b"))
    assert ruled.children(alice, "/consumers") == ["a", "b"]
    ruled.rules.rules = before
    assert ruled.children(alice, "/consumers") == ["a"]
    ruled.create(internal, "/consumers/c")
    ruled.ask(internal, DELETE, text("/consumers/a") + struct.pack(">i", -1))
    assert ruled.children(alice, "/consumers") == []


def test_a_name_is_looked_at_once(ruled: Guarded) -> None:
    asked: list[str] = []
    names = {f"t{number}": b"%d" % number for number in range(100)}

    def may(name: str) -> bool:
        asked.append(name)
        return name.endswith("7")

    assert ruled.shown is not None
    for _ in range(3):
        shown = ruled.shown.select("alice", "/brokers/topics", names, may)
    assert shown == [b"%d" % number for number in range(7, 100, 10)]
    assert len(asked) == 100
    names["new7"] = b"new"
    assert ruled.shown.select("alice", "/brokers/topics", names, may)[-1] == b"new"
    assert len(asked) == 101
    ruled.shown.select("bob", "/brokers/topics", names, may)
    assert len(asked) == 202


def test_what_is_remembered_of_lists_is_bounded(ruled: Guarded) -> None:
    names = {f"t{number}": b"" for number in range(30_000)}
    assert ruled.shown is not None
    for number in range(20):
        ruled.shown.select(f"user-{number}", "/brokers/topics", names, lambda name: False)
    assert ruled.shown._count <= 200_000
    assert len(ruled.shown._known) == 6


def test_brokers_are_the_brokers_own(ruled: Guarded) -> None:
    alice, carol = ruled.user("alice"), ruled.user("carol")
    assert ruled.get(alice, "/brokers/ids/0") == 0
    assert ruled.create(alice, "/brokers/ids/1") == NO_AUTH
    assert ruled.ask(alice, DELETE, text("/brokers/ids/0") + bytes(4)) == NO_AUTH
    assert ruled.ask(alice, SET, text("/brokers/topics/clicks") + text("") + bytes(4)) == NO_AUTH
    assert ruled.create(alice, "/anything") == NO_AUTH
    assert ruled.get(alice, "/zookeeper/config") == NO_AUTH
    assert ruled.create(carol, "/brokers/ids/1") == 0


def test_a_sequence_number_makes_no_other_group(ruled: Guarded) -> None:
    ruled.rules.rules = (*ruled.rules.rules, rule("mallory", "group", group="c"))  # type: ignore[union-attr]
    mallory = ruled.user("mallory")
    assert ruled.create(mallory, "/consumers/c", flags=2) == NO_AUTH
    assert ruled.create(mallory, "/consumers/c") == 0
    assert ruled.create(mallory, "/consumers/c/member-", flags=3) == 0


def test_a_transaction_is_refused_as_a_whole(bench: Any, ruled: Guarded) -> None:
    alice = ruled.user("alice")
    zxid = bench.state.tree.zxid
    head = struct.pack(">i?i", CREATE, False, -1)
    parts = [
        head + text(path) + text("") + OPEN_ACL + bytes(4)
        for path in ("/consumers/a/mine", "/consumers/b/theirs")
    ]
    end = struct.pack(">i?i", -1, True, -1)
    assert ruled.ask(alice, MULTI, b"".join(parts) + end) == 0
    results = alice.answers[-1][20:]
    assert struct.unpack(">i?ii i?ii i?i".replace(" ", ""), results) == (
        *(-1, False, 0, 0),
        *(-1, False, NO_AUTH, NO_AUTH),
        *(-1, True, -1),
    )
    assert "/consumers/a/mine" not in bench.state.tree.nodes
    assert bench.state.tree.zxid == zxid
    check = struct.pack(">i?i", CHECK, False, -1) + text("/consumers/b") + struct.pack(">i", -1)
    ruled.ask(alice, MULTI, check + end)
    assert struct.unpack_from(">i?ii", alice.answers[-1], 20) == (-1, False, NO_AUTH, NO_AUTH)


def test_watches_tell_nothing_that_may_not_be_read(bench: Any, ruled: Guarded) -> None:
    alice, bob = ruled.user("alice"), ruled.user("bob")
    internal = ruled.user(INTERNAL)
    ruled.children(alice, "/brokers/topics", watch=True)
    ruled.children(bob, "/brokers/topics", watch=True)
    ruled.create(internal, "/brokers/topics/secret")
    assert alice.events == bob.events == []
    ruled.ask(internal, DELETE, text("/brokers/topics/clicks") + struct.pack(">i", -1))
    assert len(alice.events) == 1  # the watch was still set
    assert bob.events == []
    # Those of a former connection, with what has happened since.
    watches = bytes(8) + b"".join(
        struct.pack(">i", 1) + text(path)
        for path in ("/consumers/a", "/consumers/a/new", "/consumers/a")
    )
    assert ruled.ask(bob, SET_WATCHES, watches) == 0
    ruled.create(internal, "/consumers/a/new")
    assert bob.events == []
    assert ruled.ask(alice, SET_WATCHES, watches) == 0
    assert len(alice.events) > 1


def test_rules_are_those_of_now(ruled: Guarded) -> None:
    alice = ruled.user("alice")
    assert ruled.get(alice, "/consumers/a", watch=True) == 0
    assert ruled.rules is not None
    ruled.rules.rules = (rule("bob", "group", group="a"),)
    assert ruled.get(alice, "/consumers/a") == NO_AUTH
    bob = ruled.user("bob")
    assert ruled.ask(bob, SET, text("/consumers/a") + text("x") + struct.pack(">i", -1)) == 0
    assert alice.events == []  # which it would have been told
    ruled.rules.is_on = False
    assert ruled.get(alice, "/consumers/a") == 0


def test_rules_decide_in_place_of_acls(ruled: Guarded) -> None:
    alice, carol = ruled.user("alice"), ruled.user("carol")
    own = acl((31, "auth", ""))
    body = text("/consumers/a/owners") + text("") + own + bytes(4)
    assert ruled.ask(alice, CREATE, body) == 0
    assert ruled.create(carol, "/consumers/a/owners/clicks") == 0
    assert ruled.ask(carol, CREATE, text("/own") + text("") + own + bytes(4)) == 0
    ruled.rules.rules = (*ruled.rules.rules, rule("dan", *Operation))  # type: ignore[union-attr]
    assert ruled.get(ruled.user("dan"), "/own") == NO_AUTH  # an ACL as in any ZooKeeper
