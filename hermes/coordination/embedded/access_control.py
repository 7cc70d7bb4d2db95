"""Access control: who a client is, what an ACL allows.

A node without entries would be open to all; none is ever stored. Permissions are not inherited.
Schemes: `world` (anyone), `auth` (the node's creator), `digest` (user and password), `ip`
(an address or a network).

Source: ZooKeeper's `PrepRequestProcessor.fixupACL`, `ZooKeeperServer.checkACL`,
`DigestAuthenticationProvider`, `IPAuthenticationProvider`.
"""

import hashlib
import ipaddress
from base64 import b64encode
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import TypeAlias

from hermes.coordination.embedded.jute_records import Acl, AclIdentity, AclPermission
from hermes.coordination.embedded.limits import (
    MAX_ACL_ENTRIES,
    MAX_CREDENTIAL_BYTES,
    MAX_IDENTITIES,
)
from hermes.coordination.embedded.zookeeper_errors import RequestRefusedError, ZooKeeperCode

_Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# In place of a hash, none of which is like it.
_VERIFIED = ":verified"

_LONGEST_NETWORK = len("ffff:ffff:ffff:ffff:ffff:ffff:255.255.255.255/128")


def credential_identity(credential: bytes) -> AclIdentity:
    """What `user:password` is to ACLs: the user, and a hash of both."""
    user = credential.partition(b":")[0].decode("utf-8", "replace")
    digest = b64encode(hashlib.sha1(credential, usedforsecurity=False).digest()).decode()
    return AclIdentity("digest", f"{user}:{digest}")


def add_identity(identities: dict[AclIdentity, None], scheme: str, credential: bytes) -> None:
    """Add what a client has proved; AUTH_FAILED for what proves nothing, and one too many."""
    if len(credential) > MAX_CREDENTIAL_BYTES:
        raise RequestRefusedError(ZooKeeperCode.AUTH_FAILED, f"{len(credential)} bytes of proof")
    if scheme == "ip":  # an address proves itself: ZooKeeper lets its clients claim it
        return
    if scheme != "digest":
        raise RequestRefusedError(ZooKeeperCode.AUTH_FAILED, scheme)
    identity = credential_identity(credential)
    if identity not in identities and len(identities) >= MAX_IDENTITIES:
        raise RequestRefusedError(ZooKeeperCode.AUTH_FAILED, "too many identities")
    identities[identity] = None


def expand_acl(acl: Iterable[Acl], identities: Collection[AclIdentity]) -> tuple[Acl, ...]:
    """Check an ACL before it is stored, and put the client's own identities in place of `auth`.

    Raises RequestRefusedError: with INVALID_ACL: it is empty or too long, of an unknown scheme, or
    malformed, or `auth` is asked for by a client that has not authenticated.
    """
    expanded: dict[Acl, None] = {}  # in order, without duplicates
    for entry in acl:
        if entry.identity.scheme == "auth":
            own = own_identities(identities)
            if not own:
                raise RequestRefusedError(ZooKeeperCode.INVALID_ACL, "nobody has authenticated")
            expanded.update((Acl(entry.permissions, each), None) for each in own)
        elif _is_valid(entry.identity):
            expanded[entry] = None
        else:
            raise RequestRefusedError(ZooKeeperCode.INVALID_ACL, f"{entry.identity}")
        if len(expanded) > MAX_ACL_ENTRIES:
            raise RequestRefusedError(ZooKeeperCode.INVALID_ACL, "too many entries")
    if not expanded:
        raise RequestRefusedError(ZooKeeperCode.INVALID_ACL, "the ACL is empty")
    return tuple(expanded)


def own_identities(identities: Iterable[AclIdentity]) -> list[AclIdentity]:
    """What `auth` means: the users, by name alone where that was verified."""
    own = [each for each in identities if each.scheme == "digest"]
    return [each for each in own if is_verified(each)] or own


def verified_identity(principal: str) -> AclIdentity:
    """The identity of a verified name: the name alone, whatever the password becomes."""
    return AclIdentity("digest", principal + _VERIFIED)


def is_verified(identity: AclIdentity) -> bool:
    """Whether a name was verified: nobody else can have such an identity."""
    return identity.scheme == "digest" and identity.name.endswith(_VERIFIED)


def is_permitted(
    acl: Iterable[Acl], permission: AclPermission, identities: Collection[AclIdentity]
) -> bool:
    """Whether a client may do what it asks for: any one of the bits suffices."""
    return any(
        entry.permissions & permission and _matches(entry.identity, identities) for entry in acl
    )


def hide_digests(acl: Iterable[Acl]) -> tuple[Acl, ...]:
    """Leave out the passwords' digests, for a client that may read the ACL but not change it."""
    return tuple(
        Acl(entry.permissions, AclIdentity("digest", entry.identity.name.partition(":")[0] + ":x"))
        if entry.identity.scheme == "digest"
        else entry
        for entry in acl
    )


def _is_valid(identity: AclIdentity) -> bool:
    if identity.scheme == "world":
        return identity.name == "anyone"
    if identity.scheme == "digest":
        return identity.name.count(":") == 1 and not identity.name.endswith(":")
    return identity.scheme == "ip" and _network(identity.name) is not None


def _matches(wanted: AclIdentity, identities: Collection[AclIdentity]) -> bool:
    if wanted.scheme == "world":
        return True
    if wanted.scheme == "ip":
        network = _network(wanted.name)
        addresses = [
            form for each in identities if each.scheme == "ip" for form in _forms(each.name)
        ]
        return network is not None and any(each in network for each in addresses)
    return wanted in identities


@lru_cache(maxsize=4096)  # parsing takes 20 us, and an ACL is checked with every request
def _network(text: str) -> _Network | None:
    if len(text) > _LONGEST_NETWORK:
        return None
    _, slash, bits = text.partition("/")
    if slash and not bits.isdecimal():  # a netmask is no number of bits
        return None
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


@lru_cache(maxsize=1024)
def _forms(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]:
    """An address; and as Java has it, where one of IPv4 came to a port that is bound to `::`."""
    address = ipaddress.ip_address(text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (address,) if mapped is None else (address, mapped)
