"""The file of what was set by request for the broker: `.hermes_requested` in log_dir.

A line of JSON, which `hermes.config.requested` reads, and one with its CRC-32.
"""

import os
from typing import Final

from hermes.errors import CorruptEntriesError
from hermes.storage.files import FileLayer
from hermes.storage.whole_files import read_whole, replace_whole, with_checksum, without_checksum

REQUESTED_NAME: Final = ".hermes_requested"

_MOST_BYTES: Final = 1 << 20


def read_requested(directory: str, files: FileLayer) -> bytes:
    """Read it; b"" when there is no file. Raises CorruptEntriesError."""
    path = os.path.join(directory, REQUESTED_NAME)
    data = read_whole(path, _MOST_BYTES, files)
    try:
        return b"" if data is None else without_checksum(data)
    except ValueError as error:
        raise CorruptEntriesError(
            f"{path} is damaged ({error}): it holds the ACLs and quotas that Kafka's clients have "
            "set; put back a copy of it, or move it away to go on with those of broker.yaml"
        ) from None


def write_requested(directory: str, data: bytes, files: FileLayer) -> None:
    """Replace it. Blocks; raises StorageError as `replace_whole` does."""
    replace_whole(os.path.join(directory, REQUESTED_NAME), with_checksum(data), files)
