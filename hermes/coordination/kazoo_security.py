"""kazoo's connections by TLS, and what must not be said about them.

kazoo's own TLS trusts the system's authorities beside the one that is given, checks no host name
unless told to, and bounds each step of a handshake but not all of them. Here a connection is made
by the context of a `ClientSecurity`, in the time of one attempt.
"""

import ipaddress
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any, Final

from kazoo.handlers.utils import selector_select
from kazoo.protocol.serialization import Auth, Connect

from hermes.errors import ConfigError
from hermes.quoting import quoted
from hermes.security import ClientSecurity
from hermes.security.openssl_reasons import (
    EXPIRED,
    NOT_YET_VALID,
    UNKNOWN_AUTHORITY,
    WRONG_ADDRESS,
    WRONG_HOST,
    is_not_tls,
    reasons,
)

_CERTIFICATE: Final = {
    NOT_YET_VALID: "is not valid yet: compare the clocks of both machines",
    EXPIRED: "has expired: it needs to be renewed",
    WRONG_HOST: "is for another host name",
    WRONG_ADDRESS: "is for another address: connect by a name that it has",
    **dict.fromkeys(
        UNKNOWN_AUTHORITY,
        "is not of an authority that is trusted: let tls_ca be the certificate of its authority",
    ),
}


class TlsRefusedError(OSError):
    """TLS can't be agreed upon, and trying again changes nothing."""


def check_hosts(security: ClientSecurity, hosts: Iterable[tuple[str, int]]) -> None:
    """Send no password in clear (ConfigError): ZooKeeper's `digest` is the password itself."""
    if security.user is None or security.uses_tls:
        return
    for host, _ in hosts:
        if not _is_loopback(host):
            raise ConfigError(
                "tls",
                f"ZooKeeper at {quoted(host)} would be sent the password of {security.whom} in "
                "clear: connect by TLS (tls_ca), or there as nobody (zookeeper_tls=False)",
            )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip()).is_loopback
    except ValueError:
        return host.strip().lower() == "localhost"


def connect_by_tls(
    address: tuple[str, int], host: str, seconds: float, security: ClientSecurity
) -> ssl.SSLSocket:
    """Connect and shake hands, within `seconds` for both. The certificate must be for `host`.

    Raises TlsRefusedError: one side refuses the other; OSError: it failed, or took too long.
    """
    end = time.monotonic() + seconds
    made = socket.create_connection(address, seconds)
    try:
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setblocking(False)
        context = security.ssl_context()
        made = context.wrap_socket(made, server_hostname=host, do_handshake_on_connect=False)
        _shake_hands(made, end)
    except BaseException as error:
        made.close()
        if isinstance(error, ConfigError):
            raise TlsRefusedError(str(error)) from error
        if isinstance(error, ssl.SSLError | ConnectionError):
            raise _explained(error, host, security) from error
        raise
    return made


def _shake_hands(made: ssl.SSLSocket, end: float) -> None:
    while True:
        readers: list[ssl.SSLSocket] = []
        writers: list[ssl.SSLSocket] = []
        try:
            made.do_handshake()
            return
        except ssl.SSLWantReadError:
            readers.append(made)
        except ssl.SSLWantWriteError:
            writers.append(made)
        left = end - time.monotonic()
        if left <= 0 or not any(selector_select(readers, writers, [], left)):
            raise TimeoutError("it did not finish the TLS handshake in time")


def _explained(error: OSError, host: str, security: ClientSecurity) -> OSError:
    if isinstance(error, ssl.SSLCertVerificationError):
        why = _CERTIFICATE.get(error.verify_code, f"is refused: {error.verify_message}")
        return TlsRefusedError(f"the certificate of {quoted(host)} {why}")
    reason = getattr(error, "reason", None) or ""
    if any(map(is_not_tls, reasons(error))):
        return TlsRefusedError(f"{quoted(host)} doesn't speak TLS at this port")
    if "ALERT" in reason:
        return TlsRefusedError(f"{quoted(host)} {_alerted(reason, security)}")
    # An end without a word. It may be a restart, so it is tried again.
    return ConnectionError(
        "it closed the connection in the TLS handshake: if that goes on, the port may speak no TLS"
    )


def _alerted(reason: str, security: ClientSecurity) -> str:
    if "PROTOCOL_VERSION" in reason or "HANDSHAKE_FAILURE" in reason:
        return f"has no version or cipher of TLS in common with us ({reason.lower()})"
    if security.tls_certificate is None:
        return f"asks for a client certificate: give tls_certificate ({reason.lower()})"
    return f"refuses our certificate {quoted(security.tls_certificate)} ({reason.lower()})"


def socket_reason(error: OSError, security: ClientSecurity) -> str:
    """Why a connection ended, in words; of TLS 1.3, a certificate may be refused only then."""
    reason = getattr(error, "reason", None) or ""
    if isinstance(error, ssl.SSLError) and "ALERT" in reason:
        return f"it {_alerted(reason, security)}"
    return str(error.strerror or error)


def masked(value: Any) -> Any:
    """What kazoo wants to log, without passwords: of users, and of sessions."""
    if isinstance(value, Auth):
        return f"Auth({value.scheme!r})"
    if isinstance(value, Connect):
        return value._replace(passwd=b"")
    return value
