"""The scripts' search for a Python and their care for the environment's directory."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from shlex import quote

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = [
    ROOT / "scripts" / name
    for name in ("environment.sh", "docs", "quickstart", "release", "soak", "test")
]

# What the scripts use besides Python.
TOOLS = ["bash", "cat", "cksum", "dirname", "ls", "mktemp", "rm", "tail"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A directory with the tools and no Python, to be the only one in PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (folder / tool).symlink_to(found)
    return folder


def put(path: Path, name: str, *lines: str) -> None:
    """Put a program into the directory."""
    file = path / name
    file.write_text("\n".join([f"#!{shutil.which('bash')}", *lines, ""]), encoding="utf-8")
    file.chmod(0o755)


OLD = "exit 1"
BROKEN = 'echo "command not found" >&2; exit 127'
WITHOUT_VENV = 'case "$*" in *ensurepip*) exit 1 ;; esac; echo Python 3.12.1'
GOOD = "echo Python 3.12.1"

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(path: Path, tmp_path: Path) -> Run:
    """Runs shell code after `. scripts/environment.sh`, in an environment of its own."""

    def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
        program = f"set -euo pipefail\n. {quote(f'{ROOT}/scripts/environment.sh')}\n{code}"
        environment = {"PATH": str(path), "TMPDIR": str(tmp_path), "HOME": str(tmp_path)}
        return subprocess.run(
            [path / "bash", "-c", program],
            env=environment | {"HERMES_VENV": str(tmp_path / "venv")} | variables,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.name)
def test_the_syntax_is_right(script: Path) -> None:
    checked = subprocess.run(["bash", "-n", script], capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("script", [*SCRIPTS[1:], ROOT / ".ci" / "run"], ids=lambda s: s.name)
def test_it_can_be_run(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert "set -euo pipefail" in script.read_text(encoding="utf-8")


def test_what_the_caller_has_set_for_python_does_not_count(run: Run) -> None:
    """Without bytecode kept on the disk every start of a broker would compile all of it anew."""
    set_before = {"PYTHONPATH": "/x", "PYTHONHOME": "/x", "PYTHONDONTWRITEBYTECODE": "1"}
    assert run("declare -p ${!PYTHON*}", **set_before).stdout == 'declare -x PYTHONNOUSERSITE="1"\n'


def test_an_unsuitable_python_is_passed_over(path: Path, run: Run) -> None:
    put(path, "python3.11", OLD)
    put(path, "python3.12", BROKEN)
    put(path, "python3.13", WITHOUT_VENV)
    put(path, "python3", GOOD)
    assert run("find_python").stdout == "python3\n"


def test_the_interpreter_can_be_named(path: Path, run: Run) -> None:
    put(path, "python3.11", GOOD)
    put(path, "mine", GOOD)
    assert run("find_python", HERMES_PYTHON="mine").stdout == "mine\n"


@pytest.mark.parametrize(
    ("program", "complaint"),
    [
        (
            "echo Python 3.10.4; " + OLD,
            "which is Python 3.10.4: Hermes\nneeds Python 3.11 or newer",
        ),
        (WITHOUT_VENV, "which has no venv module"),
        (None, "which can't be run"),
    ],
    ids=["old", "without venv", "missing"],
)
@pytest.mark.parametrize("call", ["find_python", "prepare_environment"])
def test_a_named_interpreter_that_will_not_do_is_refused(
    path: Path, run: Run, call: str, program: str | None, complaint: str
) -> None:
    put(path, "python3.11", GOOD)
    if program is not None:
        put(path, "mine", program)
    ended = run(call, HERMES_PYTHON="mine")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert complaint in ended.stderr
    assert "creating" not in ended.stderr


def test_a_named_interpreter_is_compared_with_an_environment_that_is_there(
    path: Path, run: Run, tmp_path: Path
) -> None:
    put(path, "mine", GOOD)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    put(tmp_path / "venv" / "bin", "python", "echo Python 3.11.7")
    ended = run("make_venv", HERMES_PYTHON="mine")
    assert ended.returncode == 1
    assert "was made with Python 3.11.7, and HERMES_PYTHON names\nPython 3.12.1" in ended.stderr
    put(tmp_path / "venv" / "bin", "python", GOOD)
    assert run("make_venv", HERMES_PYTHON="mine").returncode == 0


def test_without_a_python_it_says_what_to_install(path: Path, run: Run) -> None:
    put(path, "id", "echo 1000")  # not root
    put(path, "python3", OLD)
    ended = run("prepare_environment test")
    assert ended.returncode == 1
    assert "Hermes needs Python 3.11 or newer" in ended.stderr
    assert "apt-get install python3 python3-venv" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.skipif(not Path("/etc/debian_version").exists(), reason="apt is Debian's")
def test_root_on_debian_gets_it_through_apt(path: Path, run: Run, tmp_path: Path) -> None:
    put(path, "id", "echo 0")
    put(path, "python3", WITHOUT_VENV)
    good = tmp_path / "good"
    put(tmp_path, "good", GOOD)
    put(
        path,
        "apt-get",
        f'echo "$*" >> {quote(f"{tmp_path}/calls")}',
        f'case "$*" in *python3-venv*) {shutil.which("cp")} {quote(str(good))}'
        f" {quote(f'{path}/python3')} ;; esac",
    )
    assert run("find_or_install_python").stdout == "python3\n"
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update -q",
        "install -q -y --no-install-recommends python3 python3-venv",
    ]


@pytest.mark.skipif(not Path("/etc/debian_version").exists(), reason="apt is Debian's")
def test_when_apt_fails_its_last_words_are_shown(path: Path, run: Run) -> None:
    put(path, "id", "echo 0")
    put(path, "apt-get", 'echo "E: no network"; exit 100')
    ended = run("find_or_install_python")
    assert ended.returncode == 1
    assert "E: no network" in ended.stderr
    assert "Hermes needs Python 3.11" in ended.stderr


@pytest.mark.skipif(not Path("/etc/debian_version").exists(), reason="apt is Debian's")
def test_what_is_missing_is_installed_in_one_go(path: Path, run: Run, tmp_path: Path) -> None:
    put(path, "id", "echo 0")
    put(path, "kcat")
    put(path, "apt-get", f'echo "$*" >> {quote(f"{tmp_path}/calls")}')
    assert run("ensure_packages kcat").returncode == 0
    assert not (tmp_path / "calls").exists()
    assert run("ensure_packages strace kcat prometheus").returncode == 0
    assert (tmp_path / "calls").read_text().splitlines() == [
        "update -q",
        "install -q -y --no-install-recommends strace prometheus",
    ]


def test_who_may_not_install_is_told_what_is_missing(path: Path, run: Run) -> None:
    put(path, "id", "echo 1000")
    put(path, "kcat")
    ended = run("ensure_packages strace kcat prometheus; echo went on")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "sudo apt-get install strace prometheus\n" in ended.stderr


def test_a_directory_that_is_no_environment_is_left_alone(
    path: Path, run: Run, tmp_path: Path
) -> None:
    put(path, "python3", GOOD)
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "thesis.tex").touch()
    ended = run("prepare_environment")
    assert ended.returncode == 1
    assert "is no virtual environment" in ended.stderr
    assert [file.name for file in (tmp_path / "venv").iterdir()] == ["thesis.tex"]


def test_a_second_run_installs_nothing(path: Path, run: Run, tmp_path: Path) -> None:
    """With a Python that writes down how it is called, and makes an environment of itself."""
    calls = tmp_path / "calls"
    itself = path / "python3"
    put(
        path,
        "python3",
        f'echo "$*" >> {quote(str(calls))}',
        f'case "$*" in "-m venv"*) {shutil.which("mkdir")} -p {quote(f"{tmp_path}/venv/bin")}',
        f"{shutil.which('cp')} {quote(str(itself))} {quote(f'{tmp_path}/venv/bin/python')} ;; esac",
        "echo Python 3.12.1",
    )
    for extra in ("test", "test", ""):
        assert run(f"prepare_environment {extra}").returncode == 0
    asked = [line for line in calls.read_text().splitlines() if "pip install" in line]
    assert asked == [f"-m pip install --quiet --editable {ROOT}[test]"]


@pytest.mark.parametrize("changed", ["setup.cfg", "setup.py", "hermes/protocol/_core.c"])
def test_what_the_installation_depends_on(
    path: Path, run: Run, tmp_path: Path, changed: str
) -> None:
    """The compiled core is built again when its source changes, in an editable installation too."""
    copy = tmp_path / "copy"
    for name in ("setup.cfg", "setup.py", "pyproject.toml", "hermes/protocol/_core.c"):
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, copy / name)
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python").symlink_to(path / "python3")
    put(path, "python3", GOOD)
    key = f"root={quote(str(copy))}; installation_key test"
    before = run(key).stdout
    assert before == run(key).stdout != ""
    with (copy / changed).open("a", encoding="utf-8") as file:
        file.write("\n")
    assert run(key).stdout != before
