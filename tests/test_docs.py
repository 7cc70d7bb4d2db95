"""The documentation is correct: its code runs, its commands exist, its links lead somewhere.

What a fenced block is checked for follows from the words after its three backticks:

- `python test`: the file's tested blocks run, in order, as one program in an empty directory. With
  `python test broker` a broker runs, whose address replaces `localhost:9092` and
  `"localhost", 9092`; the address of its coordination replaces `localhost:2181`, that of its HTTP
  port `localhost:9093`, and that of its port for Kafka clients `localhost:19092`.
  A block with `after spark-read.md` goes on where that file's program ends: both run as one.
- `python` alone must be Python.
- `yaml test` must load as a broker.yaml; `yaml` alone must be YAML.
- `sh`: each command must exist; for `hermes`, each subcommand and option too.
"""

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from configparser import ConfigParser
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from hermes_testkit import BrokerProcess
from prompt_worker import spark_environment

from hermes.cli import program
from hermes.config.loading import parse_broker_config
from hermes.config.yaml_text import read_yaml

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
DOCUMENT_NAMES = [str(path.relative_to(ROOT)) for path in DOCUMENTS]

# Programs that a reader has, apart from Hermes' own.
KNOWN_PROGRAMS = (
    "cat cd cmp cp curl cut do docker done echo export for git grep head install journalctl kill "
    "ls mkdir openssl pip printf python python3 rm sed sort source sudo systemctl tail tee ulimit "
    "umask uniq useradd wc"
)

# What a document's code warns of is an error, but for how kafka-python reads its own schemas.
WARNINGS = [
    "-W",
    "error",
    *(
        word
        for name in ("read_text", "open_text")
        for word in ("-W", f"ignore:{name} is deprecated:DeprecationWarning")
    ),
]

