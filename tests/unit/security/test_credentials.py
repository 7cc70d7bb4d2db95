"""What a client brings: settings that fit each other, files that can be used, nothing told."""

import dataclasses
import logging
import os
import pickle
import ssl
from errno import EMFILE
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, Certificates

from hermes.errors import ConfigError
from hermes.security import PLAIN, ClientSecurity

SECRET = "correct horse battery"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "with spaces", "clients")


def test_nothing_given_is_what_clients_of_kafka_07_bring() -> None:
    assert ClientSecurity() == PLAIN
    assert PLAIN.is_plain
    assert not PLAIN.uses_tls
    assert PLAIN.authentication == "none"
    assert PLAIN.settings() == {}


@pytest.mark.parametrize(
    ("given", "uses_tls", "authentication"),
    [
        ({"tls": True}, True, "none"),
        ({"tls_ca": "ca.pem"}, True, "none"),
        ({"tls": True, "tls_ca": "ca.pem"}, True, "none"),
        ({"tls_certificate": "web.pem"}, True, "tls"),
        ({"tls_certificate": "web.pem", "tls_key": "web.key"}, True, "tls"),
        ({"user": "alice", "password": SECRET}, False, "scram"),
        ({"user": "alice", "password": SECRET, "tls": False}, False, "scram"),
        ({"user": "alice", "password": SECRET, "tls_certificate": "web.pem"}, True, "scram"),
    ],
)
def test_what_is_given_says_how_to_connect(
    given: dict[str, Any], uses_tls: bool, authentication: str
) -> None:
    security = ClientSecurity(**given)
    assert security.uses_tls is uses_tls
    assert security.authentication == authentication
    assert security.settings() == given
    assert security.fits(uses_tls, authentication)
    assert not security.fits(not uses_tls, authentication)
    assert not security.is_plain


