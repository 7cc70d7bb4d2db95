"""The files of what was set by request for the broker or its cluster, in log_dir.

A line of JSON, and one with its CRC-32. `.hermes_requested` has ACLs and quotas, which
`hermes.config.requested` reads; `.hermes_users` the cluster's users, only for their owner to read.
"""

import os
from typing import Final

from hermes.errors import CorruptEntriesError
from hermes.storage.files import FileLayer
from hermes.storage.whole_files import read_whole, replace_whole, with_checksum, without_checksum

REQUESTED_NAME: Final = ".hermes_requested"
USERS_NAME: Final = ".hermes_users"

_MOST_BYTES: Final = 1 << 20
_OWNERS_ONLY: Final = 0o600

#: What they hold, and what goes on without one.
_HELD: Final = {
    REQUESTED_NAME: ("the ACLs and quotas that Kafka's clients have set", "those of broker.yaml"),
    USERS_NAME: ("the cluster's users", "those of the users file and of coordination"),
}


def read_requested(directory: str, files: FileLayer, name: str = REQUESTED_NAME) -> bytes | None:
    """Read one; None when there is none. Raises CorruptEntriesError."""
    path = os.path.join(directory, name)
    data = read_whole(path, _MOST_BYTES, files)
    try:
        return None if data is None else without_checksum(data)
    except ValueError as error:
        held, left = _HELD[name]
        raise CorruptEntriesError(
            f"{path} is damaged ({error}): it holds {held}; put back a copy of it, or move it away "
            f"to go on with {left}"
        ) from None


def write_requested(
    directory: str, data: bytes, files: FileLayer, name: str = REQUESTED_NAME
) -> None:
    """Replace one. Blocks; raises StorageError as `replace_whole` does."""
    replace_whole(os.path.join(directory, name), with_checksum(data), files, mode=_OWNERS_ONLY)
