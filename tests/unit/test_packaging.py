"""What an installation holds: the dropin, the entry points, the version, nothing of the tests."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable, Iterator
from configparser import ConfigParser
from dataclasses import dataclass
from email import message_from_bytes
from importlib.metadata import entry_points, version
from pathlib import Path
from sysconfig import get_path
from zipfile import ZipFile

import pytest
from hermes_testkit import BrokerProcess

import hermes
from hermes.config.loading import load_broker_config

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


@dataclass(frozen=True)
class Instruction:
    """One of the Dockerfile's."""

    name: str
    text: str


def dockerfile() -> list[list[Instruction]]:
    """The Dockerfile's stages."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    stages: list[list[Instruction]] = [[]]
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            stages.append([])
        stages[-1].append(Instruction(name, rest.strip()))
    return stages[1:]


def copied_by(stage: list[Instruction]) -> Iterator[tuple[str, Path]]:
    """What a stage copies from the checkout, and where to."""
    for each in stage:
        if each.name == "COPY" and not each.text.startswith("--from="):
            *sources, target = each.text.split()
            for source in sources:
                into_folder = len(sources) > 1 or target.endswith("/")
                yield source, Path(target, Path(source).name if into_folder else "")


def copy_sources(source: Path) -> None:
    """Copy what the Dockerfile copies, and what must not get into a wheel."""
    (source / "docs").mkdir(parents=True)
    for name, target in copied_by(dockerfile()[0]):
        if (ROOT / name).is_dir():
            ignored = shutil.ignore_patterns("__pycache__", "dropin.cache", "*.so")
            shutil.copytree(ROOT / name, source / target, ignore=ignored)
        else:
            shutil.copy(ROOT / name, source / target)
    for name in ("tests", "bench", "examples"):
        (source / name).mkdir()
        (source / name / f"test_{name}.py").touch()


def build(kind: str, source: Path, directory: Path, **environment: str) -> Path:
    """Build a wheel or an sdist from sources."""
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


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip builds from the sdist, of nothing but what the Dockerfile copies."""
    directory = tmp_path_factory.mktemp("distributions")
    copy_sources(directory / "source")
    sdist = directory / "sdist"
    sdist.mkdir()
    packed = build("sdist", directory / "source", sdist)
    subprocess.run(["tar", "-x", "-C", sdist, "-f", packed], check=True)
    (unpacked,) = (path for path in sdist.iterdir() if path.is_dir())
    wheels = directory / "wheels"
    wheels.mkdir()
    return build("wheel", unpacked, wheels)


def shipped_files(wheel: Path) -> set[str]:
    """What a wheel installs, apart from its metadata."""
    return {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}


def source_files() -> set[str]:
    """Every file of the packages but what the core is compiled from, and what it is compiled to."""
    return {
        str(path.relative_to(ROOT))
        for each in PACKAGES
        for path in (ROOT / each).rglob("*")
        if path.is_file()
        and path.suffix not in (".c", ".so", ".pyc")
        and path.name != "dropin.cache"
    }


def test_a_wheel_ships_the_dropin_the_types_the_data_and_no_tests(wheel: Path) -> None:
    """`packages = find:` would leave the dropin out without a word, and data is declared."""
    _check_description(ZipFile(wheel))
    files = source_files()
    assert {"hermes/py.typed", "twisted/plugins/hermes_plugin.py"} <= files
    if shutil.which("cc") or shutil.which("gcc"):
        files.add(COMPILED)
    assert shipped_files(wheel) == files
    assert "-cp311-abi3-" in wheel.name  # one build for every later Python


def test_without_a_compiler_a_wheel_has_all_the_rest(tmp_path: Path) -> None:
    copy_sources(tmp_path / "source")
    wheel = build("wheel", tmp_path / "source", tmp_path, CC="/nowhere/cc")
    assert shipped_files(wheel) == source_files()


