"""Files that hold what nobody but their owner may read."""

import os
from contextlib import suppress
from pathlib import Path

__all__ = ["replace_secret_file"]


def replace_secret_file(target: Path, content: bytes) -> None:
    """Write a file whole, or leave what was there; it stays that owner's.

    Raises OSError if it can't be written.
    """
    owner = os.stat(target) if os.path.lexists(target) else None
    draft = target.with_name(f".{target.name}.new")
    with suppress(FileNotFoundError):  # of a command that was killed
        draft.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o600)
    try:
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)
            if owner is not None and (owner.st_uid, owner.st_gid) != (os.getuid(), os.getgid()):
                os.fchown(descriptor, owner.st_uid, owner.st_gid)  # the broker's, not root's
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(draft, target)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
