"""The import directions that ARCHITECTURE.md promises, and a few rules that no tool checks."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted((ROOT / "hermes").rglob("*.py"))

# Of each room what it imports, no more and no less: the map of ARCHITECTURE.md in detail.
# `__init__` is `hermes` itself, whose public names are the client's.
ROOMS = {
    "_version": "",
    "errors": "",
    "extras": "",
    "interfaces": "",
    "quoting": "",
    "forks": "",
    "announcement": "",
    "backoff": "",
    "rate_limit": "",
    "reactors": "",
    "regex": "",
    "metrics": "",
    "keywords": "errors quoting",
    "limited_log": "quoting rate_limit",
    "listening": "config errors limited_log logs security",
    "logs": "quoting",
    "security": "errors interfaces keywords quoting regex",
    "config": "errors interfaces quoting security",
    "avro": "errors quoting",
    "schemas": "avro backoff errors keywords quoting security",
    "plugins": "avro errors extras interfaces schemas security",
    "protocol": "errors quoting security",
    "storage": "errors interfaces plugins protocol quoting",
    "web": "announcement config errors limited_log listening logs metrics quoting reactors "
    "security",
    "offline": "errors protocol quoting storage",
    "replication": "errors protocol quoting",
    "transactions": "errors protocol",
    "coordination": "_version announcement backoff config errors forks limited_log listening logs "
    "protocol quoting reactors regex replication security",
    "server": "config coordination errors extras interfaces limited_log listening logs metrics "
    "plugins protocol quoting security storage",
    "partition": "announcement config errors logs metrics protocol rate_limit server storage",
    "cluster": "announcement config coordination errors limited_log listening logs partition "
    "plugins protocol quoting replication security server storage transactions",
    "groups": "announcement coordination errors limited_log logs protocol storage",
    "v0_7": "_version cluster config coordination errors partition protocol quoting security "
    "server storage transactions",
    "broker": "_version backoff cluster config coordination errors interfaces limited_log "
    "listening logs metrics partition protocol quoting reactors security server storage v0_7 web",
    "kafka": "announcement broker cluster config coordination errors groups interfaces "
    "limited_log listening logs metrics partition protocol quoting regex replication security "
    "server storage transactions v0_7",
    "client": "backoff config coordination errors extras forks interfaces keywords metrics plugins "
    "protocol quoting rate_limit security transactions",
    "audit": "client config coordination errors interfaces keywords metrics plugins protocol "
    "quoting security web",
    "aio": "client coordination errors forks keywords listening protocol security",
    "spark": "audit avro client config coordination errors extras interfaces metrics plugins "
    "protocol quoting regex schemas security",
    "console": "__init__ audit avro backoff client config coordination errors interfaces plugins "
    "protocol quoting schemas security web",
    "mirror": "_version audit client config coordination errors interfaces metrics plugins "
    "protocol quoting security web",
    "registry": "_version avro backoff client config coordination errors limited_log listening "
    "logs metrics protocol quoting security web",
    "tap": "broker cluster config console errors kafka logs reactors registry security web",
    "twistd": "config errors extras mirror tap",
    "testing": "broker config errors kafka keywords protocol reactors security server tap",
    "cli": "__init__ audit avro backoff client config console coordination errors "
    "extras interfaces listening mirror offline plugins protocol quoting reactors registry schemas "
    "security server spark storage transactions web",
    "__init__": "_version client errors",
}


@cache
def parsed(path: Path) -> ast.Module:
    """Of seven hundred modules each is looked at by ten tests."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def imported_names(path: Path) -> list[str]:
    """The dotted names that a module imports, anywhere in it."""
    names = []
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def test_each_layer_imports_only_those_below_it() -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert linted.returncode == 0, linted.stdout + linted.stderr


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imported_modules() -> dict[str, set[str]]:
    """Of each module of Hermes those of Hermes that it imports, wherever in its text."""
    names = {module_name(path): path for path in MODULES}
    found: dict[str, set[str]] = {}
    for module, path in names.items():
        found[module] = set()
        for name in imported_names(path):
            imported = name if name in names else name.rpartition(".")[0]
            if imported in names:
                found[module].add(imported)
    return found


def test_no_import_is_circular() -> None:
    TopologicalSorter(imported_modules()).prepare()  # raises CycleError


def test_each_room_imports_only_what_it_may() -> None:
    found: dict[str, set[str]] = {}
    for module, imported in imported_modules().items():
        room = room_of(module)
        found.setdefault(room, set()).update(map(room_of, imported))
    for room, rooms in found.items():
        assert room in ROOMS, f"{room} is new: say what it may import"
        assert rooms - {room} == set(ROOMS[room].split()), room


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else "__init__"


def test_names_of_modules_occur_once_in_a_room() -> None:
    """So that a name says which module is meant. Clients and the embedded server have sessions."""
    for room in sorted(path for path in (ROOT / "hermes").iterdir() if path.is_dir()):
        names = Counter(path.stem for path in room.rglob("*.py"))
        twice = {name for name, count in names.items() if count > 1} - {"__init__"}
        assert twice <= ({"sessions"} if room.name == "coordination" else set()), room


def test_only_the_composition_root_imports_the_reactor() -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in MODULES
        if "twisted.internet.reactor" in set(imported_names(path))
    }
    assert importers == {"hermes/tap.py"}


def test_the_dropin_imports_nothing_but_service_maker() -> None:
    names = list(imported_names(ROOT / "twisted" / "plugins" / "hermes_plugin.py"))
    assert names == ["twisted.application.service.ServiceMaker"]


