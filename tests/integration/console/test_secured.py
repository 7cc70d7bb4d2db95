"""The console, the registry and a mirror of a broker that lets in nobody without a password.

One real `twistd -n hermes`: everything that it serves wants users, and its own parts come in by the
listener that is theirs alone.
"""

import base64
import json
import re
import ssl
import time
from collections.abc import Callable, Iterator
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import confluent_kafka as kafka
import pytest
from certificates import Certificates
from hermes_testkit import BrokerProcess

from hermes.client import SyncProducer
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.schemas import RegistryClient
from hermes.schemas.records import RecordWriter
from hermes.security import ClientSecurity
from hermes.security.users_file import change_users_file
from hermes.testing import running_broker

PASSWORDS = {
    "root": "the-root-of-1-it-all",
    "alice": "alice-2-in-chains",
    "bob": "bob-the-3-builder",
    "carol": "carol-sings-4-you",
}
RULES = [
    {"principal": "root", "operations": ["all"]},
    {"principal": "alice", "operations": ["consume"], "topic": "clicks"},
    {"principal": "alice", "operations": ["group"], "group": "readers"},
    {"principal": "bob", "operations": ["describe"], "topic": "*"},
]
SECRET = b"the-payload-of-secret"


class Secured:
    """The broker, and browsers of it."""

    def __init__(
        self, process: BrokerProcess, port: int, kafka_port: int, connect: str, ca: Path
    ) -> None:
        self.process = process
        self.port = port
        self.kafka_port = kafka_port
        self.connect = connect
        self.ca = ca

    def browser(self) -> "Browser":
        return Browser(self)


class Browser:
    """One connection that keeps cookies, or brings a user's name and password."""

    def __init__(self, secured: Secured, user: str = "") -> None:
        context = ssl.create_default_context(cafile=str(secured.ca))
        self._connection = HTTPSConnection("localhost", secured.port, timeout=60, context=context)
        self.cookies: dict[str, str] = {}
        both = f"{user}:{PASSWORDS.get(user, '')}".encode()
        proof = {"Authorization": f"Basic {base64.b64encode(both).decode()}"}
        self._headers = proof if user else {}

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> Any:
        headers = {**self._headers, "Cookie": "; ".join(map("=".join, self.cookies.items()))}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self._connection.request(method, path, urlencode(form) if form else None, headers)
        response: Any = self._connection.getresponse()
        response.text = response.read().decode(errors="replace")
        for cookie in response.headers.get_all("Set-Cookie", ()):
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return response

    def get(self, path: str) -> tuple[int, str]:
        response = self.ask("GET", path)
        return response.status, response.text

    def log_in(self, user: str, password: str | None = None) -> Any:
        form = self.ask("GET", "/")
        token = re.search('name="csrf" value="([^"]+)"', form.text)[1]  # type: ignore[index]
        given = PASSWORDS[user] if password is None else password
        return self.ask(
            "POST", "/login", {"csrf": token, "user": user, "password": given, "back": "/"}
        )

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, certificates: Certificates
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    users = folder / "users"
    for name, password in PASSWORDS.items():
        change_users_file(
            users, lambda found, n=name, p=password: found.with_user(n, p), may_create=True
        )
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
    pair = certificates.server
    tls = {"tls": {"certificate": str(pair.certificate), "key": str(pair.key)}}
    with running_broker() as source:
        with SyncProducer(source.host, source.port) as producer:
            messages = encode_message_set([b"from elsewhere"])
            producer.send_acknowledged([ProduceRequest("mirrored", 0, messages)], Acks.FLUSHED)
        process = BrokerProcess(
            folder / "broker",
            {
                "log_dir": str(folder / "log"),
                "listen": listener,
                "kafka_listen": listener,
                "coordination": "embedded",
                "coordination_listen": listener,
                "http_listen": {**listener, **tls},
                "users_file": str(users),
                "access": RULES,
                "console_actions": True,
                "ready_file": str(folder / "ready"),
                "mirror": {
                    "name": "m",
                    "sources": [{"name": "s", "brokers": [f"{source.host}:{source.port}"]}],
                    "whitelist": "mirrored",
                },
            },
        )
        ready = json.loads((folder / "ready").read_text())
        made = Secured(
            process,
            ready["http_listen"][0]["port"],
            ready["kafka_listen"][0]["port"],
            ready["zookeeper_connect"],
            certificates.ca,
        )
        try:
            fill(made)
            yield made
        finally:
            process.stop()
    said = "".join(process.lines)
    assert "Traceback" not in said, said
    assert not [each for each in (*PASSWORDS.values(), SECRET.decode()) if each in said]


