"""A broker under load is traced; then each thing a disk may hold afterwards is given to a broker.

What a client was told is known by the bytes that the trace shows on its socket, so a promise counts
from the call on that gave it. `Recording.check` starts a real broker on one state and holds it to
every promise given before that moment:

- each partition starts no later than retention can have left it;
- whatever was acknowledged as flushed is there, and whatever a consumer could see, in one piece,
  and byte by byte what was written;
- behind that each valid message is one that was written there. (What was never confirmed may be
  damaged between two of them: recovery drops a bad end and nothing else.)
- a topic whose delete was answered stays away; one whose first message was acknowledged is there;
- of each source of a mirror all is there once and in order up to its position, which is no smaller
  than what was acknowledged, and the mirror can go on from it;
- what the coordination server acknowledged it still has, and an offset committed there is one
  from which a consumer can go on;
- the broker goes on from there: a further message stands right behind, and `check-log` finds
  nothing wrong with what was promised.
"""

import bisect
import random
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hermes_testkit import BrokerProcess, RawClient, fetch, frame, message, produce_acknowledged
from jute_frames import JuteClient, get_data
from lost_power import build_state
from power_loss_load import (
    COMMITS,
    COPIED,
    COPIED_BYTES,
    PARTITIONS,
    SETTINGS,
    TOPIC,
    Client,
    MirrorClient,
    Promise,
    is_to_be_deleted,
    loopback,
)
from server_process import free_ports
from traced_files import Node, Trace

from hermes.client.mirrored import MirroredPartitions
from hermes.offline.inspection import Limits
from hermes.offline.verification import DirectoryCheck
from hermes.protocol import find_valid_message
from hermes.storage.source_records import HEADER, Opened, encode_record, parse_records

__all__ = ["Recording", "answered"]

_LONGEST = 16 * 1024
_MISSING_NODE = -101


@dataclass(frozen=True)
class _Log:
    """What a broker serves of a partition.

    Attributes:
        start: its first offset.
        data: all of it.
        good_end: up to which offset it is what was written, byte by byte.
    """

    start: int
    data: bytes
    good_end: int

    @property
    def end(self) -> int:
        return self.start + len(self.data)


_Logs = dict[tuple[str, int], _Log]


class Recording:
    """A traced life of a broker, and what it promised when.

    Attributes:
        trace: the life.
        promises: each promise with the moment from which it holds, in that order.
        checked: how many promises `check` has held a broker to.
    """

    def __init__(self, trace: Trace, clients: list[Client]) -> None:
        self.trace = trace
        self._mirrors = [each for each in clients if isinstance(each, MirrorClient)]
        self.checked = 0
        self.promises = sorted(
            (
                (moment, promise)
                for client in clients
                for moment, promise in zip(
                    answered(trace.sent.get(client.ports, [])), client.promises, strict=False
                )
                if promise is not None
            ),
            key=lambda each: each[0],
        )
        self._written = {name: _written(node) for name, node in _partitions(trace)}

    def moments(self) -> range:
        """From the first promise to the end."""
        return range(self.promises[0][0], self.trace.moments + 1)

    def check(
        self, directory: Path, moment: int, mode: str, seed: int, *, believe_syncs: bool = True
    ) -> None:
        """Build one state, start a broker on it, and hold it to what had been promised.

        Args:
            directory: for the state; made, and removed when all was well.
            moment: when the power went.
            mode: of `lost_power.MODES`.
            seed: decides what the mode leaves open.
            believe_syncs: False for a disk that lies about them.

        Raises:
            AssertionError: a promise was broken; the directory is kept.
        """
        directory.mkdir()
        build_state(
            self.trace,
            moment,
            mode,
            random.Random(seed),
            directory / "logs",
            believe_syncs=believe_syncs,
        )
        _on_another_start(directory / "logs")
        shutil.copytree(directory / "logs", directory / "before")
        known = bisect.bisect_left(self.promises, moment, key=lambda each: each[0])
        promises = [promise for _, promise in self.promises[:known]]
        with ExitStack() as stack:
            broker, coordination_port = _start_again(directory)
            stack.callback(broker.kill)
            client = stack.enter_context(broker.connect())
            logs = self._check_logs(client, directory / "logs", moment)
            _check_promises(promises, logs)
            self._check_commits(promises, logs, JuteClient(coordination_port))
            _check_copies(broker.port, self._mirrors, promises, logs)
            _check_that_it_goes_on(client, logs)
        _check_files(directory / "logs", logs)
        self.checked += len(promises)
        shutil.rmtree(directory)

    def _check_logs(self, client: RawClient, folder: Path, moment: int) -> _Logs:
        """Read every partition that there is, and compare it with what was written to it."""
        logs = {}
        for path in folder.iterdir():
            if not path.is_dir():
                continue
            topic, _, partition = path.name.rpartition("-")
            start, data = _read(client, topic, int(partition))
            written = self._written[path.name]
            same = _common_length(written[start : start + len(data)], data)
            for position, each in _valid_messages(data, same):
                offset = start + position
                assert written[offset : offset + len(each)] == each, f"{path.name} {offset}"
            assert start <= self._first_kept(path.name, moment), f"{path.name} lost its beginning"
            logs[topic, int(partition)] = _Log(start, data, start + same)
        return logs

    def _check_commits(self, promises: list[Promise], logs: _Logs, client: JuteClient) -> None:
        committed = {each.partition: each.end for each in promises if each.kind == "committed"}
        with client:
            for partition in range(PARTITIONS):
                error, body = client.ask(get_data(1, f"{COMMITS}{partition}"))
                assert error == 0 or (error == _MISSING_NODE and partition not in committed), error
                if error:
                    continue
                (size,) = struct.unpack_from(">i", body)
                offset, log = int(body[4 : 4 + size]), logs[TOPIC, partition]
                assert offset >= committed.get(partition, 0), "an acknowledged commit is lost"
                assert offset <= log.good_end, "what an offset was committed for is lost"
                # What comes next may be lost itself.
                written = self._written[f"{TOPIC}-{partition}"]
                if offset < len(written):
                    first = next(iter(_valid_messages(written, offset)))
                    first, _ = next(_valid_messages(written, offset))
                    assert first == offset, "a committed offset is no message's"

    def _first_kept(self, name: str, moment: int) -> int:
        """Where the first segment begins that no unlink had been begun for."""
        node = dict(_partitions(self.trace))[name]
        gone = {
            _base(each)
            for change in node.changes
            if change.begin < moment
            for each, now in change.names.items()
            if now is None and _is_unlinked(change.names) and _is_segment(each)
        }
        bases = {
            _base(each)
            for change in node.changes
            if change.begin < moment
            for each in change.names
            if _is_segment(each)
        }
        return min(bases - gone, default=0)


