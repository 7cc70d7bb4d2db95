"""What is asked of a registry, how often, and what becomes of its faults."""

import json
import os
import socket
import ssl
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
from certificates import Certificates, Pair
from fake_registry import fake_registry, hang_up

from hermes.errors import (
    ArgumentError,
    ConfigError,
    IncompatibleSchemaError,
    RegistryUnavailableError,
    SchemaRegistryError,
    UnknownSchemaError,
)
from hermes.schemas import RegistryClient, SchemaReference
from hermes.schemas.addresses import CREDENTIALS, parse_addresses

TEXT = '{"type": "record", "name": "R", "fields": []}'


def test_a_schema_is_registered_once_and_looked_up_once(registry, client) -> None:
    assert client.register("clicks-value", TEXT) == client.register("clicks-value", TEXT) == 1
    assert client.by_id(1).text == client.by_id(1).text == TEXT
    assert registry.asked == [
        ("POST", "/subjects/clicks-value/versions"),
        ("GET", "/schemas/ids/1"),
    ]
    assert registry.headers["Accept"].startswith("application/vnd.schemaregistry.v1+json")


@pytest.mark.parametrize("schema", [json.loads(TEXT), [json.loads(TEXT), "null"]])
def test_a_schema_may_be_what_json_makes_of_its_text(registry, client, schema) -> None:
    assert client.register("s", schema) == client.register("s", schema) == 1
    assert json.loads(client.by_id(1).text) == schema
    assert client.id_of("s", schema) == 1
    assert client.incompatibilities("s", schema) == []
    assert client.register("s", json.dumps(schema)) == 1
    assert [method for method, _ in registry.asked].count("POST") == 3


@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("register", ("s", None), r"text: expected a schema as a str, a dict or a list, got None"),
        ("register", ("s", b"{}"), r"text: expected a schema as a str"),
        ("register", ("s", {"type": {1, 2}}), "text: it can't be written as JSON"),
        ("register", (7, TEXT), r"subject: expected a str, got 7 \(int\)"),
        ("register", ("s", TEXT, None), "schema_type: expected AVRO, JSON or PROTOBUF, got None"),
        ("register", ("s", TEXT, "AVRO", [("R", "s", 1)]), "references: expected a list of Sch"),
        ("register", ("s", TEXT, "AVRO", SchemaReference("R", "s", 1)), "references: expected"),
        ("id_of", (None, TEXT), "subject: expected a str"),
        ("id_of", ("s", 7), "text: expected a schema"),
        ("incompatibilities", ("s", 7), "text: expected a schema"),
        ("incompatibilities", ("s", TEXT, "AVRO", "R"), "references: expected"),
        ("by_id", ("1",), r"schema_id: expected a whole number, got '1' \(str\)"),
        ("by_id", ([],), "schema_id: expected a whole number"),
        ("version", ("s", "latest"), r"version: expected a whole number, .*latest\(\)"),
        ("version", (None, 1), "subject: expected a str"),
        ("latest", (None,), "subject: expected a str"),
        ("versions", (["s"],), "subject: expected a str"),
        ("texts", (TEXT,), "schema: expected a RegisteredSchema"),
    ],
)
def test_mistakes_are_named(registry, client, method, arguments, said: str) -> None:
    with pytest.raises(ArgumentError, match=f"^{said}"):
        getattr(client, method)(*arguments)
    assert registry.asked == []


@pytest.mark.parametrize("url", [7, None, b"http://a", ["http://a", 7], []])
def test_an_address_is_a_text(url) -> None:
    with pytest.raises(ConfigError, match=r"^registry: expected a URL"):
        RegistryClient(url)


def test_the_latest_is_asked_for_each_time(registry, client) -> None:
    registry.add("s", TEXT)
    first = client.latest("s")
    registry.add("s", '"string"')
    second = client.latest("s")
    assert (first.version, first.schema_id, first.text) == (1, 1, TEXT)
    assert (second.version, second.schema_id, second.text) == (2, 2, '"string"')
    assert client.versions("s") == [1, 2]
    assert client.subjects() == ["s"]


def test_a_version_is_asked_for_again_where_that_is_wanted(registry, client) -> None:
    first, second = (registry.add(subject, f'"{subject}"') for subject in ("int", "long"))
    assert client.version("int", 1).schema_id == first
    registry.subjects["int"] = [second]
    assert client.version("int", 1).schema_id == first
    assert client.version("int", 1, fresh=True).schema_id == second