FENCE = re.compile(r"^( *)```([^\n`]*)\n(.*?)^\1```[ ]*$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)

# As in a virtual environment that was activated: programs start `python3` by name (Spark does).
# Spark's is the tests' own, which connects in time on a busy machine, too.
_SPARK = spark_environment()
ACTIVATED = {
    **os.environ,
    **_SPARK,
    "PATH": os.pathsep.join([str(Path(sys.executable).parent), _SPARK["PATH"]]),
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after its backticks, its text, and the line where it starts."""

    document: Path
    words: tuple[str, ...]
    text: str
    line: int

    def __str__(self) -> str:
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(*wanted: str) -> list[Block]:
    """The blocks of all documents that begin with these words."""
    found = []
    for document in DOCUMENTS:
        content = document.read_text(encoding="utf-8")
        for match in FENCE.finditer(content):
            words = tuple(match[2].split())
            if words[: len(wanted)] == wanted:
                text = re.sub(rf"^{match[1]}", "", match[3], flags=re.MULTILINE)
                line = content.count("\n", 0, match.start()) + 1
                found.append(Block(document, words, text, line))
    return found


def tested_programs() -> list[list[Block]]:
    """The `python test` blocks, one list per document."""
    tested: dict[Path, list[Block]] = {}
    for block in blocks("python", "test"):
        before = block.words[-1] if "after" in block.words else block.document.name
        tested.setdefault(block.document.with_name(before), []).append(block)
    return [
        sorted(tested[each], key=lambda block: (block.document != each, block.document))
        for each in DOCUMENTS
        if each in tested
    ]


PROGRAMS = tested_programs()

StartBroker = Callable[..., BrokerProcess]


def uses_spark(program: list[Block]) -> bool:
    return any("pyspark" in block.text for block in program)


@pytest.mark.parametrize(
    "program", [pytest.param(each, id=str(each[0])) for each in PROGRAMS if not uses_spark(each)]
)
def test_the_code_runs(program: list[Block], tmp_path: Path, start_broker: StartBroker) -> None:
    run([written(program, tmp_path, start_broker)])


#: What is run each time of what uses Spark, and takes minutes as a whole.
SPARK_DOCUMENTS = ("spark-read.md", "spark-load.md")


@pytest.mark.spark
@pytest.mark.parametrize(
    "are_first",
    [pytest.param(True, id="first"), pytest.param(False, id="others", marks=pytest.mark.nightly)],
)
def test_the_code_for_spark_runs(
    are_first: bool, tmp_path: Path, start_broker: StartBroker
) -> None:
    """One program after the other in a process: each stops its session, and the JVM stays."""
    programs = [
        each
        for each in PROGRAMS
        if uses_spark(each) and (each[0].document.name in SPARK_DOCUMENTS) == are_first
    ]
    run([written(each, tmp_path, start_broker) for each in programs])


def written(program: list[Block], directory: Path, start_broker: StartBroker) -> Path:
    """A script with a document's code, and a broker beside it if the code wants one."""
    # Each block stands at its own lines, so that a traceback points into the document.
    source = ""
    for block in program:
        if block.document == program[0].document:
            source += "\n" * (block.line - source.count("\n")) + block.text
        else:
            text = "\n" * block.line + block.text
            source += f"\nexec(compile({text!r}, {str(block.document)!r}, 'exec'))\n"
    if any("broker" in block.words for block in program):
        broker = start_broker(
            log_dir=str(directory / f"log-{program[0].document.stem}"),
            coordination="embedded",
            coordination_listen="tcp:0:interface=127.0.0.1",
            http_listen="tcp:0:interface=127.0.0.1",
            kafka_listen="tcp:0:interface=127.0.0.1",
            group_initial_rebalance_delay="0",
        )
        port = broker.port
        (kafka,) = re.findall(r"Kafka on (127\.0\.0\.1:\d+)", "".join(broker.lines))
        source = source.replace("localhost:19092", kafka)
        (http,) = re.findall(r"HTTP on (127\.0\.0\.1:\d+)", "".join(broker.lines))
        source = source.replace("localhost:9093", http)
        (line,) = [line for line in broker.lines if "coordination is embedded" in line]
        source = source.replace("localhost:2181", re.findall(r"127\.0\.0\.1:\d+", line)[0])
        source = source.replace("localhost:9092", f"127.0.0.1:{port}")
        source = source.replace('"localhost", 9092', f'"127.0.0.1", {port}')
    script = directory / program[0].document.with_suffix(".py").name
    script.write_text(source, encoding="utf-8")
    return script


#: A JVM's relative paths stay those of the directory in which it was started.
EACH_IN_TURN = """
import os, runpy, shutil, sys
for script in sys.argv[1:]:
    runpy.run_path(script, run_name="__main__")
    for left in os.scandir():
        shutil.rmtree(left) if left.is_dir() else os.unlink(left)
"""


def run(scripts: Sequence[Path]) -> None:
    """Run scripts in one process, in a directory that is empty each time."""
    directory = scripts[0].with_suffix("")
    directory.mkdir()
    ran = subprocess.run(
        [sys.executable, *WARNINGS, "-c", EACH_IN_TURN, *map(str, scripts)],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=600,
        env=ACTIVATED,
    )
    assert ran.returncode == 0, f"{ran.stdout}{ran.stderr}"


@pytest.mark.parametrize("block", blocks("python"), ids=str)
def test_python_is_python(block: Block) -> None:
    ast.parse(block.text, str(block))


@pytest.mark.parametrize("block", blocks("yaml"), ids=str)
def test_yaml_is_yaml(block: Block) -> None:
    values = read_yaml(block.text.encode(), str(block))
    if "test" in block.words:
        parse_broker_config(values, str(block))


def commands(block: Block) -> Iterator[list[str]]:
    """Split a shell block into commands, at newlines, pipes and `&&`; comments are left out."""
    text = block.text.replace("\\\n", " ")
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        command: list[str] = []
        for token in lexer:
            if set(token) <= set("|&;()"):
                if command:
                    yield command
                command = []
            else:
                command.append(token)
        if command:
            yield command


def shell_commands() -> list[tuple[Block, list[str]]]:
    """Every command of every shell block."""
    return [(block, command) for block in blocks("sh") for command in commands(block)]


@pytest.mark.parametrize(("block", "command"), shell_commands(), ids=str)
def test_a_command_exists(block: Block, command: list[str]) -> None:
    while re.match(r"\w+=", command[0]):  # settings for the command's environment
        command = command[1:]
    name = command[0]
    if "/" in name and not name.startswith(("/", "~", ".venv/")):
        assert os.access(ROOT / name, os.X_OK), f"{block}: there is no executable {name}"
    elif (name := Path(name).name) == "hermes":
        check_hermes(block, command[1:])
    elif name == "twistd":
        assert "hermes" in command, f"{block}: {command}"
    else:
        assert name in KNOWN_PROGRAMS.split(), f"{block}: a reader doesn't have {name}"


def check_hermes(block: Block, arguments: list[str]) -> None:
    """Walk down the command line's groups and look up each option."""
    context = click.Context(program)
    command: click.Command = program
    for argument in arguments:
        if re.match(r"-[-a-zA-Z]", argument):  # -1 is a value
            known = {
                name for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts)
            }
            name = argument.split("=")[0]
            short = not name.startswith("--") and name[:2] in known
            assert name in known or short, f"{block}: {command.name} has no option {name}"
        elif isinstance(command, click.Group):
            below = command.get_command(context, argument)
            if below is None and command.invoke_without_command:
                continue  # an option's value
            assert below is not None, f"{block}: {command.name} has no command {argument}"
            command = below


@pytest.mark.parametrize("document", DOCUMENTS, ids=DOCUMENT_NAMES)
def test_links_lead_somewhere(document: Path) -> None:
    content = FENCE.sub("", document.read_text(encoding="utf-8"))
    for target in LINK.findall(content):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = document.parent / name if name else document
        assert file.exists(), f"{document.name}: {target}"
        if anchor:
            headings = HEADING.findall(FENCE.sub("", file.read_text(encoding="utf-8")))
            anchors = {
                re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings
            }
            assert anchor in anchors, f"{document.name}: {target}"


def test_pages_that_the_code_names_exist() -> None:
    places = ("hermes", "bench", "examples", "scripts", "tests")
    files = [path for place in places for path in (ROOT / place).rglob("*") if path.is_file()]
    readable = [path for path in files if path.suffix in {".py", ".md", ".yaml", ".c", ""}]
    for path in readable:
        for page in re.findall(r"\bdocs/[\w-]+\.md\b", path.read_text(errors="replace")):
            assert (ROOT / page).exists(), f"{path.relative_to(ROOT)}: {page}"


def test_the_readme_lists_every_page() -> None:
    listed = re.findall(r"^\| \[(docs/[^]]+)\]", (ROOT / "README.md").read_text(), re.MULTILINE)
    package_only = {"docs/description.md"}
    pages = {str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(pages - package_only)


@pytest.mark.parametrize("document", DOCUMENTS, ids=DOCUMENT_NAMES)
def test_every_block_says_what_it_is(document: Path) -> None:
    """A forgotten word after the backticks would be a block that nothing checks."""
    content = document.read_text(encoding="utf-8")
    for match in FENCE.finditer(content):
        word = (match[2].split() or ["text"])[0]
        assert word in {"python", "yaml", "sh", "json", "text", "ini", "properties", "cfg"}, word


def table_below(page: str, heading: str) -> dict[str, list[str]]:
    """The rows of the first table below a heading, by their first cell; without its head."""
    text = (ROOT / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    lines = re.findall(r"^\|(.*)\|$", text.partition("\n## ")[0], re.MULTILINE)
    rows = [[cell.strip() for cell in line.split("|")] for line in lines[2:]]
    return {row[0]: row[1:] for row in rows}


def setup_cfg() -> ConfigParser:
    parser = ConfigParser(delimiters=("=",))
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def test_supported_versions_are_those_of_the_package() -> None:
    rows, metadata = table_below("docs/install.md", "Supported versions"), setup_cfg()
    pythons = re.findall(r":: (3\.\d+)$", metadata["metadata"]["classifiers"], re.MULTILINE)
    assert rows["Python"][0].startswith(f"{pythons[0]} to {pythons[-1]},")
    needed = metadata["options"]["install_requires"]
    assert f"Twisted>={rows['Twisted'][0].split()[0]}\n" in needed
    extras = metadata["options.extras_require"]
    first, _, last = rows["PySpark"][0].split(",")[0].split()
    above = f"4.{int(last.removeprefix('4.')) + 1}"
    assert f"pyspark>={first},<{above}\n" in extras["spark"]
    oldest, limit = re.findall(r"[\d.]+", rows["deltalake"][0])
    assert f"deltalake>={oldest},<{limit}" in extras["delta"]


def test_supported_versions_are_those_that_are_tested() -> None:
    rows = table_below("docs/install.md", "Supported versions")
    support = ROOT / "tests" / "support"
    clients = rows["Kafka clients"][1]
    for sums, text in (("kafka.sha256", clients), ("kafka-2.1/jars.sha256", clients)):
        lines = (support / "java" / sums).read_text()
        (version,) = re.findall(r" kafka-clients-(.*)\.jar$", lines, re.MULTILINE)
        assert f"Java client {version}" in text
    go = (support / "go" / "go.mod").read_text()
    for name in ("franz-go", "sarama"):
        (version,) = re.findall(rf"/{name} v(\S+)", go)
        assert f"{name} {version}" in clients
    node = json.loads((support / "node" / "package.json").read_text())
    assert f"kafkajs {node['dependencies']['kafkajs']}" in clients
    oldest = (ROOT / "scripts" / "oldest").read_text()
    for name, row in (("pyspark", rows["PySpark"]), ("deltalake", rows["deltalake"])):
        (version,) = re.findall(rf"{name}==([\d.]+)", oldest)
        assert f"{version} by `scripts/oldest`" in row[1]


def test_extras_are_those_of_the_package() -> None:
    rows, extras = table_below("docs/install.md", "Extras"), setup_cfg()["options.extras_require"]
    assert {name.strip("`") for name in rows} == set(extras) - {"bench", "docs", "release", "test"}
    for name, (brings, _) in rows.items():
        packages = re.findall(r"^([\w-]+)", extras[name.strip("`")], re.MULTILINE)
        assert brings.lower().split(", ") == packages


def test_one_page_tells_how_to_install() -> None:
    """No index has Hermes, so `pip install hermes-log` would be a command that fails."""
    for place in ("*.md", "docs/**/*.md", "hermes/**/*.py", "examples/**/*", "bench/**/*"):
        for path in ROOT.glob(place):
            if path.is_file() and path != ROOT / "docs" / "install.md":
                text = path.read_text(encoding="utf-8", errors="replace")
                assert not re.search(r"pip install '?hermes-log", text), path