@pytest.mark.parametrize(
    ("given", "key"),
    [
        ({"tls": "yes"}, "tls"),
        ({"tls": False, "tls_ca": "ca.pem"}, "tls_ca"),
        ({"tls": False, "tls_certificate": "web.pem"}, "tls_certificate"),
        ({"tls_ca": ""}, "tls_ca"),
        ({"tls_ca": b"ca.pem"}, "tls_ca"),
        ({"tls_key": "web.key"}, "tls_certificate"),
        ({"user": "alice"}, "password"),
        ({"user": "alice", "password": ""}, "password"),
        ({"user": "alice", "password": SECRET.encode()}, "password"),
        ({"user": "", "password": SECRET}, "user"),
        ({"user": 7, "password": SECRET}, "user"),
        ({"password": SECRET}, "user"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ClientSecurity(**given)
    assert refused.value.key == key
    assert SECRET not in str(refused.value)


def test_a_password_is_shown_nowhere() -> None:
    security = ClientSecurity(user="alice", password=SECRET)
    assert SECRET not in repr(security) + str(security) + security.whom
    assert "alice" in security.whom
    assert pickle.loads(pickle.dumps(security)) == security
    assert dataclasses.replace(security, user="bob").password == SECRET


def test_a_file_may_be_a_path(certificates: Certificates) -> None:
    security = ClientSecurity(tls_ca=certificates.ca)  # type: ignore[arg-type]
    assert security.tls_ca == str(certificates.ca)


def test_a_context_verifies_and_is_modern(certificates: Certificates) -> None:
    pair = certificates.client("alice")
    security = ClientSecurity(
        tls_ca=str(certificates.ca), tls_certificate=str(pair.certificate), tls_key=str(pair.key)
    )
    context = security.check().ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert [dict(each["subject"][0])["commonName"] for each in context.get_ca_certs()] == [
        "test authority"
    ]


def test_without_an_authority_the_systems_are_trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[object] = []
    monkeypatch.setattr(ssl.SSLContext, "load_default_certs", lambda *given: loaded.append(given))
    ClientSecurity(tls=True, tls_certificate=None).check()
    ClientSecurity(tls=True).check()
    assert len(loaded) <= 1  # none if another test was here first: it is kept


def test_the_context_stays_the_same_until_a_file_changes(authority: Authority) -> None:
    pair = authority.client("alice")
    given = {"tls_ca": str(authority.path), "tls_certificate": str(pair.certificate)}
    security = ClientSecurity(**given, tls_key=str(pair.key))  # type: ignore[arg-type]
    first = security.ssl_context()
    assert security.ssl_context() is first
    assert pickle.loads(pickle.dumps(security)).ssl_context() is first
    pair.replace(authority.client("alice-renewed"))
    second = security.ssl_context()
    assert second is not first
    assert security.ssl_context() is second


def test_a_renewed_certificate_that_could_not_be_read_is_read_later(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.client("alice")
    security = ClientSecurity(tls_certificate=str(pair.certificate), tls_key=str(pair.key))
    first = security.ssl_context()
    pair.replace(authority.client("alice-renewed"))

    def fail(*_: object) -> int:
        raise OSError(EMFILE, os.strerror(EMFILE))

    with monkeypatch.context() as short:
        short.setattr(os, "open", fail)
        assert security.ssl_context() is first
    assert security.ssl_context() is not first


def test_a_renewal_under_way_leaves_the_former_certificate_in_use(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    pair, renewed = authority.client("alice"), authority.client("alice-renewed")
    security = ClientSecurity(tls_certificate=str(pair.certificate), tls_key=str(pair.key))
    first = security.ssl_context()
    os.replace(renewed.certificate, pair.certificate)  # and not yet the key
    with caplog.at_level(logging.WARNING):
        assert security.ssl_context() is first
        assert security.ssl_context() is first
    assert [each.getMessage() for each in caplog.records] == [
        f"the former certificates stay in use: tls_key: {str(pair.key)!r} is not the key of "
        f"{str(pair.certificate)!r}"
    ]
    os.replace(renewed.key, pair.key)
    assert security.ssl_context() is not first


def _refused(**given: object) -> ConfigError:
    security = ClientSecurity(**given)  # type: ignore[arg-type]  # nothing is read here
    with pytest.raises(ConfigError) as refused:
        security.check()
    return refused.value


def test_a_file_that_can_not_be_used_is_named_with_its_setting(
    authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.client("alice"), authority.client("bob")
    missing, junk = tmp_path / "missing.pem", tmp_path / "junk.pem"
    junk.write_text("nothing of the kind")
    certificate, key = str(pair.certificate), str(pair.key)
    for given, setting, words in (
        ({"tls_ca": missing}, "tls_ca", "No such file"),
        ({"tls_ca": tmp_path}, "tls_ca", "Is a directory"),
        ({"tls_ca": junk}, "tls_ca", "no certificate in PEM"),
        ({"tls_ca": pair.key}, "tls_ca", "no certificate in PEM"),
        ({"tls_ca": "\0"}, "tls_ca", "can't be read"),
        ({"tls_certificate": missing}, "tls_certificate", "No such file"),
        ({"tls_certificate": certificate}, "tls_certificate", "with both, or tls_key"),
        ({"tls_certificate": certificate, "tls_key": missing}, "tls_key", "No such file"),
        ({"tls_certificate": certificate, "tls_key": junk}, "tls_key", "can't be read as PEM"),
        ({"tls_certificate": certificate, "tls_key": other.key}, "tls_key", "is not the key of"),
        ({"tls_certificate": junk, "tls_key": key}, "tls_key", "can't be read as PEM"),
    ):
        error = _refused(**given)
        assert error.key == setting, given
        assert words in str(error), given


def test_an_encrypted_key_is_refused_and_nobody_is_asked(
    authority: Authority, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    pair = authority.client("alice")
    key = serialization.load_pem_private_key(pair.key.read_bytes(), None)
    encrypted = tmp_path / "encrypted.key"
    encrypted.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(SECRET.encode()),
        )
    )
    error = _refused(tls_certificate=str(pair.certificate), tls_key=str(encrypted))
    assert error.key == "tls_key"
    assert "is encrypted" in str(error)
