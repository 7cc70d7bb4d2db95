"""A broker for all the tests of a file, `hermes` as a process, and a front that plays Kafka 0.7."""

import contextlib
import itertools
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hermes_testkit import BrokerProcess
from planted_secrets import leaks

HERMES = str(Path(sys.executable).with_name("hermes"))
DEADLINE_SECONDS = 60
PARTITIONED = [f"three-{number}" for number in range(20)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for the tests of a file; each test takes topics of its own."""
    directory = tmp_path_factory.mktemp("cli")
    topics = {name: {"partitions": 3} for name in PARTITIONED}
    process = BrokerProcess(
        directory / "broker", {"log_dir": str(directory / "logs"), "topics": topics}
    )
    yield process
    assert process.stop() == 0


@pytest.fixture(scope="module")
def names() -> Callable[[], str]:
    """Names of topics with one partition that no other test of the file uses."""
    numbers = itertools.count()
    return lambda: f"topic-{next(numbers)}"


@pytest.fixture
def topic(names: Callable[[], str]) -> str:
    """A topic of one partition."""
    return names()


@pytest.fixture(scope="module")
def partitioned() -> Callable[[], str]:
    """Names of topics with three partitions that no other test of the file uses."""
    unused = iter(PARTITIONED)
    return lambda: next(unused)


class Hermes:
    """Runs the program `hermes` against a broker, as a process of its own."""

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self._environment = {**os.environ, "HERMES_BROKER": self.address}
        self._environment.pop("HERMES_DEBUG", None)
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self, *arguments: object, stdin: bytes = b"", code: int = 0
    ) -> subprocess.CompletedProcess[bytes]:
        """Run to the end; fails unless it ends with that exit code."""
        ended = subprocess.run(
            [HERMES, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            timeout=DEADLINE_SECONDS,
            env=self._environment,
        )
        assert ended.returncode == code, (ended.returncode, ended.stderr)
        assert b"Traceback" not in ended.stderr
        assert not leaks(ended.stdout + ended.stderr)
        return ended

    def start(
        self,
        *arguments: object,
        stdout: int | BinaryIO = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
    ) -> subprocess.Popen[bytes]:
        """Start it with pipes; killed after the test if it still runs."""
        process = subprocess.Popen(
            [HERMES, *map(str, arguments)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            stderr=stderr,
            env=self._environment,
        )
        self.started.append(process)
        return process

    def close(self) -> None:
        for process in self.started:
            process.kill()
            process.wait(DEADLINE_SECONDS)
            for pipe in (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


@pytest.fixture
def hermes(broker: BrokerProcess) -> Iterator[Hermes]:
    """Runs `hermes` with the file's broker as HERMES_BROKER."""
    runner = Hermes(broker.port)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def hermes_once(broker: BrokerProcess) -> Hermes:
    """The same for fixtures that many tests share; for commands that end."""
    return Hermes(broker.port)


@pytest.fixture
def hermes_at() -> Iterator[Callable[[int], Hermes]]:
    """Runs `hermes` with the broker at a port."""
    runners: list[Hermes] = []

    def make(port: int) -> Hermes:
        runners.append(Hermes(port))
        return runners[-1]

    yield make
    for runner in runners:
        runner.close()


class Kafka07Front:
    """Hands requests on to a broker, but closes at those that Kafka 0.7 doesn't know."""

    def __init__(self, port: int) -> None:
        self._behind = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._threads[0].start()

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(DEADLINE_SECONDS)
        with self._lock:
            for each in self._sockets:
                _shut(each)
        for thread in self._threads:
            thread.join(DEADLINE_SECONDS)
            assert not thread.is_alive()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            broker = socket.create_connection(("127.0.0.1", self._behind))
            pumps = [
                threading.Thread(target=self._requests, args=(client, broker)),
                threading.Thread(target=self._answers, args=(client, broker)),
            ]
            with self._lock:
                self._sockets += [client, broker]
                self._threads += pumps
            for pump in pumps:
                pump.start()

    def _requests(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                size = _receive(client, 4)
                body = _receive(client, struct.unpack(">i", size)[0])
                if int.from_bytes(body[:2], "big") > 4:
                    break
                broker.sendall(size + body)
        _shut(client)
        _shut(broker)

    def _answers(self, client: socket.socket, broker: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := broker.recv(65536):
                client.sendall(data)
        _shut(client)


def _receive(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def kafka(broker: BrokerProcess) -> Iterator[Hermes]:
    """Runs `hermes` with a broker that knows only what Kafka 0.7 knows."""
    front = Kafka07Front(broker.port)
    runner = Hermes(front.port)
    yield runner
    runner.close()
    front.stop()


@pytest.fixture
def unused_port() -> int:
    """A port of loopback where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


@pytest.fixture
def listening_nonsense() -> Iterator[int]:
    """A port where something answers that is no broker."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                with client:
                    client.recv(1)
                    client.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    _shut(listener)
    listener.close()
    thread.join(DEADLINE_SECONDS)


@pytest.fixture(scope="session")
def access_log() -> bytes:
    """A real web server's log where there is one, else one of the same kind."""
    real = Path(__file__).resolve().parents[4] / "shared" / "data" / "apache_access.log"
    if real.exists():
        return real.read_bytes()
    return b"".join(
        b'10.0.%d.%d - - [17/May/2015:10:%02d:%02d +0000] "GET /page/%d HTTP/1.1" 200 %d "-" "%s"\n'
        % (n % 7, n % 251, n // 60 % 60, n % 60, n % 400, n * 37 % 100_000, b"agent " * (n % 40))
        for n in range(10_000)
    )


@pytest.fixture
def start_broker(tmp_path: Path) -> Iterator[Callable[..., BrokerProcess]]:
    """Starts brokers with settings of the test's own."""
    brokers: list[BrokerProcess] = []

    def start(**settings: Any) -> BrokerProcess:
        name = f"broker-{len(brokers)}"
        settings.setdefault("log_dir", str(tmp_path / f"{name}-logs"))
        brokers.append(BrokerProcess(tmp_path / name, settings))
        return brokers[-1]

    yield start
    for each in brokers:
        assert each.stop() == 0
