"""When scripts/release refuses, and the notes that it takes; tests/soak/test_release.py builds."""

import os
import subprocess
from pathlib import Path
from shutil import copy

import pytest

ROOT = Path(__file__).parents[2]

CHANGELOG = """\
# Changelog

## 1.2.3 (2026-11-24)

It's new.

### The broker

- Faster.

## 1.2.0 (2026-01-01)

- Old.
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository of what the script looks at before it builds, ready to be released."""
    root = tmp_path / "a tree"
    for name in ("scripts/release", "scripts/environment.sh"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, root / name)
    (root / "hermes").mkdir()
    (root / "hermes" / "_version.py").write_text('"""Doc."""\n\n__version__ = "1.2.3"\n')
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    (root / "SECURITY.md").write_text("| release | fixes |\n|---|---|\n| 1.2 | yes |\n")
    git(root, "init", "-q")
    commit(root)
    return root


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", root, *who, *arguments], check=True)


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "Change")


def release(tree: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the script; where it would build, it stops because its environment is none."""
    (tree / ".git" / "taken").mkdir(exist_ok=True)
    (tree / ".git" / "taken" / "file").touch()
    return subprocess.run(
        [tree / "scripts" / "release", *arguments],
        env=os.environ | {"HERMES_VENV": str(tree / ".git" / "taken"), "LC_ALL": "C"},
        capture_output=True,
        text=True,
    )


WOULD_BUILD = "is no virtual environment"


def test_a_tree_that_is_ready_would_be_built(tree: Path) -> None:
    assert WOULD_BUILD in release(tree).stderr


def test_the_notes_are_the_changelogs_part_of_the_version(tree: Path) -> None:
    ran = release(tree, "--notes")
    assert ran.returncode == 0
    assert ran.stdout.strip() == "It's new.\n\n### The broker\n\n- Faster."


@pytest.mark.parametrize(
    ("file", "old", "new", "reason"),
    [
        ("CHANGELOG.md", "(2026-11-24)", "(unreleased)", "expected '## 1.2.3 (YYYY-MM-DD)'"),
        ("CHANGELOG.md", "## 1.2.3 ", "## 1.3.0 ", "CHANGELOG.md says nothing about 1.2.3"),
        ("SECURITY.md", "| 1.2 |", "| 1.1 |", "SECURITY.md doesn't list 1.2"),
        ("hermes/_version.py", "1.2.3", "1.2.4", "CHANGELOG.md says nothing about 1.2.4"),
    ],
)
def test_what_does_not_fit_is_refused(
    tree: Path, file: str, old: str, new: str, reason: str
) -> None:
    (tree / file).write_text((tree / file).read_text().replace(old, new))
    commit(tree)
    ran = release(tree)
    assert ran.returncode == 1
    assert reason in ran.stderr


def test_changes_that_are_not_committed_are_refused(tree: Path) -> None:
    (tree / "more").touch()
    assert "there are changes that aren't committed" in release(tree).stderr
    assert WOULD_BUILD in release(tree, "--dry-run").stderr


def test_a_version_is_released_once(tree: Path) -> None:
    git(tree, "tag", "v1.2.3")
    assert "the tag v1.2.3 exists" in release(tree).stderr


def test_an_unknown_word_is_refused(tree: Path) -> None:
    ran = release(tree, "--push")
    assert (ran.returncode, ran.stderr) == (1, "usage: scripts/release [--dry-run | --notes]\n")
