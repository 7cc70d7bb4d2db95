"""What a client that has to authenticate is promised, and what it says about itself."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hermes.coordination.embedded.zookeeper_requests import ConnectRequest


class Promise(NamedTuple):
    """A session that a client gets if it authenticates.

    `session_id`: the new session's, or that of the one whose password it knows.
    """

    request: ConnectRequest
    session_id: int
    password: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """A user and a password to be checked, with the request's `xid`; both: the credential."""

    xid: int
    user: str
    password: str = field(repr=False)
    credential: bytes = field(repr=False)