def test_nothing_imports_a_built_in_plugin_by_name() -> None:
    """Entry points find them; so what a third party writes works as well as what is built in."""
    kinds = ("retention", "partitioners", "encoders", "callbacks", "tokens")
    for path in MODULES:
        for name in imported_names(path):
            parts = name.split(".")
            if parts[:2] != ["hermes", "plugins"] or len(parts) < 3 or parts[2] not in kinds:
                continue
            assert path.is_relative_to(ROOT / "hermes" / "plugins" / parts[2]), f"{path}: {name}"


def test_the_errors_import_nothing() -> None:
    assert list(imported_names(ROOT / "hermes" / "errors.py")) == []


CLOCKS = {"time", "datetime.datetime", "datetime.now", "sched", "asyncio", "selectors", "socket"}


@pytest.mark.parametrize(
    "package", ["protocol", "replication", "transactions", "storage", "offline"]
)
def test_the_lower_half_has_no_clock_and_no_socket_of_its_own(package: str) -> None:
    for path in sorted((ROOT / "hermes" / package).rglob("*.py")):
        roots = {name.split(".")[0] for name in imported_names(path)} | set(imported_names(path))
        if path.name == "repository.py":
            roots.discard("datetime.datetime")  # names of backups are times, and read as such
        assert not roots & CLOCKS, f"{path} imports {roots & CLOCKS}"


#: What rooms on files in memory may use of `os`: it computes, and asks nobody.
PURE = {
    "os.PathLike",
    "os.stat_result",
    *(f"os.path.{name}" for name in ("basename", "dirname", "join", "splitext")),
}

#: What touches files, or takes other things for files.
FILES = {"fcntl", "glob", "io", "mmap", "pathlib", "shutil", "sqlite3", "tempfile"}

#: What is used of `os` all the same, by module, and why.
BESIDE_THE_FILE_LAYER = {
    "storage/files.py": {"*"},  # the layer itself
    "storage/directory.py": {"os.path.abspath"},  # the working directory, of a relative path only
    "storage/lock.py": {"os.getpid"},  # who has the lock, for people
}


@pytest.mark.parametrize("room", ["storage", "partition", "cluster", "groups"])
def test_what_runs_on_files_in_memory_touches_no_other(room: str) -> None:
    """A simulation of brokers would not be one, and tests of a loss of power would miss it."""
    for path in sorted((ROOT / "hermes" / room).glob("*.py")):
        allowed = BESIDE_THE_FILE_LAYER.get(f"{room}/{path.name}", set())
        if "*" in allowed:
            continue
        assert not {name.split(".")[0] for name in imported_names(path)} & FILES, path
        assert not [name for name in imported_names(path) if name.startswith("os.")], path
        found = set(uses_of_files(parsed(path)))
        assert found - PURE == allowed, f"{path}: {found - PURE}"


def uses_of_files(tree: ast.Module) -> Iterator[str]:
    """What is used of `os`, by its dotted name, and the built-in `open`."""
    nodes = list(ast.walk(tree))
    inner = {id(each.value) for each in nodes if isinstance(each, ast.Attribute)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            name = ast.unparse(node)
            if name.startswith("os."):
                yield name
        elif isinstance(node, ast.Name) and node.id == "open":
            yield "open"


def test_every_package_has_an_init_and_twisted_has_none() -> None:
    folders = {path.parent for path in MODULES}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").is_file()] == []
    assert list((ROOT / "twisted").rglob("__init__.py")) == []


def bound_names(body: list[ast.stmt]) -> Iterator[str]:
    """The names that statements of a module bind, also under `if` and `try`."""
    for node in body:
        match node:
            case ast.Import(names) | ast.ImportFrom(names=names):
                yield from ((each.asname or each.name).partition(".")[0] for each in names)
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                yield name
            case ast.Assign(targets):
                yield from (each.id for each in targets if isinstance(each, ast.Name))
            case ast.AnnAssign(ast.Name(name)):
                yield name
            case ast.If() | ast.Try():
                yield from bound_names([*node.body, *node.orelse])


def test_every_public_name_exists() -> None:
    """No tool looks up what an `__init__` lists."""
    for path in MODULES:
        body = parsed(path).body
        for node in body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
                missing = set(ast.literal_eval(node.value)) - set(bound_names(body))
                assert not missing, f"{path}: {missing}"


def test_every_module_says_what_it_owns() -> None:
    assert [str(path) for path in MODULES if not ast.get_docstring(parsed(path))] == []


def test_a_constructor_is_documented_with_its_class() -> None:
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                assert ast.get_docstring(node) is None, f"{path}:{node.lineno}"


def test_every_call_that_a_life_in_the_architecture_names_exists() -> None:
    """A stranger follows these chains through the code."""
    defined, kinds = set(), (ast.FunctionDef, ast.AsyncFunctionDef)
    for path in MODULES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                methods = {each.name for each in node.body if isinstance(each, kinds)}
                defined |= {node.name, *methods, *(f"{node.name}.{name}" for name in methods)}
            elif isinstance(node, kinds):
                defined.add(node.name)
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    chains = re.findall(r"^\S.* -> .*$", "\n".join(re.findall(r"```\n(.*?)```", text, re.S)), re.M)
    named = {name for chain in chains for name in re.findall(r"\w*[A-Z_]\w*(?:\.\w+)?", chain)}
    assert len(chains) >= 4
    assert named - defined == set()
