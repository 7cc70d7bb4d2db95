"""Kafka 4 itself: its broker as a process, its tools, and Java on its library."""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from fetched_tools import CACHE
from server_process import DEADLINE_SECONDS, ServerProcess, free_port
from short_lived_jvm import JAVA_OPTIONS

__all__ = [
    "JAVA_SOURCES",
    "TOOLS",
    "KafkaProcess",
    "java_command",
    "kafka_version",
    "run_java",
    "run_tool",
]

JAVA_SOURCES = Path(__file__).parent / "java"
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_CLUSTER_ID = "hermes-beside-KafkaQ"
_ENVIRONMENT = {
    key: value for key, value in os.environ.items() if key not in ("CLASSPATH", "JDK_JAVA_OPTIONS")
}


@cache
def kafka_version() -> str:
    """The version that `scripts/environment.sh` fetches."""
    sums = (JAVA_SOURCES / "kafka.sha256").read_text(encoding="utf-8")
    return re.findall(r" kafka-clients-(.*)\.jar$", sums, re.MULTILINE)[0]


def _jars() -> Path:
    jars = Path(os.environ.get("HERMES_KAFKA_JARS") or CACHE / f"kafka-{kafka_version()}")
    if not jars.is_dir() or shutil.which("java") is None:
        raise RuntimeError(
            f"these tests need Java, and Kafka {kafka_version()} in {jars}: scripts/test fetches "
            "it, or bash -c '. scripts/environment.sh; ensure_kafka'"
        )
    return jars


@cache
def _compiled(source: str, jars: Path) -> Path:
    """A folder with the classes of a file, which Java would compile at each start: a second."""
    path = JAVA_SOURCES / source
    digest = sha256(path.read_bytes() + bytes(jars)).hexdigest()[:16]
    folder = CACHE / f"{path.stem}-{digest}"
    if not folder.is_dir():
        CACHE.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=CACHE) as beside:
            made = Path(beside, "classes")
            subprocess.run(["javac", "-cp", f"{jars}/*", "-d", made, path], check=True)
            with suppress(OSError):  # another process was faster
                made.rename(folder)
    return folder


def java_command(
    *arguments: str,
    heap: str = "256m",
    options: tuple[str, ...] = (),
    jars: Path | None = None,
    classes: Path | None = None,
) -> list[str]:
    """A command that runs Java with Kafka's classes.

    Args:
        arguments: a class, or a file of `tests/support/java`, and what it takes.
        heap: the most that it may use.
        options: further ones of Java's.
        jars: a folder with other classes than those of Kafka 4.
        classes: a folder with further ones, which were compiled.
    """
    program, jars = list(arguments), jars or _jars()
    paths = [f"{jars}/*"]
    if program[0].endswith(".java"):
        paths.insert(0, str(_compiled(program[0], jars)))
        program[0] = Path(program[0]).stem
    if classes is not None:
        paths.insert(0, str(classes))
    return [
        *("java", f"-Xmx{heap}", *JAVA_OPTIONS, "-Dfile.encoding=UTF-8", *options),
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
        *("-cp", ":".join(paths)),
        *program,
    ]


def run_java(*arguments: str, given: str = "", cwd: Path | None = None) -> str:
    """Run Java to its end, with `given` as its input; what it printed.

    Raises:
        AssertionError: it failed; the text has its output.
    """
    ran = subprocess.run(
        java_command(*arguments),
        input=given,
        cwd=cwd,
        capture_output=True,
        encoding="utf-8",
        env={**_ENVIRONMENT, "LC_ALL": "C.UTF-8"},
        timeout=DEADLINE_SECONDS,
    )
    assert ran.returncode == 0, f"{arguments}:\n{ran.stdout}{ran.stderr}"
    return ran.stdout


#: The console tools by the names of their scripts.
TOOLS = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


def run_tool(name: str, *arguments: str, given: str = "", cwd: Path | None = None) -> str:
    """Run one of Kafka's console tools by its script's name, as `run_java` does."""
    return run_java(TOOLS[name], *arguments, given=given, cwd=cwd)


