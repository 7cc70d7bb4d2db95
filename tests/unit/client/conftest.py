"""Brokers on threads, on loopback, port 0: one that follows a script, one with logs in memory.

Both by TLS where a test sets `transport` to "tls".
"""

import contextlib
import os
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator

import pytest
from certificates import Certificates

from hermes.errors import RemoteProtocolError
from hermes.protocol import (
    EARLIEST,
    REQUEST_VERSIONS,
    AcknowledgedProduceRequest,
    BoundaryRequest,
    BrokerMetadata,
    ContentFormat,
    DeleteTopicRequest,
    ErrorCode,
    FetchRequest,
    MessageSet,
    MetadataRequest,
    MultiFetchRequest,
    MultiProduceRequest,
    OffsetsRequest,
    PartitionMetadata,
    ProducedEntry,
    ProduceRequest,
    RecordFetchedEntry,
    RecordFetchRequest,
    RecordProduceRequest,
    TopicMetadata,
    WaitingFetchRequest,
    decode_request,
    encode_acknowledged_produce_response,
    encode_boundary_response,
    encode_error_response,
    encode_metadata_response,
    encode_offsets_response,
    encode_record_fetch_response,
    fetch_response_header,
    multifetch_response_header,
    waiting_fetch_entry_header,
    waiting_fetch_response_header,
)
from hermes.protocol.record_batches import BatchRules, check_batches, placed
from hermes.security import PLAIN, ClientSecurity

READ = "read one request"
CLOSE = "close the connection"
RESET = "close it with a reset"
HALF_CLOSE = "send no more, but go on reading"
HOLD = "read until the client closes"

Step = str | bytes


def open_sockets() -> set[str]:
    """The sockets of this process, by inode."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    threads, sockets = set(threading.enumerate()), open_sockets()
    yield
    assert set(threading.enumerate()) <= threads
    assert open_sockets() <= sockets


class Server:
    """Accepts on loopback; a thread per connection runs `converse` with it.

    Attributes:
        security: what clients need.
    """

    security = PLAIN
    tls: ssl.SSLContext | None = None

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.connection_count = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        self._lock = threading.Lock()
        self._connections: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, name="fake-broker")]
        self._threads[0].start()

    def converse(self, number: int, connection: socket.socket) -> None:
        raise NotImplementedError

    def drop_connections(self) -> None:
        with self._lock:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join(10)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def read_request(self, connection: socket.socket) -> bytes | None:
        """One request with its prefix; None at the end."""
        prefix = self._read_exactly(connection, 4)
        if prefix is None:
            return None
        body = self._read_exactly(connection, struct.unpack(">i", prefix)[0])
        if body is None:
            return None
        with self._lock:
            self.requests.append(prefix + body)
        return prefix + body

    @staticmethod
    def _read_exactly(connection: socket.socket, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            chunk = connection.recv(count - len(data))
            if not chunk:
                return None
            data += chunk
        return data

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                number = self.connection_count
                self.connection_count += 1
                self._connections.append(connection)
                thread = threading.Thread(target=self._serve, args=(number, connection))
                self._threads.append(thread)
            thread.start()

    def _serve(self, number: int, connection: socket.socket) -> None:
        carrier = connection
        try:
            if self.tls is not None:
                # A socket of its own, so that others may shut the connection down.
                carrier = self.tls.wrap_socket(connection.dup(), server_side=True)
            self.converse(number, carrier)
        except OSError:
            pass
        finally:
            with self._lock:
                self._connections.remove(connection)
            carrier.close()
            connection.close()


class ScriptedBroker(Server):
    """The n-th connection follows the n-th script; one without a script is closed at once."""

    def __init__(self, *scripts: list[Step]) -> None:
        self._scripts = scripts
        super().__init__()

    def converse(self, number: int, connection: socket.socket) -> None:
        script = self._scripts[number] if number < len(self._scripts) else []
        for step in script:
            if isinstance(step, bytes):
                connection.sendall(step)
            elif step == READ:
                if self.read_request(connection) is None:
                    return
            elif step == RESET:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return
            elif step == HALF_CLOSE:
                connection.shutdown(socket.SHUT_WR)
            elif step == HOLD:
                while connection.recv(65536):
                    pass
            else:
                assert step == CLOSE
                return


@pytest.fixture
def transport(request: pytest.FixtureRequest) -> str:
    """How these brokers are reached: "plain" or "tls"."""
    return str(getattr(request, "param", "plain"))


@pytest.fixture
def carried(transport: str, request: pytest.FixtureRequest) -> Callable[[type], type]:
    """Make of a class of brokers one of those that are reached by `transport`."""
    if transport == "plain":
        return lambda kind: kind
    files: Certificates = request.getfixturevalue("certificates")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.server.certificate, files.server.key)
    security = ClientSecurity(tls_ca=str(files.ca))
    return lambda kind: type(kind.__name__, (kind,), {"tls": context, "security": security})


@pytest.fixture
def scripted(carried: Callable[[type], type]) -> Iterator[Callable[..., ScriptedBroker]]:
    """Start brokers that follow scripts; they are stopped after the test."""
    started: list[ScriptedBroker] = []

    def start(*scripts: list[Step]) -> ScriptedBroker:
        started.append(carried(ScriptedBroker)(*scripts))
        return started[-1]

    yield start
    for broker in started:
        broker.stop()


@pytest.fixture
def unused_port() -> int:
    """A port of loopback where nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    return port