def test_the_level_of_a_subject_without_one_is_the_registrys(registry, client) -> None:
    registry.faults = [b'{"normalize": true}']
    assert client.compatibility("a/b") == "BACKWARD"
    paths = [path for _, path in registry.asked]
    assert paths == ["/config/a%2Fb?defaultToGlobal=true", "/config"]
    registry.faults = [b"[]", b"{}"]
    with pytest.raises(SchemaRegistryError, match="there is no schema registry at"):
        client.compatibility("a/b")


def test_names_of_subjects_are_quoted(registry, client) -> None:
    subject = "a/b c?d%e:.ü"
    client.register(subject, TEXT)
    assert client.latest(subject).subject == subject
    assert "/subjects/a%2Fb%20c%3Fd%25e%3A.%C3%BC/versions" in registry.asked[0][1]


def test_many_threads_that_want_the_same_ask_once(registry, client) -> None:
    registry.add("s", TEXT)
    start = threading.Barrier(16)

    def look_up(_: int) -> str:
        start.wait(60)
        return client.by_id(1).text

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(look_up, range(16))) == {TEXT}
    assert len(registry.asked) == 1


def test_an_unknown_id_is_not_asked_for_again_at_once(registry, client) -> None:
    for _ in range(100):
        with pytest.raises(UnknownSchemaError, match=r"127\.0\.0\.1:\d+ has no schema 7"):
            client.by_id(7)
    assert len(registry.asked) == 1


def test_an_unknown_subject_and_version(registry, client) -> None:
    with pytest.raises(UnknownSchemaError, match="Subject 'x' not found") as caught:
        client.latest("x")
    assert (caught.value.status, caught.value.code) == (404, 40401)
    registry.add("s", TEXT)
    with pytest.raises(UnknownSchemaError, match="Version 2 not found"):
        client.version("s", 2)
    with pytest.raises(UnknownSchemaError, match="Schema not found"):
        client.id_of("s", '"int"')
    assert client.id_of("s", TEXT) == 1


def test_an_incompatible_schema(registry, client) -> None:
    registry.add("s", TEXT)
    registry.incompatible = "reader field a has no default, at /fields/0"
    with pytest.raises(IncompatibleSchemaError, match="at /fields/0"):
        client.register("s", '"int"')
    assert client.incompatibilities("s", '"int"') == [registry.incompatible]
    registry.incompatible = ""
    assert client.incompatibilities("s", '"int"') == []
    assert client.register("s", '"int"') == 2


@pytest.mark.parametrize("fault", [500, 503, 429, hang_up])
def test_a_registry_that_can_not_answer_is_asked_again(registry, fault) -> None:
    said: list[str] = []
    registry.add("s", TEXT)
    registry.faults = [fault, fault]
    client = RegistryClient(registry.url, retry_seconds=30, waiting=said.append)
    assert client.by_id(1).text == TEXT
    assert len(said) == 1
    assert registry.url in said[0]
    client.close()


def test_connections_are_kept_and_one_that_was_closed_meanwhile_is_no_fault(registry) -> None:
    registry.add("s", TEXT)
    ports = []
    client = RegistryClient(registry.url, retry_seconds=0)

    def note(handler) -> None:
        ports.append(handler.client_address[1])
        handler._send(200, b"[]")

    registry.faults = [note, note, hang_up, note]
    for _ in range(3):
        client.subjects()
    assert ports[0] == ports[1] != ports[2]
    client.close()


def test_another_address_is_asked_if_one_does_not_answer(registry) -> None:
    registry.add("s", TEXT)
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    client = RegistryClient(f"127.0.0.1:{port},{registry.url}", retry_seconds=0)
    assert client.by_id(1).text == TEXT
    assert client.subjects() == ["s"]
    client.close()
    alone = RegistryClient(f"127.0.0.1:{port}", retry_seconds=0)
    with pytest.raises(RegistryUnavailableError, match=f"127.0.0.1:{port}: Connection refused"):
        alone.subjects()


def test_what_one_address_does_not_know_yet_another_may(registry) -> None:
    with fake_registry() as behind:
        registry.add("s", TEXT)
        client = RegistryClient([behind.url, registry.url], retry_seconds=0)
        assert client.by_id(1).text == TEXT
        assert len(behind.asked) == 1
        with pytest.raises(UnknownSchemaError):
            client.by_id(2)
        client.close()


def test_it_gives_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        client = RegistryClient(f"127.0.0.1:{port}", timeout_seconds=0.05, retry_seconds=0.1)
        with pytest.raises(RegistryUnavailableError, match="no answer in time"):
            client.by_id(1)


def _no_json(body: bytes):
    return body


@pytest.mark.parametrize("body", [b"<html>", b"[" * 100_000, b"\xff"])
def test_what_is_no_registry_is_said_to_be_none(registry, client, body: bytes) -> None:
    registry.faults = [_no_json(body)]
    with pytest.raises(SchemaRegistryError, match="there is no schema registry at"):
        client.latest("s")


