"""Calls sent on to whoever leads, and to what is no registry."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import pytest

from hermes.registry.errors import RegistryError
from hermes.registry.forwarding import Forwarder
from hermes.registry.rest_messages import RestRequest, RestResponse

ASK = RestRequest(
    "POST", ("subjects", "a/b", "versions"), {}, b"{}", "subjects/a%2Fb/versions?normalize=true"
)


class Leader(BaseHTTPRequestHandler):
    """Answers with what the test has put there."""

    kind: ClassVar[str] = "application/json"
    seen: ClassVar[list[tuple[str, str, bytes, str | None]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.seen.append((self.command, self.path, body, self.headers["X-Hermes-Forwarded"]))
        self.send_response(422)
        self.send_header("Content-Type", self.kind)
        self.end_headers()
        self.wfile.write(b'{"error_code":42201}')

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Leader) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/registry"
        server.shutdown()
        thread.join()


def test_a_call_goes_on_as_it_came_and_its_answer_comes_back(url: str) -> None:
    Leader.kind = "application/vnd.schemaregistry.v1+json"
    forwarder = Forwarder(60)
    assert forwarder.send(url, ASK) == RestResponse(422, b'{"error_code":42201}')
    path = "/registry/subjects/a%2Fb/versions?normalize=true"
    assert Leader.seen.pop() == ("POST", path, b"{}", "1")
    assert (forwarder.calls, forwarder.failures) == (1, 0)


def test_what_is_no_registry_is_told_from_one(url: str) -> None:
    Leader.kind = "text/html"
    with pytest.raises(RegistryError, match="is no registry") as caught:
        Forwarder(60).send(url, ASK)
    assert caught.value.code == 50003


def test_nobody_there_is_said() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    forwarder = Forwarder(60)
    with pytest.raises(RegistryError, match="can't be reached"):
        forwarder.send(url, ASK)
    assert forwarder.failures == 1


@pytest.mark.parametrize("how", ["another leads", "closed"])
def test_one_that_hangs_is_left(how: str) -> None:
    forwarder = Forwarder(600)
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as threads:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        sent = threads.submit(forwarder.send, url, ASK)
        connection, _ = listener.accept()
        with connection:
            while b"{}" not in connection.recv(65536):  # all of the call is there
                pass
            forwarder.abandon_others(url)
            assert not sent.done()
            forwarder.close() if how == "closed" else forwarder.abandon_others("http://other")
            with pytest.raises(RegistryError, match="has not answered"):
                sent.result(60)
    if how == "closed":
        with pytest.raises(RegistryError, match="being stopped"):
            forwarder.send(url, ASK)
