"""The journal of a Parquet target: loads, expiries and compactions in one order, on any store.

    _hermes/manifests/<20 digits>.json   the entries, numbered from 1 without gaps
    _hermes/summaries/<20 digits>.json   what counts after the entry of that number
    _hermes/published/<20 digits>.json   up to which entry the files are where they belong

All that is asked of the store is `create`: of several writers of a name one wins.

- **An entry is a commit.** Its writer knows what counts after entry n, and creates n + 1. If that
  name is taken, it reads on, and tries the next one only if its entry still makes sense: a load if
  its number is still the next, a compaction if what it replaces still counts.
- **A summary replaces entries.** It says what they come to, and is written only when they are
  published. The last two are kept, and the entries after the older one. So a name may be free again
  that was taken; but never one after the newest summary. Hence nobody relies on what was read or
  created after a summary before having seen that it still is the newest. What others create by
  mistake is before a summary, where nobody looks.
- **Who can't know gives up first.** If `create` fails without saying whether the entry exists, a
  fence is created that names the attempt: either the fence counts, and the attempt never will, or
  the entry does. Only then are files removed.
- **Files follow the commit.** What an entry removes is deleted, then what it adds is moved from the
  attempt's directory to where other readers look. Anybody may do that, any number of times, since
  names of data files are used once: each step is done, or due. So whoever comes next finishes what
  a crash has left, and nothing uncommitted is where other readers look. (Where moving is copying, a
  copy that took longer than all that follows may bring back a file that was removed: it doesn't
  count, and a clean-up finds it.)
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from hermes.errors import LoadTargetError
from hermes.spark.load.journal_entries import JournalEntry, decode_entry, folder_of
from hermes.spark.load.journal_snapshot import JournalSnapshot
from hermes.spark.load.load_target import (
    MANIFESTS,
    PUBLISHED,
    RECORDS,
    SUMMARIES,
    manifest_name,
    numbered,
)
from hermes.spark.load.plans import parsing
from hermes.spark.stores import FileStore

#: After how many entries a summary is due.
SUMMARY_INTERVAL: Final = 32

# How often a reader starts over because a summary was written meanwhile.
_ATTEMPTS: Final = 100

_ADVICE: Final = (
    "restore it from a copy: without it the data of this target can't be told from what failed"
)


class Journal:
    """What happened to a target; `state` is what counts, as of the last `read` or commit."""

    def __init__(self, store: FileStore) -> None:
        self.state = JournalSnapshot()
        self._store = store
        self._summary = 0  # which one `state` began with
        self._entries: list[tuple[int, JournalEntry]] = []  # those after it

    # -- reading --------------------------------------------------------------------------------

    def read(self) -> JournalSnapshot:
        """Read what counts now. Raises LoadTargetError for a record that is missing or damaged."""
        for _ in range(_ATTEMPTS):
            if self._has_read():
                return self.state
        raise LoadTargetError(
            f"{self._store.place(SUMMARIES)} has a new summary each time that this reads the last "
            "one: try again"
        )

    # -- committing -----------------------------------------------------------------------------

    def commit(
        self, make: Callable[[JournalSnapshot], JournalEntry | None], *, attempt: str = ""
    ) -> JournalEntry | None:
        """Commit an entry after whatever others commit meanwhile; None if there is none.

        Args:
            make: makes the entry from what counts; None if it makes no sense any more.
            attempt: where its files come from, if others may have given that up.

        Raises:
            OSError: the store fails: it isn't known whether the entry is committed; see `give_up`.
            LoadTargetError: a record is missing or damaged.
        """
        while (entry := make(self.state)) is not None:
            if self._append(entry):
                return entry
            others = self._read_on()
            if others is None:
                self.read()
                if entry.attempt and self.has_committed(entry.attempt):
                    return entry
            if attempt and (others is None or any(attempt in each.fenced for each in others)):
                return None
        return None

    def give_up(self, attempt: str) -> bool:
        """Make sure that an attempt is never committed; True if it is already."""
        self.read()
        while not self.has_committed(attempt):
            if self._append(JournalEntry("fence", fenced=(attempt,))):
                return False
            if self._read_on() is None:
                self.read()
        return True

    def has_committed(self, attempt: str) -> bool:
        token = attempt.rpartition("/")[2]
        return any(entry.attempt == attempt for _, entry in self._entries) or any(
            name.rpartition("/")[2].startswith(token) for name in self.state.files
        )

    # -- files ----------------------------------------------------------------------------------

    def settle(self) -> None:
        """Finish what entries have begun: publish their files, and sum them up when that is due."""
        self.publish()
        if self.state.sequence - self._summary >= SUMMARY_INTERVAL:
            self._write_summary()

    def publish(self) -> None:
        published = self._newest(PUBLISHED) if self._entries else 0
        due = [entry for number, entry in self._entries if number > published]
        for entry in due:
            self._publish(entry)
        if due:
            self._write_numbered(PUBLISHED, b"{}\n")

    # -- inside ---------------------------------------------------------------------------------

    def _has_read(self) -> bool:
        self.state, self._entries = JournalSnapshot(), []
        self._summary = self._newest(SUMMARIES)
        if self._summary:
            name = f"{SUMMARIES}/{self._summary:020d}.json"
            content = self._store.read(name)
            if content is None:
                return False
            self.state = JournalSnapshot.decode(content, str(self._store.place(name)), _ADVICE)
        while True:
            before = self.state.sequence
            if self._read_on() is None:
                return False
            if not self._numbers(MANIFESTS, self.state.sequence):
                return True
            if self.state.sequence == before and self._read_on() == []:
                place = self._store.place(manifest_name(self.state.sequence + 1))
                raise LoadTargetError(f"{place} is missing: {_ADVICE}")

    def _read_on(self) -> list[JournalEntry] | None:
        """Read what has happened since; None when there is a new summary: this must start over."""
        found = []
        while True:
            name = manifest_name(self.state.sequence + 1)
            content = self._store.read(name)
            if content is None:
                break
            place = str(self._store.place(name))
            try:
                entry = decode_entry(content, place, _ADVICE)
                self._apply(entry)
            except LoadTargetError:
                if self._newest(SUMMARIES) != self._summary:
                    return None
                raise
            found.append(entry)
        return found if self._newest(SUMMARIES) == self._summary else None

    def _append(self, entry: JournalEntry) -> bool:
        self.state.check(entry)
        name = manifest_name(self.state.sequence + 1)
        if not self._store.create(name, entry.encode()):
            return False
        if self._newest(SUMMARIES) != self._summary:
            return False  # it may be before a summary
        self._apply(entry)
        return True

    def _apply(self, entry: JournalEntry) -> None:
        place = self._store.place(manifest_name(self.state.sequence + 1))
        with parsing(str(place), _ADVICE):
            self.state.apply(entry)
        self._entries.append((self.state.sequence, entry))

    def _publish(self, entry: JournalEntry) -> None:
        for name in entry.removed:
            self._store.delete(name)
        folders = {folder_of(each.file.name) for each in entry.added}
        for folder in sorted(folders):
            self._store.make_directory(folder)
        self._store.flush(
            _ancestors(folders)
        )  # or a file may be lost that is no longer where it was
        for each in entry.added:
            with suppress(FileNotFoundError):  # somebody else was faster
                self._store.move(each.source, each.file.name)
        emptied = set(map(folder_of, entry.removed)) - folders
        # Those above again: another run may have removed one while it was empty, and made it anew.
        self._store.flush([*sorted({*folders, *emptied}), *_ancestors(folders)])
        for folder in sorted(emptied):
            self._store.delete_empty(folder)
        if entry.attempt:
            self._store.delete_tree(entry.attempt)

    def _write_summary(self) -> None:
        """Write a summary, and remove what it makes superfluous. All entries are published."""
        before = self._newest(SUMMARIES)
        if before > self.state.sequence:
            return
        self._write_numbered(SUMMARIES, self.state.encode())
        for number in self._numbers(MANIFESTS):
            if number <= before:
                self._store.delete(manifest_name(number))

    def _write_numbered(self, directory: str, content: bytes) -> None:
        self._store.make_directory(directory)
        self._store.create(f"{directory}/{self.state.sequence:020d}.json", content)
        self._store.flush([RECORDS])
        for number in self._numbers(directory)[:-2]:
            self._store.delete(f"{directory}/{number:020d}.json")

    def _newest(self, directory: str) -> int:
        return max(self._numbers(directory), default=0)

    def _numbers(self, directory: str, after: int = 0) -> Sequence[int]:
        names = self._store.names(directory, after=f"{after:020d}.json")
        return [number for each in names if (number := numbered(each)) is not None]


def _ancestors(folders: set[str]) -> list[str]:
    """The directories above some others, the deepest first, down to the target itself."""
    found = {""} if folders else set()
    for each in folders:
        while each := folder_of(each):
            found.add(each)
    return sorted(found, key=lambda each: -len(each))
