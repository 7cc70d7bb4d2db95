"""What an installation holds: the dropin, the entry points, the version, nothing of the tests."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
from configparser import ConfigParser
from email import message_from_bytes
from importlib.metadata import entry_points, version
from pathlib import Path
from zipfile import ZipFile

import pytest

import hermes

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def setup_cfg() -> ConfigParser:
    parser = ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_the_version_is_the_same_everywhere(setup_cfg: ConfigParser) -> None:
    assert setup_cfg["metadata"]["version"] == "attr: hermes._version.__version__"
    assert version("hermes-log") == hermes.__version__


def test_every_entry_point_that_is_declared_is_installed_and_loads(setup_cfg: ConfigParser) -> None:
    declared = {
        (group, line.split("=")[0].strip(), line.split("=")[1].strip())
        for group, lines in setup_cfg["options.entry_points"].items()
        for line in lines.strip().splitlines()
    }
    assert declared
    for group, name, value in declared:
        found = [entry for entry in entry_points(group=group, name=name) if entry.value == value]
        assert len(found) == 1, f"{group}: {name} (reinstall: pip install -e .)"
        assert callable(found[0].load())


def test_twistd_knows_hermes_from_any_directory(tmp_path: Path) -> None:
    """A plain editable install without `package_dir` would hide the dropin."""
    twistd = Path(sys.executable).with_name("twistd")
    help_text = subprocess.run([twistd, "--help"], cwd=tmp_path, capture_output=True, text=True)
    assert any(line.split()[:1] == ["hermes"] for line in help_text.stdout.splitlines())
    assert list(tmp_path.iterdir()) == []


PACKAGES = ("hermes", "pyspark_hermes", "twisted")
COMPILED = "hermes/protocol/_core.abi3.so"


def build(kind: str, directory: Path, **environment: str) -> Path:
    """Build a wheel or an sdist of a copy of the sources."""
    source = directory / "source"
    for folder in (*PACKAGES, "tests/support", "bench", "docs", "examples"):
        ignored = shutil.ignore_patterns("__pycache__", "dropin.cache", "*.so")
        shutil.copytree(ROOT / folder, source / folder, ignore=ignored)
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    program = f"from setuptools.build_meta import build_{kind}; build_{kind}({str(directory)!r})"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        cwd=source,
        env=os.environ | environment,
        check=True,
        capture_output=True,
    )
    (built,) = (path for path in directory.iterdir() if path.suffix in (".whl", ".gz"))
    return built


@pytest.mark.parametrize("compiler", ["", "/nowhere/cc"])
def test_a_wheel_ships_the_dropin_the_types_and_no_tests(tmp_path: Path, compiler: str) -> None:
    """`packages = find:` would leave the dropin out without a word.

    The compiled core is there if there is a compiler. If not, the rest is.
    """
    wheel = build("wheel", tmp_path, **({"CC": compiler} if compiler else {}))
    _check_description(ZipFile(wheel))
    shipped = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    files = {
        str(path.relative_to(ROOT)) for each in PACKAGES[:2] for path in (ROOT / each).rglob("*.py")
    }
    console = ROOT / "hermes" / "console"
    files |= {
        str(path.relative_to(ROOT))
        for folder in ("static", "templates")
        for path in (console / folder).iterdir()
    }
    files |= {"hermes/py.typed", "twisted/plugins/hermes_plugin.py"}
    if not compiler and (shutil.which("cc") or shutil.which("gcc")):
        files.add(COMPILED)
    assert shipped == files
    assert "-cp311-abi3-" in wheel.name  # one build for every later Python


def test_an_sdist_has_what_the_core_is_compiled_from(tmp_path: Path) -> None:
    with tarfile.open(build("sdist", tmp_path)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"setup.py", "hermes/protocol/_core.c"} <= names


def _check_description(wheel: ZipFile) -> None:
    """It is read where there is no repository: a relative link leads nowhere."""
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(wheel.read(name))
    assert metadata["Description-Content-Type"] == "text/markdown"
    description = metadata.get_payload()
    assert description.startswith("# Hermes")
    links = re.findall(r"\]\(([^)]*)\)|^\[[^]]*\]:\s*(\S+)", description, re.MULTILINE)
    assert [link for link in map("".join, links) if not link.startswith("https://")] == []


def test_the_documented_files_are_there() -> None:
    for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"):
        assert (ROOT / name).is_file(), name
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_pyproject_and_setup_cfg_divide_the_work(setup_cfg: ConfigParser) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    assert "project" not in pyproject, "metadata lives in setup.cfg"
    assert setup_cfg["options"]["python_requires"] == ">=3.11"
