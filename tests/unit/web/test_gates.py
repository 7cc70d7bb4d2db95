"""Which requests a listener's gate lets pass, over a connection in memory."""

import base64

import pytest
from twisted.internet.defer import Deferred, succeed
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.web.resource import Resource

from hermes.errors import HermesError
from hermes.interfaces import User
from hermes.web import AcceptedHosts, Logins, Root, Rule, Site, WebGate

USERS = {"alice": "wonder", "bob": "build"}


class Page(Resource):
    isLeaf = True

    def render(self, request):
        return f"for {request.principal}".encode()


def only_alice(principal):
    return principal == "alice"


def root():
    made = Root()
    made.add("health", Page(), any_host=True, rule=Rule(is_open=True))
    made.add("metrics", Page(), any_host=True, rule=Rule(allows=only_alice, action="look"))
    made.add("plain", Page())
    made.fallback = Page()
    made.fallback_rule = Rule(logs_in=True)
    return made


def check(address, user, password):
    return succeed(User(user) if USERS.get(user) == password else None)


def scram(refused=lambda reason: None, check=check):
    return WebGate("scram", Logins(lambda: 1, check), refused=refused)


def connect(gate):
    channel = Site(root(), AcceptedHosts(), Clock(), gate).buildProtocol(None)
    transport = StringTransport()
    channel.makeConnection(transport)
    return channel, transport


def ask(gate, path, *headers):
    channel, transport = connect(gate)
    channel.dataReceived(request(path, *headers))
    return response(transport)


def request(path, *headers):
    lines = [f"GET {path} HTTP/1.1".encode(), b"Host: localhost", *headers]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def response(transport):
    head, _, body = transport.value().partition(b"\r\n\r\n")
    return int(head.split()[1]), head, body


def as_user(user, password):
    return b"Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode())


ALICE, BOB = as_user("alice", "wonder"), as_user("bob", "build")


def test_a_request_is_from_whom_the_users_name_not_from_what_was_typed():
    """A directory may find names in any case; access rules go by one."""

    def check(address, user, password):
        return succeed(User(user.lower()) if USERS.get(user.lower()) == password else None)

    gate = scram(check=check)
    for _ in range(2):  # the second one is remembered
        assert ask(gate, "/plain", as_user("ALICE", "wonder"))[2] == b"for alice"


@pytest.mark.parametrize(
    ("path", "headers", "status", "body"),
    [
        ("/health", [], 200, b"for None"),
        ("/health", [as_user("alice", "guess")], 200, b"for None"),
        ("/metrics", [ALICE], 200, b"for alice"),
        ("/metrics", [BOB], 403, b"may not look"),
        ("/metrics", [], 401, b"are needed"),
        ("/metrics", [as_user("alice", "guess")], 401, b"no such user with this password"),
        ("/metrics", [as_user("nobody", "guess")], 401, b"no such user with this password"),
        ("/metrics", [ALICE, ALICE], 401, b"one Authorization header"),
        ("/metrics", [b"Authorization: Basic !"], 401, b"Base64"),
        ("/plain", [BOB], 200, b"for bob"),
        ("/plain", [], 401, b"are needed"),
        # However it is written, it is what is mounted that decides.
        ("/%6Detrics", [], 401, b"are needed"),
        ("/metrics/", [], 401, b"are needed"),
        ("/metrics?x=/health", [], 401, b"are needed"),
        ("/health/../metrics", [], 200, b"for None"),  # of /health: no dots are resolved
        # The console asks for a password itself.
        ("/", [], 200, b"for None"),
        ("/topics", [BOB], 200, b"for bob"),
        ("/topics", [as_user("bob", "guess")], 401, b"no such user with this password"),
        ("//metrics", [], 200, b"for None"),  # the fallback's page, not the metrics
    ],
)
def test_who_gets_what_with_passwords(path, headers, status, body):
    found, head, text = ask(scram(), path, *headers)
    assert found == status, text
    assert body in text
    assert (b'WWW-Authenticate: Basic realm="Hermes", charset="UTF-8"' in head) == (status == 401)