class MemoryBroker(Server):
    """Keeps logs in memory and answers as a broker does; everything is visible at once.

    With `hermes=False` it is a Kafka 0.7: it closes at Hermes' own requests. `errors` answers the
    next acknowledged entries with error codes; `drop` closes at the next requests of these types.
    """

    def __init__(self, *, hermes: bool = True, partition_count: int = 1) -> None:
        self.hermes = hermes
        self.partition_count = partition_count
        self.logs: dict[tuple[str, int], bytearray] = {}
        self.earliest: dict[tuple[str, int], int] = {}
        self.errors: list[int] = []
        #: The topics of Kafka's format, and the batches that were appended to each.
        self.records: dict[str, bytearray] = {}
        self.record_count = 0
        self.drop: list[int] = []
        self.paused = threading.Event()
        self.paused.set()
        super().__init__()

    def payloads(self, topic: str, partition: int = 0) -> list[bytes]:
        log = self.logs.get((topic, partition), b"")
        return [message.payload for message, _ in MessageSet(bytes(log))]

    def request_types(self) -> list[int]:
        return [int.from_bytes(each[4:6], "big") for each in self.requests]

    def converse(self, number: int, connection: socket.socket) -> None:
        while (frame := self.read_request(connection)) is not None:
            request_type = int.from_bytes(frame[4:6], "big")
            if request_type in self.drop:
                self.drop.remove(request_type)
                return
            if request_type >= 64 and not self.hermes:
                return
            self.paused.wait(10)
            try:
                request = decode_request(memoryview(frame)[4:])
            except RemoteProtocolError:
                return  # as a broker, which closes on what it doesn't know
            answer = self.answer(request)
            if answer is None:
                return
            connection.sendall(answer)

    def answer(self, request: object) -> bytes | None:
        if isinstance(request, ProduceRequest):
            return None if self.append(request).error else b""
        if isinstance(request, MultiProduceRequest):
            return None if any(self.append(each).error for each in request.produces) else b""
        if isinstance(request, RecordProduceRequest):
            produced = [self.append_records(each) for each in request.produces]
            return encode_acknowledged_produce_response(produced)
        if isinstance(request, AcknowledgedProduceRequest):
            produced = [self.append(each) for each in request.produces]
            return encode_acknowledged_produce_response(produced)
        if isinstance(request, FetchRequest):
            error, data, _ = self.read(request)
            return fetch_response_header(len(data), error) + data
        if isinstance(request, MultiFetchRequest):
            parts = b""
            for fetch in request.fetches:
                error, data, _ = self.read(fetch)
                parts += fetch_response_header(len(data), error) + data
            return multifetch_response_header(len(parts)) + parts
        if isinstance(request, RecordFetchRequest):
            entries = [
                RecordFetchedEntry(error, high_watermark, ContentFormat.MESSAGES, data)
                for error, data, high_watermark in map(self.read, request.fetches)
            ]
            return encode_record_fetch_response(entries)
        if isinstance(request, WaitingFetchRequest):
            parts = b""
            for fetch in request.fetches:
                error, data, high_watermark = self.read(fetch)
                parts += waiting_fetch_entry_header(error, high_watermark, len(data)) + data
            return waiting_fetch_response_header(len(parts), len(request.fetches)) + parts
        if isinstance(request, OffsetsRequest):
            return self.offsets(request)
        if isinstance(request, MetadataRequest):
            return encode_metadata_response(self.metadata(request))
        if isinstance(request, BoundaryRequest):
            return self.boundary(request)
        assert isinstance(request, DeleteTopicRequest)
        mine = [key for key in self.logs if key[0] == request.topic]
        for key in mine:
            del self.logs[key]
        return encode_error_response(0 if mine else ErrorCode.UNKNOWN_TOPIC)

    def append_records(self, request: ProduceRequest) -> ProducedEntry:
        if request.topic not in self.records:
            return ProducedEntry(request.partition, ErrorCode.WRONG_FORMAT, -1)
        error = self.errors.pop(0) if self.errors else 0
        if error:
            return ProducedEntry(request.partition, error, -1)
        headers = check_batches(request.message_set, BatchRules(1_000_000))
        first = self.record_count
        for part in placed(request.message_set, headers, first, 0):
            self.records[request.topic] += part
        self.record_count += sum(each.record_count for each in headers)
        return ProducedEntry(0, 0, first)

    def append(self, request: ProduceRequest) -> ProducedEntry:
        if request.topic in self.records:
            return ProducedEntry(request.partition, ErrorCode.WRONG_FORMAT, -1)
        partition = 0 if request.partition == -1 else request.partition
        error = self.errors.pop(0) if self.errors else 0
        if not 0 <= partition < self.partition_count:
            error = ErrorCode.WRONG_PARTITION
        if error:
            return ProducedEntry(request.partition, error, -1)
        log = self.logs.setdefault((request.topic, partition), bytearray())
        offset = len(log)
        log += request.message_set
        return ProducedEntry(partition, 0, offset)

    def read(self, request: FetchRequest) -> tuple[int, bytes, int]:
        key = (request.topic, request.partition)
        if not 0 <= request.partition < self.partition_count:
            return ErrorCode.WRONG_PARTITION, b"", -1
        log = self.logs.get(key)
        if log is None:
            return 0, b"", -1
        if not self.earliest.get(key, 0) <= request.offset <= len(log):
            return ErrorCode.OFFSET_OUT_OF_RANGE, b"", len(log)
        return 0, bytes(log[request.offset : request.offset + request.max_size]), len(log)

    def offsets(self, request: OffsetsRequest) -> bytes:
        key = (request.topic, request.partition)
        ends = [len(self.logs.get(key, b"")), self.earliest.get(key, 0)]
        found = ends[1:] if request.time == EARLIEST else sorted(set(ends), reverse=True)
        return encode_offsets_response(found[: request.max_offsets])

    def metadata(self, request: MetadataRequest) -> BrokerMetadata:
        names = request.topics
        if names is None:
            names = tuple(sorted({topic for topic, _ in self.logs}))
        topics = []
        for name in names:
            existing = tuple(
                PartitionMetadata(number, self.earliest.get((name, number), 0), len(log), len(log))
                for (topic, number), log in sorted(self.logs.items())
                if topic == name
            )
            error = 0 if existing else ErrorCode.UNKNOWN_TOPIC
            topics.append(TopicMetadata(name, error, self.partition_count, existing))
        return BrokerMetadata(
            broker_id=7,
            version="1.2.3",
            max_request_bytes=100 << 20,
            max_message_bytes=1_000_000,
            default_partitions=self.partition_count,
            request_versions=REQUEST_VERSIONS,
            topics=tuple(topics),
        )

    def boundary(self, request: BoundaryRequest) -> bytes:
        boundary = 0
        for _, following in MessageSet(bytes(self.logs[request.topic, request.partition])):
            if following <= request.offset:
                boundary = following
        return encode_boundary_response(0, boundary)


@pytest.fixture
def memory_broker(carried: Callable[[type], type]) -> Iterator[Callable[..., MemoryBroker]]:
    """Start brokers that keep logs in memory; they are stopped after the test."""
    started: list[MemoryBroker] = []

    def start(**options: object) -> MemoryBroker:
        started.append(carried(MemoryBroker)(**options))
        return started[-1]

    yield start
    for broker in started:
        broker.paused.set()
        broker.stop()
