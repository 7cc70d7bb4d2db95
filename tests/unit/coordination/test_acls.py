"""Whose nodes are that are made in transactions, however their calls give the flags."""

import logging
from types import SimpleNamespace

import pytest

from hermes.coordination.acls import OWNED, OwningTransaction, acl_of


@pytest.mark.parametrize(
    ("arguments", "options", "flags"),
    [
        ((), {}, 0),
        ((b"x",), {"ephemeral": True}, 1),
        ((b"x", None, True), {}, 1),
        ((b"x", None, False), {"sequence": True}, 2),
    ],
)
def test_a_transaction_makes_nodes_of_the_session_s_user(
    arguments: tuple[object, ...], options: dict[str, bool], flags: int
) -> None:
    client = SimpleNamespace(chroot="", default_acl=None, logger=logging.getLogger(__name__))
    transaction = OwningTransaction(client)
    transaction.create("/consumers/g/owners/t/0-0", *arguments, **options)
    transaction.create("/consumers", *arguments, **options)
    owned, shared = transaction.operations
    assert (tuple(owned.acl), owned.flags) == (OWNED, flags)
    assert acl_of("/consumers") != OWNED
    assert (tuple(shared.acl), shared.flags) == (acl_of("/consumers"), flags)