@pytest.mark.parametrize(
    "answer",
    [
        {"schema": 7},
        {"schema": "x", "schemaType": 1},
        {"schema": "x", "references": 7},
        {"schema": "x", "references": [{"name": "n"}]},
        {"schema": "x", "references": [{"name": "n", "subject": "s", "version": "1"}]},
        {},
        [],
        7,
        None,
    ],
)
def test_an_answer_of_another_shape(registry, client, answer) -> None:
    registry.faults = [json.dumps(answer).encode()]
    with pytest.raises(SchemaRegistryError, match="there is no schema registry at"):
        client.by_id(1)
    registry.faults = [json.dumps(answer).encode()] * 2
    with pytest.raises(SchemaRegistryError, match="there is no schema registry at"):
        client.register("s", TEXT)


def test_a_404_that_is_not_the_registrys_says_nothing_about_ids(registry, client) -> None:
    """A wrong path in the URL must not turn every payload into one of an unknown schema."""

    def answer(handler) -> None:
        handler._send(404, b"not here")

    registry.faults = [answer]
    with pytest.raises(SchemaRegistryError, match="there is no schema registry at") as caught:
        client.by_id(1)
    assert not isinstance(caught.value, UnknownSchemaError)


def test_something_that_speaks_no_http(registry) -> None:
    def answer(handler) -> None:
        handler.wfile.write(b"\x00\x01\x02 nonsense\r\n\r\n")
        handler.close_connection = True

    registry.faults = [answer]
    client = RegistryClient(registry.url, retry_seconds=0)
    with pytest.raises(RegistryUnavailableError, match="doesn't speak HTTP"):
        client.subjects()


def test_a_response_is_read_up_to_a_limit(registry) -> None:
    registry.faults = [b" " * (16 * 1024 * 1024 + 1)]
    client = RegistryClient(registry.url, retry_seconds=0)
    with pytest.raises(RegistryUnavailableError, match="more than"):
        client.subjects()


@pytest.mark.parametrize("where", ["url", "environment"])
def test_credentials_are_sent_and_never_shown(registry, where, monkeypatch) -> None:
    url = registry.url
    if where == "url":
        url = url.replace("://", "://me:s%40cret@")
    else:
        monkeypatch.setenv(CREDENTIALS, "me:s@cret")
    client = RegistryClient(url, retry_seconds=0)
    client.subjects()
    assert registry.headers["Authorization"] == "Basic bWU6c0BjcmV0"
    registry.faults = [500, 401]
    for _ in range(2):
        with pytest.raises((RegistryUnavailableError, SchemaRegistryError)) as caught:
            client.subjects()
        assert "cret" not in str(caught.value)
    assert "HERMES_REGISTRY_CREDENTIALS" in str(caught.value)
    assert "cret" not in client.name
    assert client.name == registry.url
    client.close()


@pytest.mark.parametrize(
    "url",
    [
        "",
        "ftp://me:secret@host",
        "http://",
        "http://me:secret@host:99999",
        "http://host:x",
        "http://host?x=1",
        "http://host/#x",
        "http://a b",
        "http://a\nb",
        "http://[::1",
        "http://host:0",
        ",",
        (),
    ],
)
def test_a_wrong_url(url) -> None:
    with pytest.raises(ConfigError) as caught:
        RegistryClient(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("host", "http://host:80"),
        ("host:8081/", "http://host:8081"),
        ("https://host/registry/", "https://host:443/registry"),
        ("http://[::1]:81, http://b:82", "http://[::1]:81,http://b:82"),
        (["http://a:1", "b:2"], "http://a:1,http://b:2"),
    ],
)
def test_urls(url, name: str) -> None:
    assert RegistryClient(url).name == name


def test_a_path_before_the_interface(registry) -> None:
    client = RegistryClient(f"{registry.url}/registry", retry_seconds=0)
    registry.faults = [b"[]"]
    assert client.subjects() == []
    assert registry.asked == [("GET", "/registry/subjects")]
    client.close()


# -- references ---------------------------------------------------------------------------------


def reference(name: str, subject: str, version: int = 1) -> dict[str, object]:
    return {"name": name, "subject": subject, "version": version}


def test_what_a_schema_stands_on_comes_first_and_once(registry, client) -> None:
    registry.add("base", "base text")
    registry.add("left", "left text", references=[reference("Base", "base")])
    registry.add("right", "right text", references=[reference("Base", "base")])
    both = [reference("Left", "left"), reference("Right", "right")]
    top = registry.add("top", "top text", references=both)
    expected = ("base text", "left text", "right text", "top text")
    assert client.texts(client.by_id(top)) == expected
    count = len(registry.asked)
    assert client.texts(client.by_id(top)) == expected
    assert len(registry.asked) == count
    assert client.by_id(top).references[0] == SchemaReference("Left", "left", 1)


