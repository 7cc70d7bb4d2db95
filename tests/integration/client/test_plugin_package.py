"""examples/plugin-package, installed with pip into a fresh environment and used from there."""

import json
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[3] / "examples" / "plugin-package"

PROGRAM = """
import json
from pathlib import Path

from hermes import FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.testing import running_broker

settings = {
    "num_partitions": 2,
    "retention_policy": "acme-newest",
    "retention_options": {"segments": 2},
}
with running_broker(settings=settings) as broker:
    config = ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        acks="flushed",
        partitioner="acme-region",
        partitioner_options={"regions": ["eu", "us"]},
        encoder="acme-csv",
        callback_handler="acme-journal",
        callback_handler_options={"path": "journal.txt"},
    )
    with Producer(config) as producer:
        where = [
            producer.send("clicks", ("/index, 1", 200), key=key).result(10) for key in ("us", "eu")
        ]
        unknown = producer.send("clicks", ("/", 404), key="mars").exception(10)
    with SimpleConsumer(broker.host, broker.port) as consumer:
        ((message, _),) = consumer.fetch(FetchRequest("clicks", 1, 0, 1000))
print(
    json.dumps(
        {
            "partitions": [each.partition for each in where],
            "unknown": f"{type(unknown).__name__}: {unknown}",
            "payload": message.payload.decode(),
            "journal": Path("journal.txt").read_text(encoding="utf-8").splitlines(),
        }
    )
)
"""


def run(*command: object, cwd: Path) -> str:
    ran = subprocess.run(
        [str(each) for each in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment of its own that sees Hermes and has the package installed: its Python."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "venv", with_pip=False, symlinks=True)
    python = folder / "venv" / "bin" / "python"
    packages = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder
    )
    # What is installed here is visible there, so that nothing has to be downloaded.
    here = sysconfig.get_path("purelib")
    Path(packages.strip(), "here.pth").write_text(f"import site; site.addsitedir({here!r})\n")
    # Building writes beside the sources.
    shutil.copytree(PACKAGE, folder / "package")
    options = ["--no-index", "--no-deps", "--no-build-isolation", "--quiet"]
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", python]
    run(*pip, "install", *options, folder / "package", cwd=folder)
    return python


def test_its_plugins_work_through_a_broker_and_a_producer(
    environment: Path, tmp_path: Path
) -> None:
    script = tmp_path / "use_plugins.py"
    script.write_text(PROGRAM, encoding="utf-8")
    outcome = json.loads(run(environment, "-W", "error", script, cwd=tmp_path))
    assert outcome["partitions"] == [1, 0]
    assert outcome["unknown"] == "LocalProtocolError: 'mars' is none of the regions eu, us"
    assert outcome["payload"] == '"/index, 1",200'
    assert outcome["journal"][:2] == [
        "sent clicks-1 0 ('/index, 1', 200)",
        "sent clicks-0 0 ('/index, 1', 200)",
    ]
    assert outcome["journal"][2].startswith("failed clicks ('/', 404): 'mars' is none")


CONTRACTS = """
from zope.interface.verify import verifyClass

from acme_hermes.authorizer import OwnTopics
from acme_hermes.encoder import CsvEncoder
from acme_hermes.journal import Journal
from acme_hermes.people import People
from acme_hermes.partitioner import RegionPartitioner
from acme_hermes.retention import KeepNewest
from hermes.interfaces import *
from hermes.plugins import available, load_plugin

for interface, factory in (
    (IEncoder, CsvEncoder),
    (IDecoder, CsvEncoder),
    (ICallbackHandler, Journal),
    (IPartitioner, RegionPartitioner),
    (IRetentionPolicy, KeepNewest),
    (IAuthenticator, People),
    (IAuthorizer, OwnTopics),
):
    assert verifyClass(interface, factory)
for kind, name in (
    ("partitioners", "acme-region"),
    ("encoders", "acme-csv"),
    ("callback_handlers", "acme-journal"),
    ("retention", "acme-newest"),
    ("authenticators", "acme-people"),
    ("authorizers", "acme-own-topics"),
):
    assert name in available(f"hermes.{kind}"), name
    assert len(available(f"hermes.{kind}")) > 1, kind
settings = AuthorizerSettings(options={"operators": ["root"]})
authorizer = load_plugin("hermes.authorizers", "acme-own-topics", IAuthorizer, settings)
about = frozenset(), "produce", "topic", "alice.clicks"
told = [authorizer.is_allowed(who, *about) for who in ("alice", "bob", "root")]
assert told == [True, False, True]
options = RetentionSettings(options={"segments": 2})
policy = load_plugin("hermes.retention", "acme-newest", IRetentionPolicy, options)
segments = tuple(SegmentInfo(100 * n, 100, 0, n == 4) for n in range(5))
assert policy.expired(segments, 0) == 3
assert CsvEncoder().decode("t", CsvEncoder().encode("t", ("a,b", "", 1))) == ["a,b", "", "1"]
"""


def test_they_provide_their_interfaces(environment: Path, tmp_path: Path) -> None:
    script = tmp_path / "contracts.py"
    script.write_text(CONTRACTS, encoding="utf-8")
    run(environment, "-W", "error", script, cwd=tmp_path)