def test_an_installed_wheel_runs_a_broker_from_any_directory(
    wheel: Path, tmp_path: Path, start_broker: Callable[..., BrokerProcess]
) -> None:
    """In an environment of its own; what Hermes needs is this one's, so that no index is asked."""
    environment = tmp_path / "environment with spaces"
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    command += ["install", "--quiet", "--no-index", "--no-deps", str(wheel)]
    installed = subprocess.run(command, capture_output=True, text=True)
    assert installed.returncode == 0, installed.stderr
    (site_packages,) = environment.glob("lib/python*/site-packages")
    # A path that a .pth file names is searched, but the .pth files in it, the checkout's, are not.
    (site_packages / "needed.pth").write_text(get_path("purelib") + "\n", encoding="utf-8")

    directory = tmp_path / "elsewhere"
    directory.mkdir()
    where = "import hermes.protocol.core as c; print(c.__file__, c.KIND)"
    ran = subprocess.run([python, "-c", where], cwd=directory, capture_output=True, text=True)
    path, _, core = ran.stdout.strip().rpartition(" ")
    assert Path(path).is_relative_to(site_packages), ran.stderr
    version_line = subprocess.run(
        [environment / "bin" / "hermes", "--version"], cwd=directory, capture_output=True, text=True
    )
    assert version_line.stdout == f"hermes {hermes.__version__} (core: {core})\n"

    run_twistd = "from twisted.scripts.twistd import run; run()"
    broker = start_broker(
        program=(str(python), "-c", run_twistd), http_listen="tcp:0:interface=127.0.0.1"
    )
    (http_port,) = re.findall(r", HTTP on 127\.0\.0\.1:(\d+)", "".join(broker.lines))
    (health,) = [each for each in dockerfile()[-1] if each.name == "HEALTHCHECK"]
    program, *words = json.loads(health.text.partition("CMD ")[2])
    check = [str(environment / "bin" / program)]
    assert any("9093" in word for word in words)
    check += [word.replace("9093", http_port) for word in words]
    healthy = subprocess.run(check, cwd=directory, capture_output=True, text=True)
    assert (healthy.returncode, healthy.stderr) == (0, "")
    assert broker.stop() == 0
    assert subprocess.run(check, cwd=directory, capture_output=True).returncode == 1


def test_the_dockerfile_copies_what_is_there_and_sent_to_docker() -> None:
    ignored, *others = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n*\n")
    assert ignored.startswith("#")
    (excepted,) = others
    sent = [line[1:] for line in excepted.splitlines() if line.startswith("!")]
    copied = [name for stage in dockerfile() for name, _ in copied_by(stage)]
    assert copied
    for name in copied:
        assert (ROOT / name).exists()
        assert any(Path(name).is_relative_to(each) for each in sent), f"{name} is not sent"
    for each in sent:
        assert any(Path(name).is_relative_to(each) for name in copied), f"{each} is not copied"


def test_a_container_runs_as_nobody_in_particular_with_a_configuration_of_its_own(
    setup_cfg: ConfigParser,
) -> None:
    """The parts of the Dockerfile and of its configuration fit together."""
    final = dockerfile()[-1]
    (user,) = [each.text for each in final if each.name == "USER"]
    (created,) = [each.text for each in final if each.name == "RUN"]
    assert user != "root"
    assert re.search(rf"useradd .* {user}\b", created)
    (command,) = [each.text for each in final if each.name == "CMD"]
    (source,) = [name for name, target in copied_by(final) if str(target) in json.loads(command)]
    config = load_broker_config(ROOT / source)
    (volume,) = [each.text for each in final if each.name == "VOLUME"]
    assert str(config.log_dir) == volume
    assert f"-o {user} -g {user} -m 0750 {volume}" in created
    (exposed,) = [each.text.split() for each in final if each.name == "EXPOSE"]
    endpoints = (*config.listen, config.coordination_listen, *(config.http_listen or ()))
    ports = [each.endpoint.split(":")[1] for each in endpoints if not each.is_loopback]
    assert ports == exposed
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (version,) = re.findall(r"^ARG PYTHON=(.*)$", text, re.MULTILINE)
    assert f"Programming Language :: Python :: {version}\n" in setup_cfg["metadata"]["classifiers"]


def _docker_runs() -> bool:
    program = shutil.which("docker")
    return bool(program) and subprocess.run([program, "info"], capture_output=True).returncode == 0


@pytest.mark.skipif(not _docker_runs(), reason="no docker engine runs here")
def test_an_image_is_built_and_runs() -> None:
    built = subprocess.run(["docker", "build", "-q", ROOT], capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    image = built.stdout.strip()
    try:
        line = subprocess.run(
            ["docker", "run", "--rm", image, "sh", "-c", "id -un; hermes --version"],
            capture_output=True,
            text=True,
        ).stdout
    finally:
        subprocess.run(["docker", "image", "rm", "--force", image], capture_output=True)
    assert line == f"hermes\nhermes {hermes.__version__} (core: compiled)\n"


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
    names = "README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md SECURITY.md LICENSE"
    for name in names.split():
        assert (ROOT / name).is_file(), name
    assert "Apache License" in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_newest_release_gets_security_fixes() -> None:
    minor = hermes.__version__.rpartition(".")[0]
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text(encoding="utf-8")


def test_pyproject_and_setup_cfg_divide_the_work(setup_cfg: ConfigParser) -> None:
    with (ROOT / "pyproject.toml").open("rb") as file:
        pyproject = tomllib.load(file)
    assert "project" not in pyproject, "metadata lives in setup.cfg"
    assert setup_cfg["options"]["python_requires"] == ">=3.11"