def test_without_authentication_everybody_is_anonymous():
    assert b"for anonymous" in ask(WebGate(), "/plain")[2]
    assert b"for anonymous" in ask(WebGate(), "/plain", ALICE)[2]
    assert ask(WebGate(), "/metrics", ALICE)[0] == 403


def test_a_certificate_names_who_asks():
    assert b"for carol" in ask(WebGate("tls", name_of=lambda request: "carol"), "/plain")[2]
    status, head, text = ask(WebGate("tls"), "/plain", ALICE)
    assert (status, b"WWW-Authenticate" in head) == (401, False)
    assert b"certificate" in text


def test_refusals_are_counted():
    counted = []
    gate = scram(counted.append)
    ask(gate, "/metrics")
    ask(gate, "/metrics", BOB)
    ask(gate, "/metrics", ALICE)
    ask(gate, "/health")
    assert counted == ["not_authenticated", "not_authorized"]


def test_who_leaves_while_the_password_is_checked_gets_nothing():
    checked = Deferred()
    channel, transport = connect(scram(check=lambda *given: checked))
    channel.dataReceived(request("/plain", ALICE))
    assert not transport.value()
    channel.connectionLost()
    checked.callback(User("alice"))
    assert not transport.value()


def test_an_answer_waits_for_the_check():
    checked = Deferred()
    channel, transport = connect(scram(check=lambda *given: checked))
    channel.dataReceived(request("/plain", ALICE))
    checked.callback(User("alice"))
    assert response(transport)[0] == 200


def test_while_users_can_not_be_looked_up_nobody_is_told_to_be_wrong():
    checked = Deferred()
    channel, transport = connect(scram(check=lambda *given: checked))
    channel.dataReceived(request("/plain", ALICE))
    checked.errback(HermesError("no directory at ldap.example.org"))
    status, head, text = response(transport)
    assert (status, b"Retry-After: 5" in head, b"ldap" in text) == (503, True, False)


def test_a_check_that_fails_tells_no_more_than_that():
    checked = Deferred()
    channel, transport = connect(scram(check=lambda *given: checked))
    channel.dataReceived(request("/plain", ALICE))
    checked.errback(ValueError("the users file"))
    status, _, text = response(transport)
    assert status == 500
    assert b"users file" not in text


def statuses(transport):
    return [int(each.split()[0]) for each in transport.value().split(b"HTTP/1.1 ")[1:]]


def test_each_request_of_a_connection_says_who_it_is_from():
    channel, transport = connect(scram())
    channel.dataReceived(request("/plain", ALICE) + request("/plain") + request("/plain", BOB))
    assert statuses(transport) == [200, 401, 200]
    assert b"for alice" in transport.value()
    assert b"for bob" in transport.value()


def test_what_a_body_holds_is_no_request():
    inner = request("/metrics", ALICE)
    for head in (b"", BOB):
        channel, transport = connect(scram())
        lines = [b"POST /metrics HTTP/1.1", b"Host: localhost", b"Content-Length: %d" % len(inner)]
        channel.dataReceived(b"\r\n".join([*lines, *([head] if head else []), b"", b""]) + inner)
        assert statuses(transport) == [403 if head else 401]


@pytest.mark.parametrize(
    "lines",
    [
        [b"Content-Length: 5", b"Transfer-Encoding: chunked"],
        [b"Content-Length: 5", b"Content-Length: 50"],
        [b"Content-Length: +5"],
        [b"Transfer-Encoding: chunked, identity"],
        [b"Authorization : Basic x"],
    ],
)
def test_what_two_servers_could_read_differently_ends_the_connection(lines):
    channel, transport = connect(scram())
    head = b"\r\n".join([b"POST /plain HTTP/1.1", b"Host: localhost", ALICE, *lines, b"", b""])
    channel.dataReceived(head + b"0\r\n\r\n" + request("/metrics", ALICE))
    assert statuses(transport) in ([400], [])
    assert transport.disconnecting
