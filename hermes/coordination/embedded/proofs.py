"""What a client that has to authenticate is promised, and what it says about itself."""

from dataclasses import dataclass, field
from typing import NamedTuple

from hermes.coordination.embedded.requests import ConnectRequest


class Promise(NamedTuple):
    """A session that a client gets if it authenticates.

    Attributes:
        request: by which it asked.
        session_id: the new session's, or that which it knows the password of.
        password: the session's.
    """

    request: ConnectRequest
    session_id: int
    password: bytes


@dataclass(frozen=True, slots=True)
class Proof:
    """A user and a password, to be checked.

    Attributes:
        xid: of the request.
        user: who the client says it is.
        password: which it says is theirs.
        credential: both, as they were sent.
    """

    xid: int
    user: str
    password: str = field(repr=False)
    credential: bytes = field(repr=False)
