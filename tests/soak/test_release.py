"""A release is prepared, as scripts/release does it, in a clone whose changelog has a date."""

import os
import re
import subprocess
from pathlib import Path

import pytest

from hermes import __version__

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.soak


def test_a_release_is_built_tried_and_tagged(tmp_path: Path) -> None:
    clone = tmp_path / "a clone"
    subprocess.run(["git", "clone", "-q", ROOT, clone], check=True)
    changelog = clone / "CHANGELOG.md"
    text = changelog.read_text(encoding="utf-8")
    changelog.write_text(
        re.sub(rf"## {re.escape(__version__)} \(.*\)", f"## {__version__} (2026-12-01)", text),
        encoding="utf-8",
    )
    git = ("git", "-C", clone, "-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-a", "-m", "Release"], check=True)
    # In the clone's own environment, whatever these tests run in.
    ours = ("HERMES_VENV", "HERMES_INSTALLED", "HERMES_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in ours}
    environment |= {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@example.org"}
    ran = subprocess.run(
        [clone / "scripts" / "release"], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr.count("serves, publishes and reads") == 2
    (wheel,) = (clone / "dist").glob("*.whl")
    (sdist,) = (clone / "dist").glob("*.tar.gz")
    assert f"-{__version__}-" in wheel.name
    assert f"-{__version__}." in sdist.name
    shown = subprocess.run(
        [*git, "show", "--no-patch", f"v{__version__}"], capture_output=True, text=True, check=True
    )
    assert "### The broker" in shown.stdout
