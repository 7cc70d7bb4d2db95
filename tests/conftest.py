"""What all tests share: golden vectors, brokers as processes, and peace among pytest's plugins.

With `-n` the tests run in workers, each of which looks after what its own tests start.
"""

import json
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from certificates import Certificates
from coordination_servers import KINDS, ServerProcess
from hermes_testkit import TWISTD, BrokerProcess
from hypothesis import settings
from left_behind import Guard
from secrets_hook import pytest_runtest_makereport
from soak import times

__all__ = ["pytest_runtest_makereport"]

VECTORS = Path(__file__).parent / "vectors"

# No deadline, because a busy machine is no fault of the code; no database, so that a run depends
# on no other. pytest-randomly prints its seed and gives it to hypothesis too.
settings.register_profile("hermes", deadline=None, database=None)
settings.register_profile("soak", settings.get_profile("hermes"), max_examples=times(2000))
settings.load_profile("hermes")


GUARD = pytest.StashKey[Guard]()
LEFT_BEHIND = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """From now on, what the tests start ends with them, and can be interrupted.

    A script's background processes, and what they start, ignore SIGINT unless told otherwise.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    session.config.stash[LEFT_BEHIND] = []
    session.config.stash[GUARD] = Guard()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """A run that leaves processes behind has failed, whatever its tests say."""
    left = session.config.stash[LEFT_BEHIND]
    left += session.config.stash[GUARD].close()
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_behind"] = left
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker's tests have left behind; one that crashed cannot tell."""
    node.config.stash[LEFT_BEHIND] += getattr(node, "workeroutput", {}).get("left_behind", [])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """What fixtures start for a whole file, or for Spark's folder, is started in one worker."""
    from shared_out import FileByFile

    return FileByFile(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let workers begin with what takes long."""
    if hasattr(config, "workerinput"):
        from shared_out import longest_first

        longest_first(items)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the processes that were left behind."""
    for command in terminalreporter.config.stash.get(LEFT_BEHIND, []):
        terminalreporter.write_line(f"left behind, and killed: {command}", red=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Undo what pytest-twisted does to a property test once it has run.

    It replaces the function inside `@given` and never puts it back, so that a parametrized
    property test would be wrapped once more with every parameter and fail with the second.
    """
    hypothesis = getattr(pyfuncitem.obj, "hypothesis", None)
    inner_test = hypothesis and hypothesis.inner_test
    try:
        return (yield)
    finally:
        if hypothesis:
            hypothesis.inner_test = inner_test


@pytest.fixture(scope="session")
def kafka_vectors() -> dict[str, Any]:
    """The recording of a Kafka 0.7.2 broker: `vectors` by name, `behaviours` in their order."""
    recorded = json.loads((VECTORS / "kafka-0.7.2.json").read_text(encoding="utf-8"))
    return {
        "vectors": {vector["name"]: vector for vector in recorded["vectors"]},
        "behaviours": recorded["behaviours"],
    }


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates, good ones and bad ones, that all tests share; made when first asked for."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def coordination_server(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[str], ServerProcess]]:
    """The server of a kind that tests of coordination share: started once, and left as it is.

    A parameter of the whole session would start it for each file again.
    """
    with ExitStack() as stack:

        @cache
        def started(kind: str) -> ServerProcess:
            server = KINDS[kind](tmp_path_factory.mktemp(kind) / "server")
            stack.callback(server.stop)
            server.start()
            return server

        yield started


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts `twistd -n hermes` processes with settings given as keywords; stops them at the end.

    `program` and `environment` are for the process and no settings. A `log_dir` is made under the
    test's own directory when none is given. The process runs in another directory than the
    repository's, so that packaging faults show.
    """
    brokers: list[BrokerProcess] = []

    def start(
        program: Sequence[str] = TWISTD,
        environment: Mapping[str, str] = MappingProxyType({}),
        **settings: Any,
    ) -> BrokerProcess:
        settings.setdefault("log_dir", str(tmp_path / "logs"))
        directory = tmp_path / f"broker-{len(brokers)}"
        broker = BrokerProcess(directory, settings, environment=environment, program=program)
        brokers.append(broker)
        return broker

    yield start
    for broker in brokers:
        broker.stop()


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Makes a package seem to be of another version; returns the directory that says so."""
    before = tmp_path / "installed-before"

    def install(name: str, version: str) -> Path:
        metadata = before / f"{name}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir(parents=True)
        text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        metadata.write_text(text, encoding="utf-8")
        return before

    monkeypatch.syspath_prepend(before)
    return install
