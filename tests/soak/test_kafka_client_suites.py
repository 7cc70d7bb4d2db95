"""The tests that franz-go and librdkafka bring along, as their authors have them, on Hermes."""

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from coordination_servers import ServerProcess
from replicated_cluster import ReplicatedCluster
from soak import report

from hermes.testing import running_kafka

pytestmark = pytest.mark.soak

#: franz-go's that ask a broker; each is a function of Go. TestConsumeRegex wants a topic
#: `__consumer_offsets`: Hermes keeps offsets elsewhere. Those of share groups skip themselves.
_FRANZ_GO = (
    "TestAddRemove|TestConsumeMax|TestConsumeTopic|TestDirect|TestGroupETL|TestGroupSimple"
    "|TestHookPoll|TestIssue|TestLookback|TestPause|TestPing|TestPooling|TestTxnEtl|TestUnknownGroup"
)

#: librdkafka's, by their numbers. Not here: what asks its own mock cluster, or nobody; share
#: groups, which aren't there; what runs scripts of Kafka's (0052, 0077, 0115, 0119); what skips
#: itself; and 0081, which wants the broker to compress again (`compression.type`).
_LIBRDKAFKA = """
    0001 0002 0003 0005 0007 0008 0011 0012 0013 0014 0015 0017 0018 0019 0020 0021 0022 0026 0029
    0030 0031 0033 0034 0036 0039 0040 0041 0042 0044 0045 0046 0048 0049 0050 0051 0056 0057 0059
    0060 0061 0064 0065 0067 0069 0070 0073 0074 0075 0076 0083 0084 0085 0086 0089 0090 0091 0093
    0094 0099 0100 0102 0106 0112 0113 0118 0120 0121 0122 0123 0125 0127 0129 0130 0132 0137 0140
    0152
"""

#: Those of librdkafka's that want three brokers: transactions.
_ON_THREE = ("0103",)

#: Both expect the broker of their authors: topics with four partitions, short sessions, and that
#: members who come together begin together.
_AUTHORS = {
    "num_partitions": 4,
    "group_min_session_timeout": "500ms",
    "group_initial_rebalance_delay": "100ms",
}

_MINUTES = 30


@pytest.fixture(scope="module")
def suites() -> Path:
    """What scripts/soak has built."""
    folder = os.environ.get("HERMES_CLIENT_SUITES")
    if folder is None:
        raise RuntimeError("scripts/soak builds the tests of clients, and says where they are")
    return Path(folder)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running_kafka(settings=_AUTHORS) as running:
        yield running.bootstrap_servers


def run(command: list[str], folder: Path, **environment: str) -> str:
    """Run some tests; returns what they printed."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        timeout=_MINUTES * 60,
    )
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


def test_franz_go(suites: Path, bootstrap: str, tmp_path: Path) -> None:
    printed = run(
        [
            *(str(suites / "kgo.test"), "-test.v", "-test.parallel=4"),
            *(f"-test.timeout={_MINUTES}m", f"-test.run={_FRANZ_GO}"),
        ],
        tmp_path,
        KGO_SEEDS=bootstrap,
        KGO_TEST_RF="1",
        KGO_TEST_RECORDS="20000",
    )
    passed = re.findall(r"^ *--- PASS: (\S+)", printed, re.MULTILINE)
    assert {"TestGroupETL/range", "TestIssue434", "TestTxnEtl"} <= set(passed)
    report("franz-go's tests", passed=len(passed))


@pytest.mark.parametrize("number", _LIBRDKAFKA.split())
def test_librdkafka(number: str, suites: Path, bootstrap: str, tmp_path: Path) -> None:
    run_librdkafka(number, suites, bootstrap, tmp_path)


@pytest.mark.parametrize("number", _ON_THREE)
def test_librdkafka_on_three(
    number: str,
    suites: Path,
    coordination_server: Callable[[str], ServerProcess],
    tmp_path: Path,
) -> None:
    tree = f"{coordination_server('embedded').address}/librdkafka-{number}"
    cluster = ReplicatedCluster(tmp_path / "cluster", tree, **_AUTHORS)
    try:
        run_librdkafka(number, suites, cluster.bootstrap, tmp_path)
    finally:
        cluster.close()


def run_librdkafka(number: str, suites: Path, bootstrap: str, tmp_path: Path) -> None:
    folder = suites / "librdkafka"
    config = tmp_path / "test.conf"
    config.write_text(f"bootstrap.servers={bootstrap}\n")
    printed = run(
        [str(folder / "tests" / "test-runner"), "-p1", "-Q", "-K"],
        tmp_path,
        TESTS=number,
        TEST_KAFKA_VERSION="4.0.0",
        RDKAFKA_TEST_CONF=str(config),
        LD_LIBRARY_PATH=f"{folder / 'src'}:{folder / 'src-cpp'}",
    )
    assert re.search(rf"\b{number}_\S+ +\| +PASSED", printed), "it ran nothing"
