"""An S3 server that knows nothing of conditions: puts replace what there is, unless refused."""

import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["Refusal", "careless_s3"]


Refusal = tuple[int, str] | None
"""The status and code that a put is refused by; None if it isn't."""


@contextmanager
def careless_s3(
    refuse: Callable[[str, bool], Refusal] = lambda path, is_there: None,
) -> Iterator[tuple[str, dict[str, bytes]]]:
    """Serve; the URL, and the objects by their paths.

    Args:
        refuse: asked about each put, by the path and whether it is there.
    """
    objects: dict[str, bytes] = {}
    lock = threading.Lock()

    class Careless(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *arguments: object) -> None: ...

        def do_PUT(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            with lock:
                refused = refuse(self.path, self.path in objects)
                if refused is None:
                    objects[self.path] = content
            if refused is None:
                self._answer(200)
            else:
                self._answer(refused[0], f"<Error><Code>{refused[1]}</Code></Error>".encode())

        def do_GET(self) -> None:
            if "list-type" in self.path:
                self._answer(200, b"<ListBucketResult><Name>b</Name></ListBucketResult>")
            elif self.path in objects:
                self._answer(200, objects[self.path])
            else:
                self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")

        def do_HEAD(self) -> None:
            self._answer(200 if self.path in objects else 404)

        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            keys = re.findall(rb"<Key>(.*?)</Key>", asked)
            for key in keys:
                objects.pop(f"{self.path.partition('?')[0].rstrip('/')}/{key.decode()}", None)
            deleted = b"".join(b"<Deleted><Key>%b</Key></Deleted>" % each for each in keys)
            self._answer(200, b"<DeleteResult>%b</DeleteResult>" % deleted)

        def do_DELETE(self) -> None:
            objects.pop(self.path, None)
            self._answer(204)

        def _answer(self, status: int, content: bytes = b"") -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("ETag", '"x"')
            self.send_header("Last-Modified", "Sun, 22 Nov 2026 19:00:00 GMT")
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Careless)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", objects
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)
