"""HTTP where a port has TLS and wants users: who is given what, over real sockets."""

import base64
import json
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from certificates import Certificates
from server_process import free_ports

from hermes.testing import RunningBroker, running_broker

EXAMPLES = Path(__file__).parents[3] / "examples" / "monitoring"
USERS = {"alice": "wonder-1-land", "bob": "build-2-it", "carol": "sing-3-it"}


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(settings=settings, tls=True, users=USERS) as running:
        yield running


class Site:
    """The HTTP port of a broker, as somebody."""

    def __init__(self, broker: RunningBroker, user: str = "", password: str | None = None) -> None:
        assert broker.http is not None
        self._url = broker.http
        self._context = ssl.create_default_context(cafile=str(broker.tls_ca))
        given = password if password is not None else USERS.get(user, "")
        self._headers = {"Authorization": basic(user, given)} if user else {}

    def get(self, path: str, **headers: str) -> tuple[int, str, Any]:
        request = urllib.request.Request(f"{self._url}{path}", headers={**self._headers, **headers})
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as response:
                return response.status, response.read().decode(), response.headers
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(), error.headers

    def post(self, path: str, body: bytes) -> tuple[int, str]:
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self._url}{path}", body, headers, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60, context=self._context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def status(self, path: str) -> int:
        return self.get(path)[0]


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_health_is_everybodys_and_the_rest_wants_a_user(broker: RunningBroker) -> None:
    nobody, alice = Site(broker), Site(broker, "alice")
    assert nobody.status("/health/live") == 200
    assert nobody.status("/health/ready") == 200
    for path in ("/metrics", "/registry/subjects", "/registry/hermes", "/x", "/%6detrics"):
        status, text, headers = nobody.get(path)
        assert status == 401, path
        assert headers["WWW-Authenticate"] == 'Basic realm="Hermes", charset="UTF-8"'
        assert "hermes_topics" not in text
    assert alice.status("/metrics") == 200
    # It has read its topic: it came in by the broker's own listener.
    assert json.loads(alice.get("/registry/subjects")[1]) == []
    assert json.loads(alice.get("/registry/hermes")[1])["problem"] == ""


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "wrong")])
def test_a_wrong_password_is_as_an_unknown_user(
    broker: RunningBroker, user: str, password: str
) -> None:
    status, text, _ = Site(broker, user, password).get("/metrics")
    assert (status, text) == (
        401,
        "401 Unauthorized: there is no such user with this password\n",
    )


def test_a_registrys_client_gets_its_errors_as_it_knows_them(broker: RunningBroker) -> None:
    status, text, _ = Site(broker, "alice", "wrong").get("/registry/subjects")
    assert (status, json.loads(text)["error_code"]) == (401, 401)


def test_browsers_are_told_never_to_come_without_tls(broker: RunningBroker) -> None:
    name = "Strict-Transport-Security"
    for path in ("/health/live", "/metrics"):
        assert Site(broker).get(path, Host="kafka1:9095")[2][name] == "max-age=31536000"
        # It would go for every program of this machine.
        assert Site(broker).get(path, Host="localhost:9095")[2][name] is None


def test_plain_http_at_the_port_gets_nothing(broker: RunningBroker) -> None:
    place = urlsplit(str(broker.http))
    with socket.create_connection((str(place.hostname), int(place.port or 0)), 60) as raw:
        raw.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert not raw.recv(4096).startswith(b"HTTP")


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Basic " + "A" * 9000},
        {"Authorization": "Basic " + "A" * 60_000},
        {"Authorization": "Basic =="},
        {"Authorization": "Basic \xff"},
        {"Authorization": "Digest username=alice"},
        {"Authorization": ""},
    ],
)
def test_odd_headers_are_refused_and_others_served(
    broker: RunningBroker, headers: dict[str, str]
) -> None:
    place = urlsplit(str(broker.http))
    context = ssl.create_default_context(cafile=str(broker.tls_ca))
    connection = HTTPSConnection(str(place.hostname), place.port, timeout=60, context=context)
    try:
        connection.request("GET", "/metrics", headers=headers)
        assert connection.getresponse().status in (400, 401)
    except OSError:
        pass  # closed on it: more than all headers may have
    finally:
        connection.close()
    assert Site(broker, "alice").status("/metrics") == 200


def test_a_password_that_is_withdrawn_opens_nothing_soon(tmp_path: Path) -> None:
    from hermes.security.users_file import change_users_file

    settings = {"http_listen": "tcp:0:interface=127.0.0.1"}
    with running_broker(tmp_path / "log", settings, tls=True, users=USERS) as broker:
        bob, alice = Site(broker, "bob"), Site(broker, "alice")
        assert (bob.status("/metrics"), alice.status("/metrics")) == (200, 200)
        change_users_file(users_file(broker), lambda users: users.without("bob"))
        end = time.monotonic() + 60
        while bob.status("/metrics") != 401:
            assert time.monotonic() < end, "bob is still served"
        assert alice.status("/metrics") == 200


RULES = [
    {"principal": "alice", "operations": ["describe"]},
    {"principal": "bob", "operations": ["produce"], "topic": "hermes-schemas"},
]