def fill(secured: Secured) -> None:
    root = {"user": "root", "password": PASSWORDS["root"]}
    with SyncProducer("127.0.0.1", secured.process.port, **root) as producer:  # type: ignore[arg-type]
        for topic, payload in (("clicks", b"a-click"), ("secret", SECRET), ("hermes-audit", b"")):
            request = ProduceRequest(topic, 0, encode_message_set([payload]))
            producer.send_acknowledged([request], Acks.FLUSHED)
    session = Session(secured.connect, security=ClientSecurity(**root))
    session.start()
    places = {("clicks", BrokerPartition(0, 0)): 0, ("secret", BrokerPartition(0, 0)): 0}
    for group in ("readers", "others"):
        store_offsets(session, group, places)
    session.stop()


@pytest.fixture
def browser(secured: Secured) -> Iterator[Callable[[str], Browser]]:
    made: list[Browser] = []

    def make(user: str = "") -> Browser:
        made.append(Browser(secured, user))
        return made[-1]

    yield make
    for each in made:
        each.close()


Make = Callable[..., Browser]


def test_nothing_but_the_form_is_shown_to_who_has_no_password(browser: Make) -> None:
    nobody = browser()
    for path in ("/", "/topics", "/topics/clicks", "/topics/clicks/download", "/brokers"):
        response = nobody.ask("GET", path)
        assert response.status == 401
        assert 'name="user"' in response.text
        assert "clicks</" not in response.text
    cookie = browser().ask("GET", "/").headers["Set-Cookie"] or ""
    assert "hermes_session" in str(nobody.cookies)
    assert "Secure" in cookie
    assert "HttpOnly" in cookie
    assert nobody.log_in("alice", "wrong").status == 403


def test_a_user_sees_what_the_rules_allow(browser: Make) -> None:
    alice = browser()
    assert alice.log_in("alice").headers["Location"] == "/"
    status, overview = alice.get("/")
    assert status == 200
    assert "clicks" in overview
    for word in ("secret", "others", "hermes-schemas", "mirrored"):
        assert word not in overview
    assert re.search(r'data-live="topics">\s*1<|>1</dd>', overview)
    assert "secret" not in alice.get("/topics")[1]
    assert "secret" not in alice.get("/groups")[1]
    group = alice.get("/groups/readers")[1]
    assert "/topics/clicks/messages" in group
    assert "secret" not in group
    assert "a-click" in alice.get("/topics/clicks/messages")[1]
    assert alice.get("/topics/clicks")[0] == 200
    refused = {
        "/topics/secret": 404,
        "/topics/secret/messages": 404,
        "/topics/secret/download": 404,
        "/topics/secret/raw?offset=0": 404,
        "/topics/secret/message?offset=0": 404,
        "/topics/secret/live": 404,
        "/topics/secret/tail": 404,
        "/topics/secret/redrive?to=topic": 404,
        "/topics/nothing": 404,
        "/groups/others": 404,
        "/groups/others/reset?to=latest": 404,
        "/groups/nothing": 404,
        "/brokers": 403,
        "/brokers/0": 403,
        "/mirrors": 403,
    }
    for path, expected in refused.items():
        status, text = alice.get(path)
        assert (status, SECRET.decode() in text) == (expected, False), path
    hidden, missing = (alice.get(f"/topics/{name}")[1] for name in ("secret", "nothing"))
    assert hidden.replace("secret", "nothing") == missing


def test_who_may_only_describe_sees_no_messages(browser: Make) -> None:
    bob = browser("bob")
    assert "secret" in bob.get("/topics")[1]
    assert bob.get("/topics/secret")[0] == 200
    for page in ("messages", "download", "live", "tail", "raw?offset=0", "message?offset=0"):
        status, text = bob.get(f"/topics/secret/{page}")
        assert (status, SECRET.decode() in text) == (403, False)
        assert "consume from topic" in text


def test_who_has_no_rule_sees_nothing(browser: Make) -> None:
    carol = browser("carol")
    for path in ("/", "/topics", "/groups", "/audit"):
        status, text = carol.get(path)
        assert status == 200
        assert not [word for word in ("clicks", "secret", "readers") if word in text]
    for path in ("/metrics", "/registry/subjects", "/brokers", "/schemas", "/schemas/clicks"):
        assert carol.get(path)[0] == 403


