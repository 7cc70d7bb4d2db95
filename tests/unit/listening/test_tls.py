"""A listener's certificate: read, read again when its files change, and watched as it ends."""

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from errno import EMFILE
from pathlib import Path
from typing import Any

import pytest
from broker_bench import log_lines
from certificates import Authority, Certificates, Pair
from OpenSSL import SSL
from twisted.internet.task import Clock

from hermes.config.listeners import TlsConfig
from hermes.errors import ConfigError
from hermes.listening.contexts import make_context
from hermes.listening.tls import ServerTls
from hermes.security.certificates import read_pair


@pytest.fixture
def lines() -> Iterator[list[str]]:
    with log_lines() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


def server_tls(clock: Clock, pair: Pair, now: datetime | None = None, **options: Any) -> ServerTls:
    config = TlsConfig(pair.certificate, pair.key, **options)
    return ServerTls("listen", config, False, clock.seconds, lambda: now or datetime.now(UTC))


def served(tls: ServerTls) -> str:
    """The subject of the certificate that the next connection gets."""
    certificate = tls.serverConnectionForTLS(None).get_certificate()
    assert certificate is not None
    return str(certificate.to_cryptography().subject.rfc4514_string())


def test_a_changed_certificate_is_used_without_a_restart(
    clock: Clock, authority: Authority, lines: list[str]
) -> None:
    pair = authority.server("first")
    tls = server_tls(clock, pair)
    first_end = tls.end_seconds
    assert served(tls) == "CN=first"
    pair.replace(authority.server("second", end=timedelta(days=90)))
    assert served(tls) == "CN=first", "files are looked at once a second"
    clock.advance(1)
    assert served(tls) == "CN=second"
    assert tls.end_seconds > first_end
    assert [line for line in lines if "a new certificate is in use: CN=second" in line]


def test_a_reload_looks_at_once(clock: Clock, authority: Authority) -> None:
    pair = authority.server("first")
    tls = server_tls(clock, pair)
    pair.replace(authority.server("second"))
    tls.refresh()
    assert served(tls) == "CN=second"


def test_certificates_behind_a_link_are_followed(
    clock: Clock, authority: Authority, tmp_path: Path
) -> None:
    """As a secret of Kubernetes is replaced: by another target of a link to a directory."""
    for name in ("first", "second"):
        directory = tmp_path / name
        directory.mkdir()
        pair = authority.server(name)
        pair.certificate.rename(directory / "tls.crt")
        pair.key.rename(directory / "tls.key")
    link = tmp_path / "now"
    link.symlink_to("first")
    tls = server_tls(clock, Pair(link / "tls.crt", link / "tls.key"))
    other = tmp_path / "next"
    other.symlink_to("second")
    os.replace(other, link)
    clock.advance(1)
    assert served(tls) == "CN=second"


def spoil(pair: Pair, authority: Authority, how: str) -> None:
    if how == "no certificate":
        pair.certificate.unlink()
    elif how == "no key":
        pair.key.unlink()
    elif how == "empty":
        pair.certificate.write_bytes(b"")
    elif how == "another's key":
        pair.key.write_bytes(authority.server("other").key.read_bytes())
    elif how == "expired":
        pair.replace(authority.server("old", begin=timedelta(days=-9), end=timedelta(days=-1)))
    elif how == "of tomorrow":
        pair.replace(authority.server("new", begin=timedelta(days=1), end=timedelta(days=9)))
    else:
        pair.key.unlink()
        os.mkfifo(pair.key)


BAD = ["no certificate", "no key", "empty", "another's key", "expired", "of tomorrow", "a pipe"]


@pytest.mark.parametrize("how", BAD)
def test_a_bad_new_certificate_keeps_the_former_with_a_line(
    clock: Clock, authority: Authority, lines: list[str], how: str
) -> None:
    pair = authority.server("first")
    good = authority.server("third")
    tls = server_tls(clock, pair)
    spoil(pair, authority, how)
    for _ in range(3):
        clock.advance(1)
        assert served(tls) == "CN=first"
    (line,) = [line for line in lines if "the certificate in use is kept" in line]
    assert "listen: tls." in line
    assert "PRIVATE" not in line
    pair.key.unlink(missing_ok=True)
    pair.replace(good)
    clock.advance(1)
    assert served(tls) == "CN=third"


