"""`clean_up`: removes what attempts at loads left behind that will never count."""

from dataclasses import dataclass
from pathlib import Path

from hermes.spark.load.files import Files
from hermes.spark.load.job import open_sink
from hermes.spark.load.reader import open_target
from hermes.spark.load.target import LoadTarget, numbered

__all__ = ["CleanUp", "clean_up"]


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What was removed.

    Attributes:
        directories: of attempts at loads that another attempt has committed.
        temporary_files: that were never given their name.
        removed_bytes: how large all these were.
        kept: directories of attempts at the load that is not committed yet: it may be running.
    """

    directories: tuple[Path, ...]
    temporary_files: tuple[Path, ...]
    removed_bytes: int
    kept: tuple[Path, ...]


def clean_up(target: str | Path, *, files: Files | None = None) -> CleanUp:
    """Remove what failed attempts left in a target. Safe while loads run.

    Only what can't count any more is removed: attempts at loads that are committed by another one.
    The attempts at the next load stay until it is committed.

    Example:
        print(clean_up("/data/clicks").removed_bytes)

    Args:
        target: the directory.
        files: the file system; for tests.

    Raises:
        LoadTargetError: it is no target of loads, or damaged.
    """
    place = open_target(target, files or Files())
    sink = open_sink(place)
    last, committed = sink.last().number, sink.directories()
    orphans: list[Path] = []
    kept: list[Path] = []
    for number, directory in place.attempts():
        if number > last:
            kept.append(directory)
        elif committed.get(number) not in (None, directory.relative_to(place.path).as_posix()):
            orphans.append(directory)
    leftovers = _temporary_files(place, last)
    removed = sum(map(_size, [*orphans, *leftovers]))
    for directory in orphans:
        place.remove_attempt(directory)
    for path in leftovers:
        place.files.unlink(path)
    return CleanUp(tuple(orphans), tuple(leftovers), removed, tuple(kept))


def _temporary_files(place: LoadTarget, last: int) -> list[Path]:
    """Files of settled loads that were not given their name; others may be just being written."""
    found = []
    for directory in (place.plans.parent, place.plans, place.manifests):
        for name in place.files.names(directory):
            if not (name.startswith(".") and name.endswith(".tmp")):
                continue
            number = numbered(name[1:].rsplit(".", 2)[0])
            if number is None or number <= last:
                found.append(directory / name)
    return found


def _size(path: Path) -> int:
    try:
        inner = path.rglob("*") if path.is_dir() else [path]
        return sum(each.stat().st_size for each in inner if each.is_file())
    except FileNotFoundError:
        return 0  # whose it is removed it meanwhile