def test_who_may_everything_sees_everything(browser: Make) -> None:
    root = browser("root")
    paths = ("/topics/secret/messages", "/brokers/0", "/groups/others", "/metrics", "/mirrors")
    for path in (*paths, "/schemas"):
        assert root.get(path)[0] == 200, path
    assert SECRET.decode() in root.get("/topics/secret/messages")[1]
    assert "hermes-audit 0-0" not in root.get("/audit")[1]  # what could not be read
    assert json.loads(root.get("/registry/hermes")[1])["problem"] == ""


def test_who_administers_sees_users_and_rules(browser: Make) -> None:
    root = browser("root")
    asked = {"principal": "alice", "operation": "consume", "kind": "topic", "name": "secret"}
    status, text = root.get(f"/security?{urlencode(asked)}")
    assert status == 200
    for name in ("root", "alice", "bob", "carol"):
        assert f">{name}</th><td></td><td>SCRAM-SHA-256" in text
    assert 'alice</td><td>consume</td><td>topic <span class="mono">clicks</span>' in text
    assert "Refused: none of the 4 rules of broker.yaml allows it" in text
    asked["name"] = "clicks"
    assert "Allowed: rule 2 of broker.yaml" in root.get(f"/security?{urlencode(asked)}")[1]
    status, text = root.get("/security?q=bo&principal=root&operation=group&kind=cluster")
    assert re.search(r"\b1 of \d+ users\.", text)
    assert ">alice</th>" not in text
    assert "Refused: group is not done to a cluster" in text
    assert not re.search(r"[A-Za-z0-9+/]{20,}=", text)  # nothing of a verifier
    assert 'href="/security"' in text


def test_nobody_else_sees_users_and_rules(browser: Make) -> None:
    for user in ("alice", "bob", "carol"):
        someone = browser(user)
        assert someone.get("/security")[0] == 403
        assert 'href="/security"' not in someone.get("/")[1]


def test_records_are_read_with_the_registry_that_wants_users(
    secured: Secured, browser: Make
) -> None:
    """By the broker's own HTTP port; for whoever may see schemas, which alice may not."""
    url = f"https://localhost:{secured.port}/registry"
    root: dict[str, Any] = {"user": "root", "password": PASSWORDS["root"]}
    client = RegistryClient(url, tls_ca=str(secured.ca), **root)
    fields = [{"name": "clicked", "type": "string"}]
    schema = json.dumps({"type": "record", "name": "Click", "fields": fields})
    payload = RecordWriter(client, schema).write("clicks", {"clicked": "something"})
    client.close()
    with SyncProducer("127.0.0.1", secured.process.port, **root) as producer:
        request = ProduceRequest("clicks", 0, encode_message_set([payload]))
        producer.send_acknowledged([request], Acks.FLUSHED)
    shown = "&#34;clicked&#34;"
    looking, end = browser("root"), time.monotonic() + 60
    while shown not in looking.get("/topics/clicks/messages")[1]:  # pages are a second old
        assert time.monotonic() < end, looking.get("/topics/clicks/messages")[1]
        time.sleep(0.05)
    alice = browser("alice").get("/topics/clicks/messages")
    assert (alice[0], shown in alice[1]) == (200, False)


def test_only_the_offsets_of_ones_own_group_are_moved(browser: Make) -> None:
    alice, bob = browser("alice"), browser("bob")
    preview = alice.get("/groups/readers/reset?to=latest")[1]
    assert "secret" not in preview
    assert bob.get("/groups/readers/reset?to=latest")[0] == 404
    token = re.search('name="csrf" value="([^"]+)"', preview)[1]  # type: ignore[index]
    other = json.dumps([["secret", "0-0", 0, 1]])
    form = {"csrf": token, "changes": other}
    assert alice.ask("POST", "/groups/readers/reset", form).status == 404
    assert alice.ask("POST", "/groups/others/reset", form).status == 404
    own = {"csrf": token, "changes": json.dumps([["clicks", "0-0", 0, 17]])}
    assert alice.ask("POST", "/groups/readers/reset", own).status == 303
    assert ">17<" in alice.get("/groups/readers")[1]


