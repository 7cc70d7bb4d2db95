"""Requests as bytes, responses as bytes; the clock is the test's."""

from functools import partial
from typing import Any

import pytest
from twisted.internet.error import ConnectionDone
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.web.resource import Resource
from twisted.web.server import NOT_DONE_YET

from hermes.web import CONTENT_SECURITY_POLICY, AcceptedHosts, Root, Site, write_json
from hermes.web import site as sites
from hermes.web.site import MAX_BODY_BYTES


class _Shown(Resource):
    """Says which path it was asked for, and how long the body was."""

    isLeaf = True

    def render(self, request: Any) -> bytes:
        path = "/".join(each.decode() for each in request.postpath)
        body = len(request.content.read())
        return write_json(request, {"path": path, "body": body, "args": len(request.args)})


class _Broken(Resource):
    isLeaf = True

    def render(self, request: Any) -> bytes:
        raise ValueError("a secret of the process")


class _Client:
    def __init__(self, *, fallback: bool = True) -> None:
        root = Root()
        root.add("open", _Shown(), any_host=True)
        root.add("mine", _Shown())
        root.add("broken", _Broken())
        if fallback:
            root.fallback = _Shown()
        self.clock = Clock()
        self.site = Site(root, AcceptedHosts(), self.clock)
        self.transport = StringTransport()
        self.channel = self.site.buildProtocol(None)
        self.channel.makeConnection(self.transport)

    def ask(self, path: str, *headers: str, method: str = "GET", body: bytes = b"") -> str:
        lines = [f"{method} {path} HTTP/1.1", *headers, "", ""]
        self.transport.clear()
        self.channel.dataReceived("\r\n".join(lines).encode() + body)
        return self.transport.value().decode()

    def close(self) -> None:
        self.channel.connectionLost(Failure(ConnectionDone()))
        assert not self.clock.getDelayedCalls()


@pytest.fixture
def client() -> Any:
    client = _Client()
    yield client
    client.close()


def test_a_response_has_the_headers_that_restrict_a_browser(client: _Client) -> None:
    response = client.ask("/mine/a", "Host: localhost:9093")
    assert response.startswith("HTTP/1.1 200 OK\r\n")
    for header in (
        f"Content-Security-Policy: {CONTENT_SECURITY_POLICY}",
        "X-Content-Type-Options: nosniff",
        "X-Frame-Options: DENY",
        "Cache-Control: no-store",
        "Server: Hermes",
    ):
        assert f"\r\n{header}\r\n" in response
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_another_site_in_a_browser_gets_nothing(client: _Client) -> None:
    for headers in (["Host: evil.example"], ["Host: localhost", "Host: evil.example"], []):
        response = client.ask("/mine", *headers)
        assert response.startswith("HTTP/1.1 403 Forbidden")
        assert "http_hosts" in response
        assert '"path"' not in response
        client.close()
        client.__init__()  # type: ignore[misc]


def test_what_programs_ask_may_name_any_host(client: _Client) -> None:
    assert client.ask("/open/x", "Host: broker-7.internal").startswith("HTTP/1.1 200")
    assert client.ask("/%6fpen/x", "Host: broker-7.internal").startswith("HTTP/1.1 403")
    assert client.ask("/mine/../open/x", "Host: evil.example").startswith("HTTP/1.1 403")


@pytest.mark.parametrize("path", ["/", "/topics", "/topics/clicks/messages"])
def test_the_fallback_sees_the_whole_path(client: _Client, path: str) -> None:
    assert f'"path": "{path[1:]}"' in client.ask(path, "Host: localhost")


def test_without_a_fallback_a_page_says_what_there_is() -> None:
    client = _Client(fallback=False)
    response = client.ask("/", "Host: localhost")
    assert response.startswith("HTTP/1.1 404 Not Found")
    assert "/broken, /mine, /open" in response
    client.close()