class KafkaProcess(ServerProcess):
    """One Kafka 4, broker and controller at once (KRaft).

    It keeps its port and its data over restarts.

    Args:
        directory: for its files; its data are in `data` below.
        settings: further ones of server.properties.
        heap: the most that Java's may grow to.
        users: passwords by name, for a second listener that wants SCRAM.
        plain: whether that listener takes PLAIN, too.
        node: which one of a cluster this is, from 1.
        controllers: the ports of all controllers of its cluster; each serves once most of them run.
        tokens: whether it takes OAUTHBEARER instead, of JWTs that nobody has signed.

    Attributes:
        sasl_address: of that listener.
    """

    def __init__(
        self,
        directory: Path,
        settings: Mapping[str, object] | None = None,
        heap: str = "512m",
        users: Mapping[str, str] | None = None,
        plain: bool = False,
        node: int = 1,
        controllers: Sequence[int] = (),
        tokens: bool = False,
    ) -> None:
        super().__init__(directory)
        self._plain = plain
        self._tokens = tokens
        self._heap = heap
        self._users = users or {}
        controllers = controllers or (free_port(),)
        controller = controllers[node - 1]
        voters = (f"{each}@127.0.0.1:{port}" for each, port in enumerate(controllers, 1))
        values: dict[str, object] = {
            "process.roles": "broker,controller",
            "node.id": node,
            "controller.quorum.voters": ",".join(voters),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": "data",  # below where it starts: a path could hold what properties can't
            "group.initial.rebalance.delay.ms": 0,
            "offsets.topic.num.partitions": 1,
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            **(settings or {}),
        }
        if users or tokens:
            secured = f"SASL_PLAINTEXT://{self._with_users(values)}"
            for name in ("listeners", "advertised.listeners"):
                values[name] = f"{values[name]},{secured}"
        text = "".join(f"{name}={value}\n" for name, value in values.items())
        (directory / "server.properties").write_text(text, encoding="utf-8")

    def _with_users(self, values: dict[str, object]) -> str:
        """Set what a listener with SCRAM needs; its address."""
        self.sasl_address = f"127.0.0.1:{free_port()}"
        values["listener.security.protocol.map"] = (
            f"{values['listener.security.protocol.map']},SASL_PLAINTEXT:SASL_PLAINTEXT"
        )
        values["sasl.enabled.mechanisms"] = ",".join(_SCRAM)
        module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        for mechanism in _SCRAM:
            listener = f"listener.name.sasl_plaintext.{mechanism.lower()}"
            values[f"{listener}.sasl.jaas.config"] = module
        if self._tokens:
            values["sasl.enabled.mechanisms"] = "OAUTHBEARER"
            values["listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
            )
        if self._plain:
            values["sasl.enabled.mechanisms"] += ",PLAIN"
            names = " ".join(f'user_{name}="{each}"' for name, each in self._users.items())
            values["listener.name.sasl_plaintext.plain.sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.plain.PlainLoginModule required {names};"
            )
        return self.sasl_address

    def start(self) -> None:
        """Start it, and wait until it serves."""
        if not (self.directory / "data").exists():
            storage = ("kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID)
            users = [
                word
                for mechanism in _SCRAM
                for name, password in self._users.items()
                for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
            ]
            run_java(*storage, "-c", "server.properties", *users, cwd=self.directory)
        command = java_command("kafka.Kafka", "server.properties", heap=self._heap)
        with open(self.directory / "output", "ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=_ENVIRONMENT,
            )
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline and self._process.poll() is None:
            if _serves(self.port):
                return
            time.sleep(0.05)  # between two looks; there is nothing that could tell
        self.kill()
        output_text = (self.directory / "output").read_text(encoding="utf-8", errors="replace")
        raise RuntimeError(f"Kafka does not serve:\n{output_text}")


# Metadata, version 1, of no topic: int32 size | int16 3 | int16 1 | int32 correlation | int16 -1
# (no client id) | int32 count of topics
_METADATA_REQUEST = bytes.fromhex("0000000e 0003 0001 00000001 ffff 00000000")


def _serves(port: int) -> bool:
    """Whether it answers, and knows of itself; the port is open long before."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
            connection.sendall(_METADATA_REQUEST)
            answer = connection.makefile("rb").read(12)
    except OSError:
        return False
    return len(answer) == 12 and answer[8:] != bytes(4)  # int32 size | int32 correlation | brokers
