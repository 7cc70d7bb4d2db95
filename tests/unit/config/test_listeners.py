"""What `listen` and its like may say beside an endpoint, and what is never let pass."""

from contextlib import suppress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.exposure import check_listeners
from hermes.config.listeners import LISTENER, LISTENERS, ListenerConfig, TlsConfig, as_given
from hermes.config.reference import reference
from hermes.config.yaml_text import read_yaml
from hermes.errors import ConfigError

TLS = {"certificate": "broker.pem", "key": "broker.key"}
CLIENTS = {**TLS, "client_ca": "ca.pem"}


def listener(**values: Any) -> ListenerConfig:
    parsed: ListenerConfig = LISTENER.parse({"endpoint": "tcp:9094", **values})
    return parsed


def test_what_is_not_said_has_its_default() -> None:
    assert listener() == ListenerConfig("tcp:9094")
    assert listener(tls=TLS).tls == TlsConfig(Path("broker.pem"), Path("broker.key"))
    assert listener(tls=None) == ListenerConfig("tcp:9094")


def test_a_name_is_the_place_unless_it_is_given() -> None:
    texts = ["tcp:1", {"endpoint": "tcp:2"}, {"endpoint": "tcp:3", "name": "outside"}]
    assert [each.name for each in LISTENERS.parse(texts)] == ["0", "1", "outside"]


def test_whoever_names_an_authority_wants_certificates() -> None:
    for values, demand in ((CLIENTS, "required"), (TLS, "none")):
        tls = listener(tls=values).tls
        assert tls is not None
        assert tls.client_certificate == demand


def test_a_version_needs_no_quotes() -> None:
    values = read_yaml(
        b"endpoint: tcp:1\ntls: {certificate: a, key: b, versions: 1.3}", "broker.yaml"
    )
    tls = LISTENER.parse(values).tls
    assert tls.versions == "1.3"


@pytest.mark.parametrize(
    ("values", "place"),
    [
        (None, ("", None)),
        ("kafka1:9094", ("kafka1", 9094)),
        ("kafka1.example.org", ("kafka1.example.org", None)),
        ("10.0.0.1:1", ("10.0.0.1", 1)),
        ("[fe80::1]:65535", ("fe80::1", 65535)),
        ("[::1]", ("::1", None)),
    ],
)
def test_advertised_places(values: str | None, place: tuple[str, int | None]) -> None:
    assert listener(advertised=values).advertised_place == place


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"endpoint": 9094}, r"expected an endpoint .*\(write tcp:9094\)"),
        ({"endpoint": "ssl:1:privateKey=a"}, "endpoint: tcp:PORT, and tls beside it"),
        ({"endpiont": "tcp:1"}, "unknown key 'endpiont': expected endpoint, tls,"),
        ({"name": "0"}, "expected a name of letters"),
        ({"name": "a b"}, "expected a name of letters"),
        ({"name": 5}, "expected a name of letters"),
        (
            {"authentication": "password"},
            "authentication: expected none, tls, scram or token, got 'pass",
        ),
        (
            {"endpoint": "tcp:9093", "authentication": "token"},
            "authentication: token needs tls, or a loopback address",
        ),
        ({"authentication": "tls"}, "authentication: tls needs tls, with client_ca"),
        ({"authentication": "tls", "tls": TLS}, "authentication: tls needs tls.client_ca"),
        (
            {"authentication": "tls", "tls": {**CLIENTS, "client_certificate": "optional"}},
            "every client a certificate",
        ),
        ({"plain": True}, "plain: it needs authentication: scram"),
        ({"plain": "yes", "authentication": "scram"}, "plain: expected true or false"),
        ({"plain": True, "authentication": "scram"}, "need tls, or a loopback address"),
        ({"advertised": "kafka1:0"}, "advertised: expected HOST:PORT or HOST, got 'kafka1:0'"),
        ({"advertised": "kafka1:65536"}, "advertised: expected"),
        ({"advertised": "::1"}, "advertised: expected"),
        ({"advertised": 9094}, "advertised: expected"),
        ({"tls": True}, "tls: expected a mapping of certificate and key"),
        ({"tls": {"key": "a"}}, "tls.certificate: missing"),
        ({"tls": {"certificate": "a"}}, "tls.key: missing"),
        ({"tls": {**TLS, "certificate": 5}}, "tls.certificate: expected a path"),
        ({"tls": {**TLS, "cypers": "modern"}}, "unknown key 'tls.cypers'"),
        ({"tls": {**TLS, "versions": 1.1}}, "tls.versions: expected 1.2 or 1.3, got '1.1'"),
        ({"tls": {**TLS, "ciphers": "old"}}, "tls.ciphers: expected intermediate or modern"),
        ({"tls": {**TLS, "principal": "OU"}}, "tls.principal: expected CN, SUBJECT, SAN:DNS"),
        ({"tls": {**TLS, "client_certificate": "required"}}, "required needs client_ca"),
        ({"tls": {**CLIENTS, "client_certificate": "none"}}, "tls.client_ca: it has no effect"),
    ],
)
def test_what_can_not_be_meant_is_refused(values: dict[str, Any], error: str) -> None:
    with pytest.raises(ValueError, match=error):
        listener(**values)