def _start_again(directory: Path) -> tuple[BrokerProcess, int]:
    """Start a broker on a state; it, and the port of its coordination server."""
    port, coordination_port = free_ports(2)
    settings = {
        **SETTINGS,
        "listen": loopback(port),
        "coordination_listen": loopback(coordination_port),
        "retention_check_interval": "1h",
        "log_dir": str(directory / "logs"),
    }
    broker = BrokerProcess(directory / "broker", settings, wait=False)
    # It serves from here on. Being ready may take as long as the timeout of the session of the one
    # before, where the power went before that was marked as the broker's own.
    broker.wait_for_line("BrokerFactory starting on")
    broker.port = port
    return broker, coordination_port


def _check_promises(promises: list[Promise], logs: _Logs) -> None:
    deleted = {each.topic for each in promises if each.kind == "deleted"}
    for topic in deleted:
        left = [log for (name, _), log in logs.items() if name == topic]
        assert not any(log.end for log in left), f"{topic} was deleted"
    for each in promises:
        if each.kind not in ("stored", "visible") or each.topic in deleted:
            continue
        log = logs.get((each.topic, each.partition), _Log(0, b"", 0))
        if is_to_be_deleted(each.topic) and not log.end:
            continue  # a delete that had begun may have been carried out
        assert each.end <= log.good_end, f"{each.kind} to {each.end}, good to {log.good_end}"
        if each.kind == "stored" and each.start >= log.start:
            found = log.data[each.start - log.start : each.end - log.start]
            assert found == each.data, f"not what was acknowledged at {each.start}"


def _on_another_start(folder: Path) -> None:
    """Let the state be of another start of the machine, as it would be."""
    for path in folder.glob("*/sources.positions"):
        data = path.read_bytes()
        if data.startswith(HEADER):
            records = [*parse_records(data)]
            valid = records[-1][1] if records else len(HEADER)
            changed = [
                each._replace(boot_id="0" * 36) if isinstance(each, Opened) else each
                for each, _ in records
            ]
            path.write_bytes(HEADER + b"".join(map(encode_record, changed)) + data[valid:])


