"""The registry as a resource of a site: bytes in, bytes out; threads are the test's own."""

import json

import pytest
from at_once import NoThreads, Reactor
from memory_registry import MemoryRegistry
from twisted.internet.testing import StringTransport

from hermes.registry import rest
from hermes.registry.limits import MAX_BODY_BYTES
from hermes.registry.rest import RegistryResource
from hermes.registry.store import finished
from hermes.web import AcceptedHosts, Root, Site

SCHEMA = '{"type": "record", "name": "A", "fields": []}'


class Client:
    """One connection to a registry at `/registry`, or at the top."""

    def __init__(self, store=None, *, at_top=False):
        self.reactor, self.answered = Reactor(), []
        hosts = AcceptedHosts(["known.example"])
        resource = RegistryResource(
            self.reactor,
            store or MemoryRegistry(),
            hosts,
            prefix="registry" if at_top else "",
            on_answered=lambda *told: self.answered.append(told[:2]),
        )
        root = Root()
        if at_top:
            root.fallback = resource
        else:
            root.add("registry", resource, any_host=True)
        self.channel = Site(root, hosts, self.reactor).buildProtocol(None)
        self.transport = StringTransport()
        self.transport.abortConnection = self.transport.loseConnection
        self.channel.makeConnection(self.transport)

    def ask(self, method, path, body=None, *headers, host="any.example"):
        body = json.dumps(body).encode() if isinstance(body, dict) else body or b""
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", *headers]
        if body or method in ("POST", "PUT"):
            lines.append(f"Content-Length: {len(body)}")
        self.transport.clear()
        self.channel.dataReceived("\r\n".join([*lines, "", ""]).encode() + body)
        head, _, rest_ = self.transport.value().partition(b"\r\n\r\n")
        self.head = head.decode()
        status = int(self.head.split(" ")[1])
        return status, json.loads(rest_) if rest_.startswith((b"{", b"[")) else rest_


@pytest.fixture(autouse=True)
def threads(monkeypatch):
    monkeypatch.setattr(rest, "ThreadPool", NoThreads)


@pytest.fixture
def client():
    return Client()


def test_a_schema_comes_and_goes(client):
    assert client.ask("GET", "/registry/subjects") == (200, [])
    status, answer = client.ask("POST", "/registry/subjects/s/versions", {"schema": SCHEMA})
    assert (status, answer["id"], answer["version"]) == (200, 1, 1)
    assert "Content-Type: application/vnd.schemaregistry.v1+json" in client.head
    assert client.ask("GET", "/registry/schemas/ids/1/schema")[1]["name"] == "A"
    assert client.ask("GET", "/registry/subjects/s/versions/latest")[1]["id"] == 1
    assert client.ask("DELETE", "/registry/subjects/s") == (200, [1])
    status, answer = client.ask("GET", "/registry/subjects/s/versions")
    assert (status, answer["error_code"]) == (404, 40401)
    assert client.answered[:3] == [("subjects", 200), ("register", 200), ("schema", 200)]


def test_slashes_at_the_end_and_in_names(client):
    client.ask("POST", "/registry/subjects/a%2Fb%C3%A9/versions/", {"schema": SCHEMA})
    assert client.ask("GET", "/registry/subjects/") == (200, ["a/b\u00e9"])
    assert client.ask("GET", "/registry/") == (200, {})
    assert client.ask("GET", "/registry") == (200, {})


def test_at_the_top_it_is_served_with_and_without_its_prefix():
    client = Client(at_top=True)
    client.ask("POST", "/subjects/s/versions", {"schema": SCHEMA}, host="localhost")
    for path in ("/subjects", "/registry/subjects"):
        assert client.ask("GET", path, host="localhost") == (200, ["s"])


def test_what_is_asked_is_passed_on_as_it_came():
    asked = []

    class Forwarding(MemoryRegistry):
        def write(self, change, ask):
            asked.append(ask)
            return super().write(change, ask)

    for client, path in (
        (Client(Forwarding()), "/registry/subjects/a%2Fb/versions?normalize=false"),
        (Client(Forwarding(), at_top=True), "/registry/subjects/a%2Fb/versions?normalize=false"),
        (Client(Forwarding(), at_top=True), "/subjects/a%2Fb/versions?normalize=false"),
    ):
        body = {"schema": SCHEMA}
        client.ask("POST", path, body, "X-Hermes-Forwarded: 1", host="localhost")
        assert asked[-1].target == "subjects/a%2Fb/versions?normalize=false"
        assert asked[-1].was_forwarded
        assert json.loads(asked[-1].body) == body