def test_passwords_as_they_are_go_by_tls_or_stay_on_the_machine() -> None:
    assert listener(plain=True, authentication="scram", tls=TLS).plain
    loopback = {"endpoint": "tcp:9094:interface=127.0.0.1", "authentication": "scram"}
    parsed = LISTENER.parse({**loopback, "plain": True})
    assert (parsed.plain, as_given(parsed)) == (True, {**loopback, "plain": True})
    assert "plain: true" in LISTENER.show(parsed)
    others = {"allow_insecure": True, "knows_users": True}
    check_listeners("kafka_listen", [parsed], **others)
    with pytest.raises(ConfigError, match="it is for listeners of kafka_listen"):
        check_listeners("listen", [parsed], **others)


def test_tokens_are_for_kafkas_clients() -> None:
    parsed = LISTENER.parse({"endpoint": "tcp:9094", "authentication": "token", "tls": TLS})
    others = {"allow_insecure": False, "knows_users": False}
    check_listeners("kafka_listen", [parsed], **others)
    with pytest.raises(ConfigError, match=r"is for listeners of kafka_listen \(SASL/OAUTHBEARER"):
        check_listeners("listen", [parsed], **others)


def test_a_mapping_needs_an_endpoint() -> None:
    with pytest.raises(ValueError, match="a listener needs an endpoint such as tcp:9093"):
        LISTENER.parse({"name": "outside"})


@pytest.mark.parametrize(
    ("endpoint", "is_loopback"),
    [
        ("tcp:9092", False),
        ("tcp:9092:interface=127.0.0.1", True),
        ("tcp:interface=127.8.9.10:port=1", True),
        ("tcp:9092:interface=localhost", True),
        ("tcp:9092:interface=", False),
        ("tcp:9092:interface=0.0.0.0", False),
        ("tcp:9092:interface=10.0.0.1", False),
        ("tcp:9092:interface=127.0.0.1.example.org", False),
        ("tcp6:9092", False),
        (r"tcp6:9092:interface=\:\:", False),
        (r"tcp6:9092:interface=\:\:1", True),
        (r"tcp6:9092:interface=\:\:ffff\:127.0.0.1", True),
        (r"tcp6:9092:interface=\:\:ffff\:10.0.0.1", False),
        ("unix:/run/hermes.sock", True),
        ("systemd:domain=INET:index=0", False),
        ("someplugin:interface=127.0.0.1", False),
    ],
)
def test_what_is_for_this_machine_only(endpoint: str, is_loopback: bool) -> None:
    assert ListenerConfig(endpoint).is_loopback is is_loopback


@pytest.mark.parametrize(
    "text",
    [
        "tcp:9092",
        {"endpoint": "tcp:1", "name": "outside"},
        {"endpoint": "tcp:1", "tls": TLS, "authentication": "scram", "advertised": "a:1"},
        {"endpoint": "tcp:1", "tls": {**CLIENTS, "client_certificate": "optional"}},
    ],
)
def test_it_is_shown_as_it_was_given(text: Any) -> None:
    parsed = LISTENER.parse(text)
    assert as_given(parsed) == text
    assert read_yaml(f"a: {LISTENER.show(parsed)}".encode(), "") == {"a": text}


def test_the_reference_has_every_key() -> None:
    keys = [each.name for each in fields(ListenerConfig)]
    keys += [f"tls.{each.name}" for each in fields(TlsConfig)]
    section = reference().partition("## Listeners")[2].partition("\n## ")[0]
    rows = {line.split("`")[1] for line in section.splitlines() if line.startswith("| `")}
    assert rows == set(keys)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["endpoint", "tls", "authentication", "name", "advertised", "x"])
            | st.sampled_from(["certificate", "key", "client_ca", "client_certificate", "versions"])
            | st.text(max_size=5),
            inner | st.sampled_from(["tcp:1", "unix:/a", "none", "tls", "scram", "1.2", "a:1"]),
            max_size=5,
        )
    ),
    max_leaves=12,
)


@given(VALUES)
def test_any_value_is_read_or_refused_in_words(value: Any) -> None:
    with suppress(ValueError):
        for each in LISTENERS.parse(value):
            again = LISTENER.parse(as_given(each))
            assert again == (replace(each, name="0") if each.name.isdigit() else each)
