"""The console as a resource of a site: bytes in, bytes out; threads are the test's own."""

import pytest
from at_once import NoThreads, Reactor
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from hermes.console.page_request import PageResponse
from hermes.console.site import ConsoleResource
from hermes.web import AcceptedHosts, Root, Site


class Console:
    """Remembers what it is asked, and answers what it is told to."""

    def __init__(self):
        self.asked = []
        self.reply = PageResponse(b"hello")

    def answer(self, ask):
        self.asked.append(ask)
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


class Client:
    def __init__(self):
        self.clock = Reactor()
        self.console = Console()
        root = Root()
        root.fallback = ConsoleResource(self.clock, self.console, NoThreads())
        self.channel = Site(root, AcceptedHosts(), self.clock).buildProtocol(None)
        self.transport = StringTransport()
        self.transport.abortConnection = self.transport.loseConnection
        self.channel.makeConnection(self.transport)

    def ask(self, path, *headers, method="GET", body=b""):
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", *headers, "", ""]
        self.transport.clear()
        self.channel.dataReceived("\r\n".join(lines).encode("latin-1") + body)
        self.run()
        return self.transport.value().decode()

    def run(self):
        while any(call.getTime() <= self.clock.seconds() for call in self.clock.getDelayedCalls()):
            self.clock.advance(0)


@pytest.fixture
def client():
    made = Client()
    yield made
    made.channel.connectionLost(Failure(ConnectionDone()))
    assert not made.clock.getDelayedCalls()


def test_a_request_becomes_plain_values(client):
    client.ask(
        "/groups/a%2Fb%20%C3%BC/x?q=1&q=%3Cb%3E&empty=", "Cookie: hermes_theme=dark; other=1"
    )
    (ask,) = client.console.asked
    assert (ask.method, ask.path) == ("GET", ("groups", "a/b ü", "x"))
    assert (ask.query, ask.form) == ({"q": "<b>", "empty": ""}, {})
    assert ask.theme == "dark"
    assert ask.client == "192.168.1.1"  # the transport's peer
    assert ask.here == "/groups/a%2Fb%20%C3%BC/x?q=1&q=%3Cb%3E&empty="


def test_a_form_is_read(client):
    body = b"csrf=abc&value=a+b%26"
    kind = "Content-Type: application/x-www-form-urlencoded; charset=utf-8"
    client.ask("/x?y=1", kind, f"Content-Length: {len(body)}", method="POST", body=body)
    (ask,) = client.console.asked
    assert (ask.method, ask.form, ask.query) == (
        "POST",
        {"csrf": "abc", "value": "a b&"},
        {"y": "1"},
    )


def test_a_body_that_is_no_form_has_no_fields(client):
    client.ask("/x", "Content-Type: text/plain", "Content-Length: 6", method="POST", body=b"csrf=a")
    assert client.console.asked[0].form == {}


@pytest.mark.parametrize("path", ["/%ff", "/?q=%ff", "/?" + "&".join(["a=1"] * 1001)])
def test_what_is_not_text_is_refused(client, path):
    assert client.ask(path).startswith("HTTP/1.1 400 ")
    assert client.console.asked == []


def test_other_methods_are_refused(client):
    response = client.ask("/", method="DELETE")
    assert response.startswith("HTTP/1.1 405 ")
    assert "\r\nAllow: GET, HEAD, POST\r\n" in response


def test_another_host_reaches_no_page(client):
    client.transport.clear()
    client.channel.dataReceived(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
    assert client.transport.value().startswith(b"HTTP/1.1 403 ")
    assert client.console.asked == []


def test_an_answer_is_sent_with_the_sites_headers_and_safe_cookies(client):
    client.console.reply = PageResponse(
        b"body", 418, headers={"X-More": "1"}, cookies={"hermes_session": "abc", "hermes_theme": ""}
    )
    response = client.ask("/")
    assert response.startswith("HTTP/1.1 418 ")
    assert "Content-Security-Policy: default-src 'none'" in response
    assert "\r\nX-More: 1\r\n" in response
    assert "Set-Cookie: hermes_session=abc; Path=/; HttpOnly; SameSite=Strict\r\n" in response
    assert "Set-Cookie: hermes_theme=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0" in response
    assert response.endswith("\r\n\r\nbody")


def test_a_head_has_no_body(client):
    response = client.ask("/", method="HEAD")
    assert "Content-Length: 5" in response
    assert response.endswith("\r\n\r\n")


def test_pieces_are_sent_as_they_are_made(client):
    sent = []

    def pieces():
        for piece in (b"one", b"two"):
            yield piece
            sent.append(client.transport.value())

    client.console.reply = PageResponse(pieces())
    assert client.ask("/").endswith("3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert sent[0].endswith(b"3\r\none\r\n")


def test_pieces_wait_for_a_client_that_reads_slowly(client):
    closed = []

    def pieces():
        try:
            while True:
                client.transport.producer.pauseProducing()
                yield b"piece"
        finally:
            closed.append(True)

    client.console.reply = PageResponse(pieces())
    assert client.ask("/").count("piece") == 1
    client.transport.producer.resumeProducing()
    client.run()
    assert client.transport.value().count(b"piece") == 2
    client.clock.advance(60)
    assert client.transport.disconnecting
    client.channel.connectionLost(Failure(ConnectionDone()))
    assert closed == [True]


def test_a_failure_between_pieces_cuts_the_response_off(client):
    def pieces():
        yield b"one"
        raise ValueError("a secret")

    client.console.reply = PageResponse(pieces())
    response = client.ask("/")
    assert "one" in response
    assert "secret" not in response
    assert client.transport.disconnecting


def test_a_failure_shows_nobody_a_traceback(client):
    client.console.reply = ValueError("a secret")
    response = client.ask("/")
    assert response.startswith("HTTP/1.1 500 ")
    assert "secret" not in response


def test_cookies_are_taken_as_they_come(client):
    client.ask("/", 'Cookie: a="x\\015\\012y"; b=' + "\\" * 16_000)  # to unquote it takes a second
    cookies = client.console.asked[0].cookies
    assert cookies == {"a": '"x\\015\\012y"', "b": "\\" * 16_000}


def test_who_left_before_a_thread_was_free_costs_nothing(client, monkeypatch):
    waiting = []
    monkeypatch.setattr(
        NoThreads, "callInThreadWithCallback", lambda _, *call: waiting.append(call)
    )
    client.ask("/")
    client.channel.connectionLost(Failure(ConnectionDone()))
    monkeypatch.undo()
    ((done, call, *rest),) = waiting
    NoThreads().callInThreadWithCallback(done, call, *rest)
    assert client.console.asked == []


def test_only_so_many_searches_are_under_way(client, monkeypatch):
    monkeypatch.setattr("hermes.console.site._MOST_STREAMS", 0)

    def pieces():
        yield b"never"

    client.console.reply = PageResponse(
        pieces(), headers={"Content-Disposition": "attachment; filename=x"}
    )
    response = client.ask("/")
    assert response.startswith("HTTP/1.1 503 ")
    assert "Content-Disposition" not in response
    assert "never" not in response


def test_a_console_that_can_not_be_closed_holds_up_no_stop():
    stopped = []

    class Threads(NoThreads):
        def stop(self):
            stopped.append(self)

    class Closed(Console):
        def close(self):
            raise OSError

    class InThreads(Reactor):
        def callInThread(self, call):
            with pytest.raises(OSError):
                call()

    threads = Threads()
    assert ConsoleResource(InThreads(), Closed(), threads).stop().called
    assert stopped == [threads]