def test_what_is_not_here_is_looked_for_once_more():
    class Following(MemoryRegistry):
        behind = True

        def refresh(self):
            changed, self.behind = self.behind, False
            if changed:
                client = Client(self)
                client.ask("POST", "/registry/subjects/s/versions", {"schema": SCHEMA})
            return finished(changed)

    client = Client(Following())
    assert client.ask("GET", "/registry/schemas/ids/1")[0] == 200
    assert client.ask("GET", "/registry/schemas/ids/2")[1]["error_code"] == 40403


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("GET", "/registry/nowhere", None, 404),
        ("GET", "/registry/subjects/s/versions/1/2/3/4", None, 404),
        ("PUT", "/registry/subjects", b"{}", 405),
        ("PATCH", "/registry/subjects", None, 405),
        ("GET", "/registry/subjects//versions", None, 42208),
        ("GET", "/registry/subjects/%00/versions", None, 42208),
        ("GET", "/registry/subjects/%ff/versions", None, 422),
        ("GET", "/registry/subjects/" + "x" * 2000, None, 405),
        ("DELETE", "/registry/subjects/" + "x" * 2000, None, 42208),
        ("GET", "/registry/subjects/s/versions/0", None, 42202),
        ("GET", "/registry/subjects/s/versions/99999999999", None, 42202),
        ("GET", "/registry/subjects?deleted=maybe", None, 422),
        ("GET", "/registry/subjects?offset=x", None, 422),
        ("GET", "/registry/subjects?" + "a=b&" * 500, None, 422),
        ("GET", "/registry/schemas/ids/one", None, 422),
        ("GET", "/registry/schemas/ids/" + "9" * 100, None, 422),
        ("GET", "/registry/schemas/guids/x", None, 40403),
        ("POST", "/registry/subjects/s/versions", b"", 422),
        ("POST", "/registry/subjects/s/versions", b"[]", 422),
        ("POST", "/registry/subjects/s/versions", b"[" * 100_000, 422),
        ("POST", "/registry/subjects/s/versions", b'{"schema": 1}', 42201),
        ("POST", "/registry/subjects/s/versions", b'{"schema": " "}', 42201),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "\\"int\\"", "id": 0}', 422),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "\\"int\\"", "id": 7}', 42205),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "1", "schemaType": 1}', 42201),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "1", "references": {}}', 42201),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "1", "references": [1]}', 42201),
        ("POST", "/registry/subjects/s/versions", b'{"schema": "1", "metadata": []}', 42201),
        ("PUT", "/registry/config", b'{"compatibility": 7}', 42203),
        ("PUT", "/registry/config", b'{"compatibility": ["NONE"]}', 42203),
        ("PUT", "/registry/mode", b'{"mode": ["IMPORT"]}', 42204),
        ("PUT", "/registry/config", b'{"overrideMetadata": {"a": 1}}', 422),
        ("PUT", "/registry/config", b'{"normalize": "yes"}', 422),
        ("PUT", "/registry/mode", b"{}", 42204),
        ("POST", "/registry/associations", b"{}", 422),
    ],
)
def test_what_is_refused(client, method, path, body, code):
    status, answer = client.ask(method, path, body)
    assert answer["error_code"] == code
    assert status == (code if code < 1000 else code // 100)
    assert answer["message"].isprintable()
    assert len(answer["message"]) < 1000
    assert client.ask("GET", "/registry/subjects") == (200, [])


def test_large_schemas_are_accepted_up_to_a_limit(client):
    def body(length):
        text = json.dumps({"type": "fixed", "name": "F", "size": 1, "x": "y" * length})
        return json.dumps({"schema": text}).encode()

    fits = body(MAX_BODY_BYTES - 1000)
    assert client.ask("POST", "/registry/subjects/s/versions", fits)[0] == 200
    status, reason = client.ask("POST", "/registry/subjects/s/versions", body(MAX_BODY_BYTES))
    assert (status, reason) == (413, b"a body has at most 900000 bytes here\n")


def test_a_schema_that_grows_too_large_for_the_log(client):
    text = '{"type": "int", "x": [' + ",".join(["1e15"] * 100_000) + "]}"  # 1000000000000000.0
    status, answer = client.ask("POST", "/registry/subjects/s/versions", {"schema": text})
    assert (status, answer["error_code"]) == (422, 42201)
    assert "bytes in the registry's log" in answer["message"]


BROWSERS = [
    ("known.example", ["Origin: http://known.example"], 200),
    ("known.example", ["Sec-Fetch-Site: same-origin"], 200),
    ("known.example", ["Sec-Fetch-Site: none", "User-Agent: Mozilla/5.0"], 200),
    ("known.example", ["Origin: http://evil.example"], 403),
    ("known.example", ["Origin: null"], 403),
    ("known.example", ["Sec-Fetch-Site: cross-site"], 403),
    ("known.example", ["Sec-Fetch-Site: same-site"], 403),
    # a name of the attacker's that leads here
    ("evil.example", ["Origin: http://evil.example"], 403),
    ("evil.example", ["Sec-Fetch-Site: same-origin"], 403),
    ("evil.example", ["User-Agent: Mozilla/5.0"], 403),
    ("any.example", ["User-Agent: curl/8"], 200),
]


@pytest.mark.parametrize(("host", "headers", "status"), BROWSERS)
def test_pages_of_other_sites_can_not_ask(client, host, headers, status):
    path, body = "/registry/subjects/s/versions", {"schema": SCHEMA}
    assert client.ask("POST", path, body, *headers, host=host)[0] == status
    assert client.ask("GET", "/registry/subjects", None, *headers, host=host)[0] == status


def test_a_fault_is_logged_and_told_without_a_traceback(monkeypatch):
    class Broken(MemoryRegistry):
        def reading(self):
            raise ZeroDivisionError

    client = Client(Broken())
    status, answer = client.ask("GET", "/registry/subjects")
    assert (status, answer["error_code"]) == (500, 50001)
    assert "log says more" in answer["message"]


def test_a_schema_is_not_put_together_with_its_references(client):
    client.ask("POST", "/registry/subjects/a/versions", {"schema": SCHEMA})
    references = [{"name": "A", "subject": "a", "version": 1}]
    body = {"schema": '{"type": "array", "items": "A"}', "references": references}
    client.ask("POST", "/registry/subjects/b/versions", body)
    for path in ("schemas/ids/", "subjects/b/versions/"):
        last = 2 if path.startswith("schemas") else 1
        assert client.ask("GET", f"/registry/{path}{last}")[0] == 200
        assert client.ask("GET", f"/registry/{path}{last}?format=resolved")[0] == 422
    assert client.ask("GET", "/registry/schemas/ids/1?format=resolved")[0] == 200


def test_head_is_get_without_a_body(client):
    status, body = client.ask("HEAD", "/registry/subjects")
    assert (status, body) == (200, b"")
    assert "Content-Length: 2" in client.head
