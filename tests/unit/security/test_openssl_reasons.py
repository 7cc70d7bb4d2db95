"""What OpenSSL says is understood from both libraries that pass it on."""

import ssl
from typing import Any

import pytest
from OpenSSL import SSL

from hermes.security.openssl_reasons import is_not_tls, reasons


def standard_library() -> ssl.SSLError:
    """The failure of a client of the standard library that gets what isn't TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    incoming.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(ssl.SSLError) as refused:
        client.do_handshake()
    return refused.value


def py_openssl() -> SSL.Error:
    """The same of pyOpenSSL."""
    client = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    client.set_connect_state()
    client.bio_write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(SSL.Error) as refused:
        client.do_handshake()
    return refused.value


@pytest.mark.parametrize("fail", [standard_library, py_openssl])
def test_what_is_no_tls_is_known_as_such(fail: Any) -> None:
    said = reasons(fail())
    assert is_not_tls(said[-1])
    assert said[-1] == said[-1].lower()
    assert "_" not in said[-1]


@pytest.mark.parametrize(
    "error",
    [ValueError(), OSError(104, "reset"), SSL.Error([]), SSL.Error(), SSL.ZeroReturnError()],
)
def test_others_say_nothing(error: Exception) -> None:
    assert reasons(error) == []


def test_an_alert_is_no_lack_of_tls() -> None:
    assert not is_not_tls("tlsv1 alert unknown ca")
