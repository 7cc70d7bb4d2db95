"""A schema registry that answers as Confluent's documentation says, and fails when it is told to.

It keeps its schemas in memory, and takes each for compatible unless a test says otherwise. What the
real one does is tested where it is; here are the faults that it hasn't.
"""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


class FakeRegistry:
    """Schemas in memory.

    Attributes:
        url: where it listens.
        asked: (method, path with its query) of each request, in order.
        headers: of the last one.
        faults: taken from, one for each request: a status to answer with, a body to answer with
            status 200, or a function that is called with the handler.
        incompatible: why the next schema is refused; empty if it isn't.
    """

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.headers: dict[str, str] = {}
        self.faults: list[int | bytes | Callable[[BaseHTTPRequestHandler], None]] = []
        self.incompatible = ""
        self.by_id: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self._lock = threading.Lock()
        self.url = ""

    def add(self, subject: str, text: str, schema_type: str = "AVRO", references: Any = ()) -> int:
        """Register a schema; returns its id."""
        body = {"schema": text, "schemaType": schema_type, "references": list(references)}
        with self._lock:
            ids = [number for number, each in self.by_id.items() if each == body]
            number = ids[0] if ids else len(self.by_id) + 1
            self.by_id[number] = body
            versions = self.subjects.setdefault(subject, [])
            if number not in versions:
                versions.append(number)
        return number

    def answer(self, method: str, path: str, body: Any) -> Answer:
        parts = [unquote(each) for each in urlsplit(path).path.strip("/").split("/")]
        match method, parts:
            case "GET", ["subjects"]:
                return 200, list(self.subjects)
            case "GET", ["schemas", "ids", number]:
                found = self.by_id.get(int(number))
                return (200, _shown(found)) if found else _unknown(40403, "Schema not found")
            case "GET", ["config", *_]:
                return 200, {"compatibilityLevel": "BACKWARD"}
            case _, ["subjects", subject, *rest]:
                return self._subject(method, subject, rest, body)
            case "POST", ["compatibility", "subjects", subject, "versions"]:
                if subject not in self.subjects:
                    return _unknown(40401, f"Subject '{subject}' not found.")
                reason = self.incompatible
                return 200, {"is_compatible": not reason, "messages": [reason] if reason else []}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def _subject(self, method: str, subject: str, rest: list[str], body: Any) -> Answer:
        if method == "POST" and rest == ["versions"]:
            if self.incompatible:
                return 409, {"error_code": 409, "message": self.incompatible}
            number = self.add(
                subject,
                body["schema"],
                body.get("schemaType", "AVRO"),
                body.get("references", ()),
            )
            return 200, {"id": number}
        if subject not in self.subjects:
            return _unknown(40401, f"Subject '{subject}' not found.")
        versions = self.subjects[subject]
        if method == "POST":
            for number in versions:
                if self.by_id[number]["schema"] == body["schema"]:
                    return 200, self._version(subject, versions.index(number) + 1)
            return _unknown(40403, "Schema not found")
        if rest == ["versions"]:
            return 200, list(range(1, len(versions) + 1))
        version = len(versions) if rest[1] == "latest" else int(rest[1])
        if not 0 < version <= len(versions):
            return _unknown(40402, f"Version {version} not found.")
        return 200, self._version(subject, version)

    def _version(self, subject: str, version: int) -> Any:
        number = self.subjects[subject][version - 1]
        place = {"subject": subject, "version": version, "id": number}
        return {**place, **_shown(self.by_id[number])}


def _shown(stored: dict[str, Any]) -> dict[str, Any]:
    """As Confluent's: neither AVRO nor an empty list is mentioned."""
    shown = {"schema": stored["schema"]}
    if stored["schemaType"] != "AVRO":
        shown["schemaType"] = stored["schemaType"]
    if stored["references"]:
        shown["references"] = stored["references"]
    return shown


def _unknown(code: int, text: str) -> Answer:
    return 404, {"error_code": code, "message": text}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    registry: ClassVar[FakeRegistry]

    def handle(self) -> None:
        with suppress(OSError):  # a client that doesn't trust us goes away
            super().handle()

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def _answer(self) -> None:
        registry = self.registry
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        registry.asked.append((self.command, self.path))
        registry.headers = dict(self.headers)
        fault = registry.faults.pop(0) if registry.faults else None
        if callable(fault):
            fault(self)
            return
        if isinstance(fault, bytes):
            self._send(200, fault)
            return
        if fault is not None:
            self._send(fault, json.dumps({"error_code": fault, "message": "told to"}).encode())
            return
        status, value = registry.answer(self.command, self.path, json.loads(data or b"null"))
        self._send(status, json.dumps(value).encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def hang_up(handler: BaseHTTPRequestHandler) -> None:
    """A fault: the connection ends without an answer."""
    handler.close_connection = True


@contextmanager
def fake_registry(tls: ssl.SSLContext | None = None) -> Iterator[FakeRegistry]:
    """Serve one on a free port of the loopback interface.

    Args:
        tls: for https; the handshakes are made in the threads of the connections.
    """
    registry = FakeRegistry()
    handler = type("Handler", (_Handler,), {"registry": registry, "timeout": 60})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    registry.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}"
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
