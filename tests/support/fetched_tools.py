"""What scripts/environment.sh has fetched and built, and where it keeps that."""

import os
from pathlib import Path

__all__ = ["CACHE", "fetched"]

_CACHES = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
CACHE = Path(os.environ.get("HERMES_CACHE") or _CACHES / "hermes")


def fetched(variable: str, pattern: str, function: str = "ensure_s3") -> Path:
    """What a function of scripts/environment.sh has fetched: where it says, or in the cache."""
    given = os.environ.get(variable)
    found = [Path(given)] if given else sorted(CACHE.glob(pattern), key=os.path.getmtime)
    if not found or not found[-1].exists():
        raise RuntimeError(
            f"these tests need {pattern} in {CACHE}: scripts/test and scripts/soak fetch it, or "
            f"bash -c '. scripts/environment.sh; {function}'"
        )
    return found[-1]
