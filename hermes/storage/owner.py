"""Whose a data directory is: `.hermes_broker` in log_dir has the broker's id.

    {"broker_id": 0}
    {"crc32": "..."}

Groups of Kafka 0.7's consumers and mirrors keep offsets by a broker's id, so under another id
everything would be read again. Who opens a directory without the file becomes its owner. One that
only a Kafka has used is that Kafka's, by its `meta.properties`.
"""

import os
from collections.abc import Collection
from typing import Final

from hermes.errors import StorageError
from hermes.storage.files import FileLayer
from hermes.storage.layout import LOCK_NAME, OWNER_NAME
from hermes.storage.whole_files import decode_checked, encode_checked, read_whole, replace_whole

#: Kafka's, since 0.8: which broker, of which cluster. It is read, and never changed.
KAFKA_OWNER_NAME: Final = "meta.properties"

_MOST_BYTES: Final = 64 * 1024
_KAFKAS_IDS: Final = ("node.id", "broker.id")
_OWN_PREFIX: Final = ".hermes_"


def check_owner(directory: str, broker_id: int, names: Collection[str], files: FileLayer) -> str:
    """Refuse a data directory that is another broker's. Blocks.

    Args:
        broker_id: the id of the broker that wants to use it.
        names: what is in it.

    Returns:
        What is wrong with the file, if it is damaged: then the broker is believed; else nothing.

    Raises:
        StorageError: it is another broker's; the text says what to do.
    """
    name, told = OWNER_NAME, ""
    try:
        owner = read_owner(directory, files)
    except ValueError as error:
        owner, told = (
            None,
            f"{OWNER_NAME}, which was damaged ({error}): broker {broker_id} was believed",
        )
    if owner is None and not told and _is_kafkas_alone(names):
        name, owner = KAFKA_OWNER_NAME, _kafkas_owner(directory, files)
    if owner is not None and owner != broker_id:
        raise StorageError(
            f"{directory} is the data directory of broker {owner}, as its {name} says, and not of "
            f"broker {broker_id}: correct broker_id or log_dir in broker.yaml; or, if it is to be "
            f"broker {broker_id}'s from now on, run `hermes config adopt broker.yaml` "
            "(docs/operations.md, Another broker_id)"
        )
    return told


def read_owner(directory: str, files: FileLayer) -> int | None:
    """The id of the broker whose data directory it is; None where nobody has written it.

    Raises ValueError: the file is damaged.
    """
    data = read_whole(os.path.join(directory, OWNER_NAME), _MOST_BYTES, files)
    if data is None:
        return None
    owner = decode_checked(data).get("broker_id")
    if type(owner) is not int:
        raise ValueError("it has no broker_id")
    return owner


def write_owner(directory: str, broker_id: int, files: FileLayer) -> None:
    """Let a data directory be a broker's from now on. Blocks; it is on disk when this returns."""
    data = encode_checked({"broker_id": broker_id})
    replace_whole(os.path.join(directory, OWNER_NAME), data, files)


def _is_kafkas_alone(names: Collection[str]) -> bool:
    """Whether no broker of Hermes has used a directory, whatever id it had there."""
    return KAFKA_OWNER_NAME in names and not any(
        name.startswith(_OWN_PREFIX) and name != LOCK_NAME for name in names
    )


def _kafkas_owner(directory: str, files: FileLayer) -> int | None:
    data = read_whole(os.path.join(directory, KAFKA_OWNER_NAME), _MOST_BYTES, files) or b""
    lines = [line.partition("=") for line in data.decode("latin-1").splitlines()]
    found = {key.strip(): value.strip() for key, _, value in lines if not key.startswith("#")}
    ids = [found[each] for each in _KAFKAS_IDS if found.get(each, "").isdecimal()]
    return int(ids[0]) if ids else None