def test_schemas_that_stand_on_each_other(registry, client) -> None:
    registry.add("a", "a", references=[reference("B", "b")])
    number = registry.add("b", "b", references=[reference("A", "a")])
    with pytest.raises(SchemaRegistryError, match="stands on itself"):
        client.texts(client.by_id(number))


def test_a_reference_that_is_not_there(registry, client) -> None:
    number = registry.add("a", "a", references=[reference("B", "b")])
    with pytest.raises(UnknownSchemaError, match="Subject 'b' not found"):
        client.texts(client.by_id(number))


def test_a_failure_is_not_kept(registry, client) -> None:
    number = registry.add("a", "a", references=[reference("B", "b")])
    with pytest.raises(UnknownSchemaError):
        client.texts(client.by_id(number))
    registry.add("b", "b")
    assert client.texts(client.by_id(number)) == ("b", "a")


def test_a_forked_process_has_connections_of_its_own(registry, client) -> None:
    registry.add("s", TEXT)
    assert client.subjects() == ["s"]
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the server has a thread
        child = os.fork()
    if child == 0:
        status = 1
        try:
            os.write(writing, client.by_id(1).text.encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        assert pipe.read().decode() == TEXT
    assert os.waitpid(child, 0)[1] == 0
    assert client.latest("s").text == TEXT


# -- who we are ---------------------------------------------------------------------------------


def context_of(pair: Pair, client_ca: os.PathLike[str] | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def test_by_tls_with_a_certificate_and_a_user(certificates: Certificates) -> None:
    mine = certificates.client("alice")
    with fake_registry(context_of(certificates.server, certificates.ca)) as registry:
        client = RegistryClient(
            registry.url,
            retry_seconds=0,
            tls_ca=str(certificates.ca),
            tls_certificate=str(mine.certificate),
            tls_key=str(mine.key),
            user="alice",
            password="s@cret:",
        )
        assert client.subjects() == []
        client.close()
    assert registry.headers["Authorization"] == "Basic YWxpY2U6c0BjcmV0Og=="


@pytest.mark.parametrize("wrong", ["untrusted_server", "expired_server", "wrong_host_server"])
def test_a_registry_that_is_not_trusted_is_asked_nothing(certificates, wrong) -> None:
    with fake_registry(context_of(getattr(certificates, wrong))) as registry:
        # Trying again can't help, however long that would be allowed.
        client = RegistryClient(
            registry.url, retry_seconds=None, tls_ca=certificates.ca, user="me", password="s@cret"
        )
        with pytest.raises(SchemaRegistryError, match="is not trusted") as caught:
            client.subjects()
        client.close()
    assert not registry.asked
    assert "cret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://localhost:1", True),
        ("http://127.0.0.1:1", True),
        ("http://[::1]:1", True),
        ("https://registry.example.org:1", True),
        ("http://registry.example.org:1", False),
        ("http://127.0.0.1.example.org", False),
        ("http://localhost.example.org", False),
        ("http://192.0.2.1", False),
    ],
)
def test_a_password_goes_where_nobody_reads_it(url: str, sent: bool) -> None:
    (address,) = parse_addresses(url, "me:s@cret")
    assert bool(address.authorization) is sent


def test_the_user_of_a_url_comes_first_and_the_environments_last(monkeypatch) -> None:
    monkeypatch.setenv(CREDENTIALS, "env:s")
    of_url, ours, other = (
        each.authorization
        for each in parse_addresses("http://url:s@localhost,http://localhost,http://b", "me:s")
    )
    assert of_url == "Basic dXJsOnM="
    assert ours == "Basic bWU6cw=="
    assert other == "Basic ZW52OnM="


def test_what_to_do_about_a_refusal(registry, monkeypatch) -> None:
    def refusal(**settings: str) -> str:
        registry.faults = [401]
        with pytest.raises(SchemaRegistryError) as caught:
            RegistryClient(registry.url, retry_seconds=0, **settings).subjects()
        return str(caught.value)

    assert "is the user the right one, and the password?" in refusal(user="me", password="s@cret")
    assert "give a user and a password, which are sent by https" in refusal()
    assert "cret" not in refusal(user="me", password="s@cret")


def test_settings_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ConfigError, match="password: is missing for user 'me'"):
        RegistryClient("http://localhost", user="me")
    with pytest.raises(ConfigError, match="tls_ca: "):
        RegistryClient("https://localhost", tls_ca="/nowhere")
