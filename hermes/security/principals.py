"""Names of principals: users, subjects of certificates, and two of Hermes' own."""

import re
from typing import Final

from hermes.errors import ConfigError
from hermes.quoting import quoted

#: Whoever has proved nothing, on a listener that asks for nothing.
ANONYMOUS: Final = "anonymous"

#: The broker itself, where parts of its process are its clients.
INTERNAL: Final = "hermes-internal"

_LONGEST: Final = 255

# Basic authentication and ZooKeeper's digest end a name at the colon; the users file, too.
_NAME: Final = re.compile(r"[^\s:,=\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def is_user_name(name: str) -> bool:
    """Whether a user could have this name; also the reserved ones, of a listener's own users."""
    return len(name) <= _LONGEST and _NAME.fullmatch(name) is not None


def check_user_name(name: str) -> None:
    """Raises ConfigError: it is empty, too long, reserved, or holds what ends a name somewhere."""
    if name in (ANONYMOUS, INTERNAL):
        raise ConfigError("user", f"{quoted(name)} is reserved")
    if not is_user_name(name):
        raise ConfigError(
            "user",
            f"{quoted(name)} can't be a user's name: 1 to {_LONGEST} characters, "
            "none of them a space, a colon, a comma, an equals sign or a control character",
        )
