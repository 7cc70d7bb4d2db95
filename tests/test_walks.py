"""What ARCHITECTURE.md lists of a life is there, is few, and is reached in that order; its tour."""

import ast
from pathlib import Path

import pytest
from walks import HERMES, ROOT, Walk, tour, walks

#: Those that hand the broker's parts to each other: a part is also reached through its object.
WIRING = (
    "broker/connections.py",
    "cluster/shared.py",
    "kafka/connection.py",
    "v0_7/dispatching.py",
)


def imports(path: Path) -> set[str]:
    """The files below `hermes/` that a file imports from, wherever in its text."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names |= {f"{node.module}", *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    files = set()
    for name in names:
        module = ROOT.joinpath(*name.split("."))
        for each in (module.with_suffix(".py"), module / "__init__.py"):
            if each.is_file() and each.is_relative_to(HERMES):
                files.add(each.relative_to(HERMES).as_posix())
    return files


def test_there_are_lists() -> None:
    assert len({walk.life for walk in walks()}) == len(walks()) > 0


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.life)
def test_a_life_goes_through_few_files(walk: Walk) -> None:
    assert len(walk.files) <= walk.most
    assert len(set(walk.files)) == len(walk.files)


@pytest.mark.parametrize("walk", walks(), ids=lambda walk: walk.life)
def test_each_file_is_reached_from_those_before_it(walk: Walk) -> None:
    """By an import either way round, over a package that passes its modules' names on, or wired."""
    wired = [imports(HERMES / each) for each in WIRING]
    reached: set[str] = set()
    for number, file in enumerate(walk.files):
        assert (HERMES / file).is_file(), f"{file} is not there"
        own = imports(HERMES / file)
        packages = {f"{parent.as_posix()}/__init__.py" for parent in Path(file).parents}
        if number:
            known = {file, *packages} & reached or own & set(walk.files[:number])
            handed_on = any(file in each and each & reached for each in wired)
            assert known or handed_on, f"{file} has nothing to do with the files before it"
        reached |= own


def test_the_tour_is_as_short_as_it_says() -> None:
    """The whole strictly; of each file about, so that not every change of it changes the tour."""
    most, files = tour()
    lines = {each.file: (HERMES / each.file).read_bytes().count(b"\n") for each in files}
    assert len(lines) == len(files) > 0
    assert sum(lines.values()) <= most <= 3000
    for each in files:
        assert abs(lines[each.file] - each.lines) <= each.lines / 5, each