def _check_copies(
    port: int, mirrors: list[MirrorClient], promises: list[Promise], logs: _Logs
) -> None:
    with MirroredPartitions("127.0.0.1", port) as target:
        for mirror in mirrors:
            promised = [each.end for each in promises if each.data == mirror.name.encode()]
            log = logs.get((COPIED, mirror.partition), _Log(0, b"", 0))
            mine = _copied(mirror, log)
            told = target.positions(COPIED, mirror.partition) if log.end else []
            position = told[0].positions.get(mirror.name, 0) if told else 0
            assert position >= max(promised, default=0), f"{mirror.name} is back at {position}"
            expected = mirror.kept(0, position // COPIED_BYTES)
            if log.start:
                expected = expected[len(expected) - len(mine) :]
            assert mine == expected, f"{mirror.name}: twice, missing, or out of order"
            (outcome,) = target.send([mirror.batch(position, 4)])
            assert outcome.error is None, outcome
            assert outcome.offset is not None


def _copied(mirror: MirrorClient, log: _Log) -> list[int]:
    """The numbers of a source's messages that a partition has."""
    payloads = (data[10:] for _, data in _valid_messages(log.data, 0))
    name = mirror.name.encode() + b":"
    return [int(each.split(b":")[1]) for each in payloads if each.startswith(name)]


def _check_that_it_goes_on(client: RawClient, logs: _Logs) -> None:
    data = message(b"after the loss")
    for partition in range(PARTITIONS):
        end = logs[TOPIC, partition].end
        answer = client.call(produce_acknowledged((TOPIC, partition, data)))
        *_, error, offset = struct.unpack_from(">ihhihq", answer)
        assert (error, offset) == (0, end)
        assert client.call(fetch(TOPIC, partition, offset))[6:] == data


def _check_files(folder: Path, logs: _Logs) -> None:
    """What `check-log` finds is about what was never confirmed, or no message at all."""
    limits = Limits(1 << 20, 1 << 20)
    for finding in DirectoryCheck(folder, limits, pause=lambda: None).run():
        assert "recovery drops them" not in finding.text, f"it has not: {finding}"
        if finding.kind == "problem":
            topic, _, partition = Path(finding.path).parent.name.rpartition("-")
            log = logs[topic, int(partition)]
            assert finding.offset is not None, finding
            assert finding.offset + _LONGEST > log.good_end, finding


def _read(client: RawClient, topic: str, partition: int) -> tuple[int, bytes]:
    """The offset at which a partition starts, and all that it serves."""
    name = topic.encode()
    ask = struct.pack(f">hh{len(name)}siqi", 4, len(name), name, partition, -2, 1)
    (start,) = struct.unpack_from(">q", client.call(frame(ask)), 10)
    data = bytearray()
    while True:
        answer = client.call(fetch(topic, partition, start + len(data)))
        assert answer[4:6] == b"\0\0", answer[:6]
        if len(answer) == 6:
            return start, bytes(data)
        data += answer[6:]  # up to the size that was asked for, whole or not


def _valid_messages(data: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """The messages of a log from a position on, with their positions; damaged ones are skipped."""
    position = start
    while position < len(data):
        found = find_valid_message(data, position, max_message_bytes=_LONGEST)
        if found is None:
            return
        (size,) = struct.unpack_from(">i", data, found)
        yield found, data[found : found + 4 + size]
        position = found + 4 + size


def answered(sent: list[tuple[int, bytes]]) -> Iterator[int]:
    """The moments at which one answer after the other was given whole."""
    pending = bytearray()
    for moment, data in sent:
        pending += data
        while len(pending) >= 4:
            (size,) = struct.unpack_from(">i", pending)
            if len(pending) < 4 + size:
                break
            del pending[: 4 + size]
            yield moment


def _partitions(trace: Trace) -> list[tuple[str, Node]]:
    named = [item for change in trace.root.changes for item in change.names.items()]
    return [(name, node) for name, node in named if node is not None and node.is_directory]


def _written(node: Node) -> bytes:
    """All that was ever written to a partition's segments, by its offset."""
    files = {
        file: _base(name)
        for change in node.changes
        for name, file in change.names.items()
        if file is not None and _is_segment(name)
    }
    written = bytearray()
    for file, base in files.items():
        for change in file.changes:
            assert change.data is not None, "a segment was cut short"
            start, end = base + change.position, base + change.position + len(change.data)
            written.extend(bytes(max(0, end - len(written))))
            written[start:end] = change.data
    return bytes(written)


def _is_segment(name: str) -> bool:
    return re.fullmatch(r"\d{20}\.(kafka|unflushed)", name) is not None


def _is_unlinked(names: dict[str, Node | None]) -> bool:
    return not any(names.values())


def _base(name: str) -> int:
    return int(name[:20])


def _common_length(one: bytes, other: bytes) -> int:
    """How many bytes two strings have in common at their start."""
    if one == other:
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))
