"""From a data centre with Kafka into one with Hermes and Spark, through kills, and the proof.

    python examples/two-data-centres/run.py KAFKA [ORDERS]

KAFKA is the address of a Kafka 4 without a topic `orders`. The broker of Hermes, the mirror, the
producer (produce.py) and Spark's job (load.py) run here, and each is killed and started again. At
the end the audit says what has become of each order; the status is 1 if it can't.
"""

# ruff: noqa: T201 - a script that tells what it sees
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TypeVar

from hermes.extras import install_command

try:
    import pyspark  # noqa: F401 - load.py does
    from pyarrow import parquet
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}; this needs Spark: {install_command('spark')}")

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from hermes.audit.checking import Audit, ClusterAddress
from hermes.audit.comparing import Report
from hermes.errors import HermesError

HERE, BIN = Path(__file__).parent, Path(sys.executable).parent
T = TypeVar("T")
TOPIC, PARTITIONS = "orders", 3
NOT_YET = {"open", "behind"}
TIERS = {"mirror:kafka-to-hermes", "cluster:hermes", "spark:orders"}
PATIENCE_SECONDS = 900.0  # generous: a machine may have much else to do

BROKER = """
broker_id: 0
log_dir: "{folder}/hermes"
listen: tcp:{port}:interface=127.0.0.1
coordination: embedded
coordination_listen: tcp:{coordination}:interface=127.0.0.1
"""

MIRROR = """
name: kafka-to-hermes
sources: [{{name: kafka, kafka: ["{kafka}"]}}]
target: {{zookeeper: "{hermes}"}}
whitelist: orders
audit: true
audit_window: 1s
"""


class Part:
    """A program of the pipeline, with all that it starts; what it says goes into a file."""

    def __init__(self, folder: Path, name: str, *command: str) -> None:
        self.name, self.command = name, [str(BIN / command[0]), *command[1:]]
        self.log = folder / f"{name}.log"
        self.start()

    def start(self) -> None:
        """Start it, or start it again."""
        # Python by its name: Spark doesn't find what is in one whose path has spaces.
        path = f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        spark = {"PATH": path, "PYSPARK_PYTHON": Path(sys.executable).name}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command, env={**os.environ, **spark}, stdout=log, stderr=log, process_group=0
            )

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it and wait for that."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        self.process.wait()

    def kill(self) -> None:
        """Kill it without any warning, and start it again."""
        self.end(signal.SIGKILL)
        print(f"killed the {self.name}", flush=True)
        self.start()


def wait_for(look: Callable[[], T], parts: Sequence[Part]) -> T:
    """Wait for something; who ends by an error meanwhile is started again, as systemd would."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        found = look()
        if found:
            return found
        if time.monotonic() > deadline:
            sys.exit("\n".join(each.log.read_text()[-3000:] for each in parts))
        for each in parts:
            if each.process.poll():
                each.start()
        time.sleep(0.1)


def in_kafka(kafka: str) -> int:
    """How many orders Kafka has."""
    consumer = Consumer({"bootstrap.servers": kafka, "group.id": "counting"})
    places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    ends = [consumer.get_watermark_offsets(each, timeout=60)[1] for each in places]
    consumer.close()
    return sum(ends)


def in_spark(target: Path) -> list[bytes]:
    """The orders in the batches that Spark's job has finished."""
    files = [file for each in target.glob("*/_SUCCESS") for file in each.parent.glob("*.parquet")]
    with suppress(FileNotFoundError):  # of a batch that is being repeated
        return [value for each in files for value in parquet.read_table(each)["value"].to_pylist()]
    return []


def audited(hermes: str) -> Report | None:
    """Compare what was sent, and what each has of it; None until all is counted."""
    with (
        suppress(HermesError),  # of a broker that isn't back yet
        Audit([ClusterAddress("hermes", hermes)], grace_seconds=0, window_ms=1000) as audit,
    ):
        audit.count()
        report = audit.look(topics=[TOPIC])
        tiers = {each.tier for each in report.windows}
        if tiers >= TIERS and not {each.state for each in report.windows} & NOT_YET:
            return report
    return None


def is_proved(report: Report, orders_in_kafka: int) -> bool:
    """Whether every tier has each message once, as far as that can be known."""
    found = Counter[str]()
    for each in report.windows:
        found[each.tier] += each.found
        why = ", ".join(part.why for part in each.parts)
        print(f"{each.tier:22} {each.start_ms}  {each.state:9}  {each.found} messages  {why}")
    # Who was killed can't say what it had sent last: uncertain, and compared with Kafka alone.
    is_sure = {each.state for each in report.windows} in ({"complete"}, {"complete", "uncertain"})
    expected = dict.fromkeys(TIERS, orders_in_kafka)
    return is_sure and not report.losses and found == expected


def run(folder: Path, kafka: str, orders: int, stack: ExitStack) -> bool:
    """Run it all; whether it is proved that nothing is lost and nothing doubled."""
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(60)
    host = "127.0.0.1"
    with socket.create_server((host, 0)) as one, socket.create_server((host, 0)) as two:
        port, coordination = one.getsockname()[1], two.getsockname()[1]
    hermes, target, place = f"{host}:{coordination}", folder / TOPIC, folder / "sent"
    settings = {"folder": folder, "kafka": kafka, "hermes": hermes}
    for name, text in (("broker", BROKER), ("mirror", MIRROR)):
        filled = text.format(**settings, port=port, coordination=coordination)
        (folder / f"{name}.yaml").write_text(filled)

    def part(name: str, *command: object) -> Part:
        made = Part(folder, name, *map(str, command))
        stack.callback(made.end)
        return made

    twistd = ("twistd", "--nodaemon", "--pidfile=", "hermes")
    broker = part("broker", *twistd, "--config", folder / "broker.yaml")
    mirror = part("mirror", "hermes", "mirror", "--config", folder / "mirror.yaml")
    producer = part("producer", "python", HERE / "produce.py", kafka, hermes, orders, place)
    job = part("job", "python", HERE / "load.py", hermes, target)
    parts = [broker, mirror, producer, job]

    wait_for(place.exists, parts)
    producer.kill()
    mirror.kill()
    wait_for(lambda: bool(in_spark(target)), parts)
    job.kill()
    broker.kill()
    wait_for(lambda: int(place.read_text()) == orders, parts)
    wait_for(lambda: len(in_spark(target)) >= in_kafka(kafka), parts)
    report = wait_for(lambda: audited(hermes), parts)
    sent, there = in_kafka(kafka), in_spark(target)
    print(f"Kafka has {sent} messages, Spark has {len(there)}, of {len(set(there))} orders")
    return is_proved(report, sent) and len(there) == sent and len(set(there)) == orders


def main() -> int:
    """Run it; 0 if all is proved."""
    orders = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        proved = run(Path(folder), sys.argv[1], orders, stack)
    print("proved: nothing is lost, and nothing doubled" if proved else "not proved")
    return 0 if proved else 1


if __name__ == "__main__":
    sys.exit(main())