def test_a_new_certificate_that_is_not_valid_yet_is_used_once_it_is(
    clock: Clock, authority: Authority, lines: list[str]
) -> None:
    """Whoever issues it may have a clock that is ahead."""
    pair, now = authority.server("first"), [datetime.now(UTC)]
    config = TlsConfig(pair.certificate, pair.key)
    tls = ServerTls("listen", config, False, clock.seconds, lambda: now[0])
    pair.replace(authority.server("second", begin=timedelta(seconds=90), end=timedelta(days=90)))
    for _ in range(3):
        clock.advance(1)
        assert served(tls) == "CN=first"
    assert len([line for line in lines if "is kept" in line]) == 1
    now[0] += timedelta(seconds=100)
    clock.advance(1)
    assert served(tls) == "CN=second"


def test_a_new_certificate_that_could_not_be_read_is_read_later(
    clock: Clock, authority: Authority, lines: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = authority.server("first")
    tls = server_tls(clock, pair)
    pair.replace(authority.server("second"))

    def fail(*_: object) -> int:
        raise OSError(EMFILE, os.strerror(EMFILE))

    with monkeypatch.context() as short:
        short.setattr(os, "open", fail)
        for _ in range(3):
            clock.advance(1)
            assert served(tls) == "CN=first"
    assert len([line for line in lines if "is kept" in line]) == 1
    clock.advance(1)
    assert served(tls) == "CN=second"


@pytest.mark.parametrize("how", ["no certificate", "no key", "empty", "another's key", "a pipe"])
def test_a_start_with_a_bad_certificate_is_refused(
    clock: Clock, authority: Authority, how: str
) -> None:
    pair = authority.server("first")
    spoil(pair, authority, how)
    with pytest.raises(ConfigError, match=r"^listen: tls\.(certificate|key)"):
        server_tls(clock, pair)


def test_a_start_with_a_bad_authority_is_refused(clock: Clock, authority: Authority) -> None:
    pair = authority.server("first")
    with pytest.raises(ConfigError, match=r"^listen: tls\.client_ca"):
        server_tls(clock, pair, client_ca=pair.key, client_certificate="required")


@pytest.mark.parametrize(
    ("days", "expected"),
    [(61, "has ended on"), (50, "renew it"), (46.1, "renew it"), (45.9, ""), (-1, "begins on")],
)
def test_an_end_within_fourteen_days_is_warned_of(
    clock: Clock, certificates: Certificates, lines: list[str], days: float, expected: str
) -> None:
    """The certificate is good for 60 days from now on."""
    server_tls(clock, certificates.server, datetime.now(UTC) + timedelta(days=days))
    warnings = [line for line in lines if "certificate" in line]
    assert len(warnings) == bool(expected)
    assert not expected or expected in warnings[0]


@pytest.mark.parametrize(("mode", "count"), [(0o600, 0), (0o640, 0), (0o644, 1)])
def test_a_key_that_everybody_can_read_is_warned_of(
    clock: Clock, authority: Authority, lines: list[str], mode: int, count: int
) -> None:
    pair = authority.server("first")
    pair.key.chmod(mode)
    server_tls(clock, pair)
    assert len([line for line in lines if "can read the key" in line]) == count


def test_what_must_never_be_negotiated_is_off(certificates: Certificates) -> None:
    """OpenSSL 3 refuses renegotiation by itself, and 1.1 only with the option."""
    server = certificates.server
    pair = read_pair(server.certificate.read_bytes(), server.key.read_bytes())
    context = make_context(TlsConfig(server.certificate, server.key), pair, (), SSL.VERIFY_NONE)
    wanted = SSL.OP_NO_RENEGOTIATION | SSL.OP_NO_COMPRESSION | SSL.OP_NO_TICKET
    assert context.set_options(0) & wanted == wanted
    assert context.get_session_cache_mode() == SSL.SESS_CACHE_OFF


@pytest.mark.parametrize(
    ("demanded", "said", "mode"),
    [
        (False, "none", SSL.VERIFY_NONE),
        (False, "optional", SSL.VERIFY_PEER),
        (False, "required", SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT),
        (True, "optional", SSL.VERIFY_PEER | SSL.VERIFY_FAIL_IF_NO_PEER_CERT),
    ],
)
def test_clients_are_asked_for_certificates_as_the_settings_say(
    clock: Clock, certificates: Certificates, demanded: bool, said: str, mode: int
) -> None:
    server = certificates.server
    config = TlsConfig(
        server.certificate, server.key, client_ca=certificates.ca, client_certificate=said
    )
    tls = ServerTls("listen", config, demanded, clock.seconds)
    assert tls.serverConnectionForTLS(None).get_context().get_verify_mode() == mode