@pytest.mark.parametrize(
    ("accept", "content_type", "text"),
    [
        ("text/html,*/*", "text/html; charset=utf-8", "<h1>404 Not Found</h1>"),
        ("application/json", "application/json", '"status": 404'),
        ("*/*", "text/plain; charset=utf-8", "404 Not Found: nothing"),
    ],
)
def test_an_error_comes_as_the_client_reads_it(accept: str, content_type: str, text: str) -> None:
    client = _Client(fallback=False)
    response = client.ask("/no", "Host: localhost", f"Accept: {accept}")
    assert f"Content-Type: {content_type}\r\n" in response
    assert text in response
    client.close()


def test_a_fault_is_logged_and_not_shown(client: _Client, monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[Any] = []
    monkeypatch.setattr(
        client.site.limited_log,
        "failure",
        lambda kind, text, failure, **rest: logged.append(failure),
    )
    response = client.ask("/broken", "Host: localhost")
    assert response.startswith("HTTP/1.1 500 Internal Server Error")
    assert "secret" not in response
    assert "a secret of the process" in str(logged[0])


def test_a_body_of_the_limit_is_read(client: _Client) -> None:
    body = b"x" * MAX_BODY_BYTES
    length = f"Content-Length: {len(body)}"
    response = client.ask("/mine", "Host: localhost", length, method="POST", body=body)
    assert f'"body": {len(body)}' in response


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/x-www-form-urlencoded", b"a=1&b=2"),
        ("multipart/form-data; boundary=x", b"--x\r\nContent-Disposition: form-data"),
    ],
)
def test_a_form_is_left_to_who_wants_one(client: _Client, kind: str, body: bytes) -> None:
    """To read it takes up to a quarter of a second of the reactor's, whoever sends it."""
    headers = ("Host: localhost", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
    response = client.ask("/mine", *headers, method="POST", body=body)
    assert response.startswith("HTTP/1.1 200 ")
    assert f'"body": {len(body)}' in response
    assert '"args": 0' in response


def test_a_body_that_announces_more_is_refused_before_it_comes(client: _Client) -> None:
    length = f"Content-Length: {MAX_BODY_BYTES + 1}"
    response = client.ask("/mine", "Host: localhost", length, method="POST", body=b"x" * 10)
    assert response.startswith("HTTP/1.1 413 ")
    assert f"at most {MAX_BODY_BYTES} bytes" in response
    assert client.transport.disconnecting


def test_a_body_in_chunks_is_refused_as_soon_as_it_is_too_long(client: _Client) -> None:
    chunk = b"%x\r\n" % 8192 + b"x" * 8192 + b"\r\n"
    headers = ("Host: localhost", "Transfer-Encoding: chunked")
    response = client.ask("/mine", *headers, method="POST", body=chunk * 8)
    assert response == ""
    client.channel.dataReceived(chunk * 4 + b"0\r\n\r\n")
    response = client.transport.value().decode()
    assert response.startswith("HTTP/1.1 413 ")
    assert response.count("HTTP/1.1") == 1


def test_idle_connections_end_without_a_word(client: _Client) -> None:
    client.ask("/mine", "Host: localhost")
    client.clock.advance(client.site.timeOut + 1)
    assert client.transport.disconnecting


def test_a_request_that_comes_byte_by_byte_ends_with_the_same_patience(client: _Client) -> None:
    for byte in b"GET /mine HTTP/1.1\r\nX: " + b"x" * 10:
        client.channel.dataReceived(bytes([byte]))
        client.clock.advance(client.site.timeOut / 20)
    assert client.transport.disconnecting


def test_a_waiting_connection_gives_way_to_a_new_one_but_a_request_does_not(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sites, "MAX_CONNECTIONS", 1)
    monkeypatch.setattr(client.transport, "abortConnection", client.close)
    assert client.site.buildProtocol(None) is not None
    client.__init__()  # type: ignore[misc]
    client.site._root.add("never", _Never())
    client.ask("/never", "Host: localhost")
    assert client.site.buildProtocol(None) is None


def test_each_of_many_that_come_at_once_takes_the_place_of_another(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reactor accepts many in a turn; who was aborted is told so in the next one."""
    monkeypatch.setattr(sites, "MAX_CONNECTIONS", 2)
    aborted: list[int] = []
    for number in range(6):
        channel = client.site.buildProtocol(None)
        transport = StringTransport()
        monkeypatch.setattr(transport, "abortConnection", partial(aborted.append, number))
        channel.makeConnection(transport)
        channel.setTimeout(None)
    assert aborted == [0, 1, 2, 3]  # after the test's own, of two at a time


def test_a_peer_that_does_not_take_its_last_response_is_cut_off(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would have its place, and the response its memory, for as long as it likes."""
    aborted: list[bool] = []
    monkeypatch.setattr(client.transport, "abortConnection", lambda: aborted.append(True))
    client.ask("/mine", "Host: localhost", "Connection: close")
    assert client.transport.disconnecting
    client.clock.advance(sites.CLOSING_SECONDS - 1)
    assert not aborted
    client.clock.advance(2)
    assert aborted


class _Full(StringTransport):
    """Has enough after each write, until it is read."""

    def write(self, data: bytes) -> None:
        super().write(data)
        if self.producer is not None:
            self.producer.pauseProducing()

    def read(self) -> bytes:
        found = self.value()
        self.clear()
        self.producer.resumeProducing()
        return found


def test_requests_that_have_come_wait_while_responses_are_unread() -> None:
    """Else eighty kilobytes of requests cost as many responses as they hold, in memory."""
    client = _Client()
    client.transport = _Full()
    client.channel.connectionLost(Failure(ConnectionDone()))
    client.channel = client.site.buildProtocol(None)
    client.channel.makeConnection(client.transport)
    client.channel.dataReceived(b"GET /mine HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    for _ in range(3):
        assert client.transport.value().count(b"HTTP/1.1 200 ") == 1
        assert client.transport.producerState == "paused"
        client.transport.read()
    assert client.transport.value() == b""
    assert client.transport.producerState == "producing"
    client.close()


class _Never(Resource):
    def render(self, _: Any) -> int:
        return NOT_DONE_YET


@pytest.mark.parametrize(
    "target", ["http://localhost/open", "x/open/../mine", "pen/open", "open", "?/open"]
)
def test_what_is_no_path_reaches_nothing(client: _Client, target: str) -> None:
    for host in ("evil.example", "localhost"):
        assert client.ask(target, f"Host: {host}").startswith("HTTP/1.1 400 ")


def test_what_twisted_fails_to_read_closes_the_connection_with_a_line(
    client: _Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[bool] = []
    lines: list[str] = []
    monkeypatch.setattr(client.transport, "abortConnection", lambda: aborted.append(True))
    monkeypatch.setattr(client.site.limited_log, "warn", lambda kind, *_, **__: lines.append(kind))
    client.ask("/mine", "Host: localhost", "Content-Length: " + "9" * 5000)
    assert (aborted, lines) == ([True], ["unreadable"])


def test_a_client_of_the_broker_learns_at_once_that_this_is_http(client: _Client) -> None:
    client.channel.dataReceived(b"\0\0\0\x0c")
    assert client.transport.value().startswith(b"HTTP/1.1 400 ")
    assert client.transport.disconnecting


@pytest.mark.parametrize(
    ("site", "target", "status"),
    [
        ("cross-site", "image", 403),
        ("cross-site", "iframe", 403),
        ("same-site", "empty", 403),  # another port of this machine
        ("cross-site", "document", 200),  # a link
        ("same-origin", "empty", 200),
        ("none", "document", 200),
    ],
)
def test_pages_of_other_sites_can_link_here_and_no_more(
    client: _Client, site: str, target: str, status: int
) -> None:
    headers = ["Host: localhost", f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Dest: {target}"]
    assert client.ask("/mine", *headers).startswith(f"HTTP/1.1 {status} ")
