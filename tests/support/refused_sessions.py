"""Sessions that coordination refuses before it speaks: what is said of that."""

import re
from typing import Any, Final

from hermes.coordination.sessions import Session
from hermes.errors import CoordinationUnavailableError

#: A session tries until its time is up. The first is enough unless the machine is very busy.
_TIMEOUTS_SECONDS: Final = (1, 8, 60)


def refusal_of(address: str, security: Any, said: str) -> str:
    """Try to connect, for longer and longer, until the reason is known; what is said at last.

    Args:
        address: where coordination is.
        security: with what to connect.
        said: a pattern of the reason.
    """
    text = ""
    for timeout in _TIMEOUTS_SECONDS:
        session = Session(address, security=security, connection_timeout_seconds=timeout)
        try:
            session.start()
        except CoordinationUnavailableError as error:
            text = str(error)
        else:
            session.stop()
            return "it is taken"
        if re.search(said, text):
            break
    return text