def test_only_ones_own_group_of_kafkas_clients_is_moved_and_deleted(
    secured: Secured, browser: Make
) -> None:
    """By a port of the broker's own: kafka_listen lets in nobody without a password."""
    root = {
        "bootstrap.servers": f"127.0.0.1:{secured.kafka_port}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "root",
        "sasl.password": PASSWORDS["root"],
        "log_level": 0,
    }
    for group in ("readers", "others"):
        consumer = kafka.Consumer({**root, "group.id": group})
        places = [kafka.TopicPartition(topic, 0, 0) for topic in ("clicks", "secret")]
        consumer.commit(offsets=places, asynchronous=False)
        consumer.close()
    alice, bob = browser("alice"), browser("bob")
    end = time.monotonic() + 60
    while alice.get("/groups/readers?kind=kafka")[0] != 200:  # pages are a second old
        assert time.monotonic() < end, "the group is not shown"
        time.sleep(0.05)
    preview = alice.get("/groups/readers/reset?kind=kafka&to=latest")[1]
    assert "secret" not in preview
    assert bob.get("/groups/readers/reset?kind=kafka&to=latest")[0] == 404
    token = re.search('name="csrf" value="([^"]+)"', preview)[1]  # type: ignore[index]
    other = {"csrf": token, "changes": json.dumps([["secret", "0", 0, 1]])}
    own = {"csrf": token, "changes": json.dumps([["clicks", "0", 0, 17]])}
    assert alice.ask("POST", "/groups/readers/reset?kind=kafka", other).status == 404
    assert alice.ask("POST", "/groups/others/reset?kind=kafka", own).status == 404
    assert alice.ask("POST", "/groups/readers/reset?kind=kafka", own).status == 303
    assert ">17<" in alice.get("/groups/readers?kind=kafka")[1]
    confirm = {"csrf": token, "confirm": "readers"}
    assert alice.ask("POST", "/groups/others/delete?kind=kafka", confirm).status == 404
    assert alice.ask("POST", "/groups/readers/delete?kind=kafka", confirm).status == 303
    assert alice.get("/groups/readers?kind=kafka")[0] == 404
    line = secured.process.wait_for_line("console: 'alice' at 127.0.0.1 deleted group 'readers'")
    assert "hermes-internal" not in line


def test_topics_are_created_altered_and_deleted_by_the_rules(
    secured: Secured, browser: Make
) -> None:
    alice, root = browser("alice"), browser("root")
    tokens = {
        each: re.search('name="csrf" value="([^"]+)"', each.get("/create-topic")[1])[1]  # type: ignore[index]
        for each in (alice, root)
    }

    def post(who: Browser, path: str, **form: str) -> int:
        return int(who.ask("POST", path, {"csrf": tokens[who], **form}).status)

    new = {"name": "made", "format": "kafka"}
    change = {"flush_messages": "7", "was-flush_messages": "1"}
    delete = {"delete": "1", "confirm": "made"}
    assert post(alice, "/create-topic", **new) == 400
    assert post(root, "/create-topic", **new, csrf="0") == 403
    assert post(root, "/create-topic", **new) == 303
    assert post(alice, "/topics/made/settings", **delete) == 404
    assert post(alice, "/topics/clicks/settings", **change) == 403
    assert post(alice, "/topics/clicks/settings", delete="1", confirm="clicks") == 403
    assert post(root, "/topics/made/settings", **change) == 303
    message = {"value": "text", "payload": "typed"}
    assert post(alice, "/topics/clicks/produce", **message) == 403
    assert post(alice, "/topics/made/produce", **message) == 404
    assert post(root, "/topics/made/produce", **message) == 303
    assert post(root, "/topics/made/settings", **delete) == 303
    assert alice.get("/topics/clicks")[0] == 200
    for deed in ("created topic 'made'", "altered topic 'made'", "deleted topic 'made'"):
        secured.process.wait_for_line(f"console: 'root' at 127.0.0.1 {deed}")


def test_the_mirror_comes_in_by_the_brokers_own_listener(secured: Secured) -> None:
    logs = secured.process.log_dir
    end = time.monotonic() + 60
    found = b""
    while b"from elsewhere" not in found:
        assert time.monotonic() < end, "the mirror writes nothing"
        found = b"".join(map(Path.read_bytes, logs.glob("mirrored-*/*.kafka")))
        time.sleep(0.05)
    line = secured.process.wait_for_line("the mirror runs as process")
    process = Path("/proc", line.rpartition(" ")[2].strip())
    for name in ("cmdline", "environ"):
        assert b"hermes-internal" not in (process / name).read_bytes()


def test_a_session_ends_with_the_user(secured: Secured, browser: Make, tmp_path: Path) -> None:
    users = secured.process.log_dir.parent / "users"
    change_users_file(users, lambda found: found.with_user("dora", "dora-explores-5"))
    PASSWORDS["dora"] = "dora-explores-5"
    end = time.monotonic() + 60
    dora = browser()
    while dora.log_in("dora").status != 303:
        assert time.monotonic() < end, "dora is not known"
    assert dora.get("/topics")[0] == 200
    change_users_file(users, lambda found: found.without("dora"))
    while dora.get("/topics")[0] != 401:
        assert time.monotonic() < end, "dora's session lasts"
