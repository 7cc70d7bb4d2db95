"""An OpenID provider on loopback: its keys, and tokens for whoever asks."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

__all__ = ["AUDIENCE", "Issuer", "running_issuer"]

AUDIENCE = "hermes"


class Issuer:
    """One provider.

    Attributes:
        url: what tokens have as `iss`.
        keys: the pairs that it signs with, the last one.
        asked: how often its keys were asked for.
        answers: whether it does.
        life_seconds: of tokens that clients fetch.
        claims: what these tokens have in addition.
    """

    def __init__(self) -> None:
        self.url = ""
        self.keys: list[RSAKey | ECKey] = [RSAKey.generate_key(2048, {"kid": "first"})]
        self.asked = 0
        self.answers = True
        self.life_seconds = 300.0
        self.claims: dict[str, Any] = {}

    def rotate(self) -> None:
        """Sign with another key from now on, which is of another kind."""
        self.keys = [ECKey.generate_key("P-256", {"kid": f"key {len(self.keys)} and more"})]

    def claims_of(self, subject: str, **claims: Any) -> dict[str, Any]:
        now = time.time()
        known = {"iss": self.url, "aud": AUDIENCE, "sub": subject, "iat": now, "exp": now + 300}
        return {name: value for name, value in {**known, **claims}.items() if value is not None}

    def token(self, subject: str, **claims: Any) -> str:
        """A token for a subject; claims that are None are left out."""
        key = self.keys[-1]
        algorithm = "RS256" if isinstance(key, RSAKey) else "ES256"
        header = {"alg": algorithm, "kid": key.kid}
        return jwt.encode(header, self.claims_of(subject, **claims), key, algorithms=[algorithm])

    def page(self, path: str) -> Mapping[str, Any] | None:
        if path == "/.well-known/openid-configuration":
            return {"issuer": self.url, "jwks_uri": f"{self.url}/keys"}
        if path == "/keys":
            self.asked += 1
            found: Mapping[str, Any] = KeySet(list(self.keys)).as_dict(private=False)
            return found
        if path == "/token":
            token = self.token("service", exp=time.time() + self.life_seconds, **self.claims)
            life = int(self.life_seconds)
            return {"access_token": token, "token_type": "bearer", "expires_in": life}
        return None


@contextmanager
def running_issuer() -> Iterator[Issuer]:
    issuer = Issuer()

    class Pages(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length") or 0))
            found = issuer.page(self.path) if issuer.answers else None
            body = json.dumps(found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            """Nothing needs to be said."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        issuer.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield issuer
        finally:
            server.shutdown()
            thread.join()
