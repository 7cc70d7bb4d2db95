"""Whom an ACL lets in."""

import pytest

from hermes.coordination.embedded.access_control import is_permitted
from hermes.coordination.embedded.jute_records import Acl, AclIdentity, AclPermission


@pytest.mark.parametrize("address", ["10.0.0.5", "::ffff:10.0.0.5"])
@pytest.mark.parametrize(
    ("named", "is_let_in"),
    [("10.0.0.5", True), ("10.0.0.0/24", True), ("10.0.1.0/24", False), ("::1", False)],
)
def test_an_address_is_the_same_on_a_port_for_both_protocols(
    address: str, named: str, is_let_in: bool
) -> None:
    """One that is bound to `::` gives IPv4's in IPv6's form."""
    acl = [Acl(AclPermission.READ, AclIdentity("ip", named))]
    identities = {AclIdentity("ip", address): None}
    assert is_permitted(acl, AclPermission.READ, identities) is is_let_in