def test_rules_decide_over_metrics_and_the_registry() -> None:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1", "access": RULES}
    with running_broker(settings=settings, tls=True, users=USERS) as broker:
        alice, bob, carol = Site(broker, "alice"), Site(broker, "bob"), Site(broker, "carol")
        assert alice.status("/metrics") == 200
        status, text, _ = bob.get("/metrics")
        assert (status, text) == (
            403,
            "403 Forbidden: 'bob' may not describe the cluster: an access rule has to allow it\n",
        )
        subjects, schemas = "/registry/subjects", "/registry/subjects/s/versions"
        assert [each.status(subjects) for each in (alice, bob, carol)] == [200, 200, 403]
        schema = json.dumps({"schema": '"int"'}).encode()
        assert alice.post(schemas, schema)[0] == 403
        assert carol.post(schemas, schema)[0] == 403
        assert bob.post(schemas, schema)[0] == 200
        assert alice.post("/registry/compatibility/subjects/s/versions", schema)[0] == 200
        assert "'carol' may not see schemas" in carol.get("/registry/schemas/ids/1")[1]
        assert json.loads(alice.get(subjects)[1]) == ["s"]
        counted = alice.get("/metrics")[1]
        assert 'hermes_http_requests_refused_total{reason="not_authorized"} 1.0' in counted


def users_file(broker: RunningBroker) -> Path:
    assert broker.tls_ca is not None
    (found,) = Path(broker.tls_ca).parent.glob("*users*")
    return found


def test_prometheus_scrapes_with_the_example(tmp_path: Path) -> None:
    """The real one, with a user's password over TLS; the example's names stand for this broker."""
    settings = {
        "http_listen": "tcp:0:interface=127.0.0.1",
        "access": [{"principal": "prometheus", "operations": ["describe"]}],
    }
    users = {"prometheus": "scrapes-4-ever"}
    with running_broker(settings=settings, tls=True, users=users) as broker:
        (tmp_path / "prometheus.password").write_text(users["prometheus"] + "\n")
        assert broker.tls_ca is not None
        (tmp_path / "ca.pem").write_bytes(Path(broker.tls_ca).read_bytes())
        text = (EXAMPLES / "prometheus-tls.yaml").read_text(encoding="utf-8")
        place = urlsplit(str(broker.http)).netloc
        text = text.replace("kafka1.example.org:9095, kafka2.example.org:9095", place)
        assert place in text
        (tmp_path / "prometheus.yaml").write_text(text.replace("15s", "1s"), encoding="utf-8")
        promtool = ["promtool", "check", "config", str(tmp_path / "prometheus.yaml")]
        assert subprocess.run(promtool, capture_output=True).returncode == 0
        (port,) = free_ports(1)
        command = [
            "prometheus",
            f"--config.file={tmp_path / 'prometheus.yaml'}",
            f"--storage.tsdb.path={tmp_path / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with (tmp_path / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path)
            try:
                assert _scraped(port), (tmp_path / "log").read_text()
            finally:
                process.terminate()
                process.wait(60)


def _scraped(port: int) -> bool:
    """Whether Prometheus says that its target is up, before long."""
    url = f"http://127.0.0.1:{port}/api/v1/query?query=hermes_topics"
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=60) as response:
                if json.load(response)["data"]["result"]:
                    return True
        except OSError:
            pass
        time.sleep(0.05)
    return False


def test_certificates_name_who_asks_and_the_users_file_their_groups(
    tmp_path: Path, certificates: Certificates
) -> None:
    from hermes.security.users_file import change_users_file

    users = tmp_path / "users"
    change_users_file(
        users, lambda found: found.with_user("alice", None, ["watchers"]), may_create=True
    )
    pair = certificates.server
    settings = {
        "users_file": str(users),
        "access": [{"principal": "group:watchers", "operations": ["describe"]}],
        "http_listen": {
            "endpoint": "tcp:0:interface=127.0.0.1",
            "authentication": "tls",
            "tls": {
                "certificate": str(pair.certificate),
                "key": str(pair.key),
                "client_ca": str(certificates.ca),
            },
        },
    }

    def status(broker: RunningBroker, path: str, given: Any) -> int:
        context = ssl.create_default_context(cafile=str(certificates.ca))
        if given is not None:
            context.load_cert_chain(given.certificate, given.key)
        place = urlsplit(str(broker.http))
        connection = HTTPSConnection("127.0.0.1", place.port, timeout=60, context=context)
        try:
            connection.request("GET", path)
            return connection.getresponse().status
        finally:
            connection.close()

    with running_broker(tmp_path / "log", settings) as broker:
        assert status(broker, "/metrics", certificates.client("alice")) == 200
        assert status(broker, "/metrics", certificates.client("mallory")) == 403
        assert status(broker, "/health/live", certificates.client("mallory")) == 200
        bad = (certificates.untrusted_client, certificates.expired_client, None)
        for each in bad:  # all but the last of whom are called alice
            with pytest.raises(OSError, match=r"(?i)alert|reset|closed|EOF|broken"):
                status(broker, "/metrics", each)
