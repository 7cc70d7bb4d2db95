"""High watermarks of the logs that have other copies: `.hermes_watermarks` in log_dir.

Of a log that is named here not all that is on this disk is committed. A log that isn't is the only
copy. What is kept may lag behind. `LACKING` stands where a copy that others count on isn't here: it
must not count before it has told them so. The file is a line of JSON and one with its checksum.
"""

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Final

from hermes.storage.files import FileLayer
from hermes.storage.layout import WATERMARKS_NAME, TopicPartition
from hermes.storage.whole_files import read_whole, replace_whole, with_checksum, without_checksum

#: Beyond the end of any log: an earlier version, too, takes it for one that has lost something.
LACKING: Final = (1 << 63) - 1

_MOST_BYTES: Final = 64 << 20


class Watermarks:
    """`load` comes first. Any thread."""

    def __init__(self, directory: str, files: FileLayer) -> None:
        self._path = os.path.join(directory, WATERMARKS_NAME)
        self._files = files
        self._marks: dict[TopicPartition, int] = {}
        self._writing = threading.Lock()
        self._is_certain = True  # that the file says this, as no write of it has failed since

    def load(self) -> str:
        """Read the file; what is wrong with it, in words.

        Then nothing of it is believed: copies are made anew, where others have them.
        """
        data = read_whole(self._path, _MOST_BYTES, self._files)
        try:
            read = {} if data is None else json.loads(without_checksum(data))
            self._marks = {
                (topic, int(number)): int(mark)
                for topic, marks in read.items()
                for number, mark in marks.items()
            }
        except (ValueError, AttributeError, TypeError, RecursionError) as error:
            self._marks = {}
            return f"{self._path} is damaged ({error}), and is begun anew"
        return ""

    def get(self, topic: str, partition: int) -> int | None:
        """What of a log was committed at least, or LACKING; None for one that is the only copy."""
        return self._marks.get((topic, partition))

    def committed(self, topic: str, partition: int) -> int | None:
        """What of a log was committed at least and is here; None for one that is the only copy."""
        mark = self.get(topic, partition)
        return 0 if mark == LACKING else mark

    def keep(
        self, marks: Mapping[TopicPartition, int], counts: Callable[[], bool] = lambda: True
    ) -> None:
        """Put on disk what is committed by now. Blocks. Raises StorageError: the disk refused.

        `counts`: whether it does still, once nothing else is being written.
        """
        with self._writing:
            if counts():
                self._write({**self._marks, **marks})

    def forget(self, logs: Collection[TopicPartition], *, even_lacking: bool = False) -> None:
        """Have logs that are gone be named no more. Blocks. Raises StorageError, as `keep` does.

        `even_lacking`: else a copy that is LACKING stays so: its log goes also to be made anew.
        """
        with self._writing:
            kept = {each for each in logs if self._marks.get(each) == LACKING and not even_lacking}
            gone = set(logs) - kept
            self._write({each: mark for each, mark in self._marks.items() if each not in gone})

    def _write(self, after: dict[TopicPartition, int]) -> None:
        if after == self._marks and self._is_certain:
            return
        shown: dict[str, dict[int, int]] = {}
        for (topic, number), mark in after.items():
            shown.setdefault(topic, {})[number] = mark
        line = json.dumps(shown, separators=(",", ":")).encode()
        self._is_certain = False
        replace_whole(self._path, with_checksum(line), self._files)
        self._marks, self._is_certain = after, True
