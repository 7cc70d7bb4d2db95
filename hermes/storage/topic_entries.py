"""The file of what was set for single topics while a broker ran: `.hermes_topics` in log_dir.

    {"hermes_topics": 1}
    {"topic": "clicks", "settings": {"partitions": "8", "retention_time": "30d"}}
    {"topics": 1, "crc32": "1c291ca3"}

A line of JSON for each topic, between one that names the format and one that has the number of
topics and the CRC-32 of all bytes before it. So an operator can read it, and whatever is cut off or
changed is noticed. The file is replaced as a whole: after a crash there is the old one or the new
one. What the settings mean is decided above. Kafka 0.7 ignores the file.
"""

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from hermes.errors import CorruptEntriesError, StorageError
from hermes.storage.files import FileLayer
from hermes.storage.whole_files import read_whole, replace_whole

ENTRIES_NAME: Final = ".hermes_topics"

#: The largest file: ten thousand topics with all settings take a fifth of it.
MAX_ENTRIES_BYTES: Final = 16 << 20

#: Settings with their values as texts, by topic.
TopicEntries = Mapping[str, Mapping[str, str]]

_FORMAT: Final = b'{"hermes_topics": 1}\n'


def read_entries(directory: str, files: FileLayer) -> TopicEntries:
    """Read what was set; nothing when there is no file. Raises CorruptEntriesError."""
    path = os.path.join(directory, ENTRIES_NAME)
    data = read_whole(path, MAX_ENTRIES_BYTES, files)
    if data is None:
        return {}
    try:
        return _parse(data)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptEntriesError(
            f"{path} is damaged ({error}): it holds what `hermes topics create` and `alter` have "
            "set; put back a copy of it, or move it away to go on with the settings of broker.yaml"
        ) from None


def _parse(data: bytes) -> TopicEntries:
    body, _, last = data[:-1].rpartition(b"\n")
    body += b"\n"
    if not data.endswith(b"\n") or not body.startswith(_FORMAT):
        raise ValueError("it begins or ends otherwise than it was written")
    end = json.loads(last)
    lines = [json.loads(line) for line in body[len(_FORMAT) :].splitlines()]
    if end != {"topics": len(lines), "crc32": f"{crc32(body):08x}"}:
        raise ValueError("its CRC-32 or its number of topics is wrong")
    return {line["topic"]: dict(line["settings"].items()) for line in lines}


class EntryLines:
    """The lines of the entries that were written last: of thousands mostly one is new.

    Nobody may change an entry that was given; one that replaces it is another object.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Mapping[str, str], bytes]] = {}

    def of(self, entries: TopicEntries) -> list[bytes]:
        known, self._known = self._known, {}
        for topic, settings in entries.items():
            found = known.get(topic)
            if found is None or found[0] is not settings:
                found = settings, _line({"topic": topic, "settings": dict(settings)})
            self._known[topic] = found
        return [line for _, line in self._known.values()]


def write_entries(
    directory: str, entries: TopicEntries, files: FileLayer, lines: EntryLines | None = None
) -> None:
    """Replace what was set. Blocks; all of it is on disk when this returns.

    Args:
        lines: what was written last, which isn't encoded again.

    Raises:
        StorageError: the disk refused; the old file is still there, unless only its name could
            not be put on disk.
    """
    path = os.path.join(directory, ENTRIES_NAME)
    data = _format((lines or EntryLines()).of(entries))
    if len(data) > MAX_ENTRIES_BYTES:
        raise StorageError(f"{path} would be larger than {MAX_ENTRIES_BYTES} bytes")
    replace_whole(path, data, files)


def _format(lines: Sequence[bytes]) -> bytes:
    body = b"".join((_FORMAT, *lines))
    return body + _line({"topics": len(lines), "crc32": f"{crc32(body):08x}"})


def _line(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
