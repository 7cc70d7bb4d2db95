"""A stopped broker's data directory, one bit of which is wrong: what is served then, and said.

Nothing may be served that was not stored, and whatever isn't served as before is said: at the
start, or by the checksum that a consumer finds wrong.
"""

import random
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from kafka_logs import append_batch, record, sent
from storage_fakes import UnsyncedFiles
from storage_logs import NOW_MS, append, message, settings

from hermes.errors import CorruptBatchError, InvalidMessageError, StorageError
from hermes.groups.offset_file import OffsetFile
from hermes.groups.offsets import Change, Committed, TopicPartition
from hermes.protocol.messages import decode_message
from hermes.protocol.record_batches import HEADER_BYTES, decode_header, is_intact
from hermes.protocol.records import encode_batch, iterate_records
from hermes.storage import DataDirectory, Log, LogSettings
from hermes.storage.compaction import CompactionReport, compaction
from hermes.storage.producer_ids import read_producer_ids

__all__ = [
    "KINDS",
    "Seen",
    "differences",
    "flips",
    "kinds_of",
    "look",
    "look_at_copy",
    "make_directory",
]

#: The kinds of files, and what a wrong bit in one comes to: it is `mended` from another file, it
#: concerns `messages`, whose readers find it, it is `refused`, or at least said, or it costs `time`
#: and nothing else.
KINDS = {
    ".hermes_broker": "mended",
    ".hermes_cluster_id": "mended",
    ".hermes_cluster_id.copy": "mended",
    ".hermes_producer_ids": "refused",
    ".hermes_producer_ids.copy": "mended",
    ".hermes_topics": "refused",
    ".hermes_kafka_groups": "refused",
    "log-start-offset-checkpoint": "mended",
    "partition.metadata": "mended",
    "leader-epoch-checkpoint": "mended",
    "partition.hermes": "mended",
    "*.log": "messages",
    "*.index": "time",
    "*.timeindex": "time",
    "*.appends": "time",
    "*.snapshot": "time",
    "old *.kafka": "messages",
    "old *.timeindex": "time",
}

GROUPS_NAME = ".hermes_kafka_groups"
CLUSTER_ID = "0f8fad5b-d9cb-469f-a165-70867728950e"


class Seen(NamedTuple):
    """What a start of a broker on a data directory comes to.

    Attributes:
        state: what is served, by what it is.
        said: what was said of damage, at the start or by what reads.
    """

    state: dict[str, object]
    said: list[str]


def _settings_of(topic: str) -> LogSettings:
    return settings(6000, format="0.7" if topic == "old" else "kafka")


def make_directory(path: Path) -> None:
    """Make a data directory with each kind of file, of a broker that was stopped."""
    directory = DataDirectory(path, _settings_of, UnsyncedFiles())
    directory.open(NOW_MS, broker_id=3)
    logs = {topic: directory.create(topic, 0) for topic in ("k", "compacted", "old")}
    for number in range(200):
        now_ms = NOW_MS + number
        producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        batch = encode_batch([record(b"%d:" % number + b"v" * 99)], **producer)
        append_batch(logs["k"], batch, now_ms)
        assert logs["k"].producers is not None
        logs["k"].producers.note((decode_header(batch),), number, NOW_MS)
        some = [record(b"%d:" % number + b"c" * 99, key=b"%d" % (number % 3))]
        append_batch(logs["compacted"], sent(some), now_ms)
        append(logs["old"], message(b"%d:" % number + b"o" * 99), now_ms=now_ms)
        for log in logs.values():
            log.flush()
    logs["k"].delete_records(17)
    for _ in compaction(logs["compacted"], 0, NOW_MS, 0, CompactionReport()):
        pass
    directory.claim_producer_ids(1000)
    directory.cluster_id(lambda: CLUSTER_ID)
    directory.write_entries({"k": {"retention_time": "30d"}})
    groups = OffsetFile(str(path / GROUPS_NAME), UnsyncedFiles(), print)
    for group in ("g1", "g2"):
        groups.load(group)
        offsets: dict[TopicPartition, Committed | None] = {
            TopicPartition("k", 0): Committed(23, -1, "", NOW_MS, -1, logs["k"].topic_id)
        }
        assert groups.write([Change(group, offsets=offsets)]) == [None]
    groups.close()
    directory.keep_owner()
    assert directory.close()


def kinds_of(path: Path) -> dict[str, list[Path]]:
    """The files that aren't empty, relative to the directory, by their kind."""
    kinds: dict[str, list[Path]] = {}
    for each in sorted(path.rglob("*")):
        relative = each.relative_to(path)
        if not each.is_file() or not each.stat().st_size or relative.name == ".hermes_lock":
            continue
        name = relative.name
        is_numbered = name[:20].isdecimal()
        of_old = "old " if relative.parts[0] == "old-0" else ""
        kind = of_old + (f"*{relative.suffix}" if is_numbered else name)
        kinds.setdefault(kind, []).append(relative)
    return kinds


def flip(path: Path, chance: random.Random) -> str:
    """Make one bit of a file wrong; says which."""
    data = bytearray(path.read_bytes())
    place, bit = chance.randrange(len(data)), chance.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"bit {bit} of byte {place} of {path}"


def look(path: Path, *, is_clean: bool = True) -> Seen:
    """Start on a data directory, and see what is served; nothing is left open."""
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink()
    state: dict[str, object] = {}
    said: list[str] = []
    directory = DataDirectory(
        path, _settings_of, UnsyncedFiles(), take_entries=lambda found: state.update(topics=found)
    )
    try:
        report = directory.open(NOW_MS, broker_id=3)
    except StorageError as error:
        return Seen({}, [f"no start: {error}"])
    try:
        said += [*report.healed, *report.offline.values(), *report.lost.values(), *report.strange]
        for recovered in report.recovered.values():
            if recovered.dropped_bytes or recovered.bad_ranges:
                said.append(str(recovered))
        for (topic, _), log in directory.logs.items():
            if not log.is_offline:
                state[topic] = (log.topic_id, log.earliest, log.end_offset, log.leader_epoch)
                state[f"{topic}'s messages"] = list(_messages(log, said))
                if log.producers is not None:
                    # Rows are known as far as was read.
                    state[f"{topic}'s producers"] = {
                        producer: each._replace(earlier=())
                        for producer, each in log.producers.states.items()
                    }
        with _Telling(said):
            state["cluster"] = directory.cluster_id(lambda: "another")
        with _Telling(said):
            state["producer ids"] = read_producer_ids(str(path), UnsyncedFiles())
        with _Telling(said):
            groups = OffsetFile(str(path / GROUPS_NAME), UnsyncedFiles(), said.append)
            state["groups"] = {name: groups.load(name) for name in sorted(groups.names())}
            groups.close()
    finally:
        directory.close()
    return Seen(state, said)


class _Telling(suppress):
    """Goes on after what the disk holds can't be used, having noted what is said of it."""

    def __init__(self, said: list[str]) -> None:
        super().__init__(StorageError)
        self._said = said

    def __exit__(self, kind, error, trace):  # type: ignore[no-untyped-def]
        if error is not None:
            self._said.append(str(error))
        return super().__exit__(kind, error, trace)


def _messages(log: Log, said: list[str]) -> Iterator[tuple[int, bytes | None]]:
    """What a consumer gets that checks CRCs, and passes over what is damaged."""
    data = b""
    offset = log.earliest
    for segment in log.state.view.segments:
        with open(segment.path, "rb") as file:
            data = file.read()
        yield from _of_segment(log, segment.base_offset, data, offset, said)


def _of_segment(
    log: Log, base: int, data: bytes, first: int, said: list[str]
) -> Iterator[tuple[int, bytes | None]]:
    if not log.counts_messages:
        position = 0
        while position < len(data):
            end = position + 4 + int.from_bytes(data[position : position + 4])
            try:
                found = decode_message(data[:end], position, end)
            except InvalidMessageError:
                said.append(f"a consumer finds damage at {base + position} of {log.name}")
                return
            yield base + position, bytes(found.payload)
            position = end
        return
    position, following = 0, base
    while position < len(data):
        try:
            header = decode_header(data[position:].ljust(HEADER_BYTES, b"\0"))
        except CorruptBatchError:
            header = None
        batch = b"" if header is None else data[position : position + header.size_bytes]
        if header is None or len(batch) < header.size_bytes or header.base_offset < following:
            said.append(f"a consumer finds damage at byte {position} of segment {base}")
            return
        if not is_intact(batch):
            said.append(f"a consumer finds a wrong CRC at byte {position} of segment {base}")
        else:
            for each in iterate_records(batch, header):
                if first <= each.offset < log.high_watermark:
                    yield each.offset, None if each.value is None else bytes(each.value)
            following = header.next_offset
        position += header.size_bytes


def look_at_copy(base: Path, work: Path, without: Path | None = None) -> Seen:
    """See what is served of a copy, from which a file may be missing, after a clean stop."""
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(base, work)
    if without is not None:
        (work / without).unlink()
    return look(work)


def flips(work: Path, base: Path, kind: str, count: int, seed: int) -> Iterator[tuple[str, Seen]]:
    """Flip bits of files of one kind, one at a time, after clean and other stops.

    Args:
        work: where copies of the directory are made.
        base: the directory.
        kind: one of `kinds_of`.
        count: how many bits.
        seed: chooses them.

    Yields:
        Which bit it was, and what was seen then.
    """
    chance = random.Random(f"{seed} {kind}")
    files = kinds_of(base)[kind]
    for number in range(count):
        shutil.rmtree(work, ignore_errors=True)
        shutil.copytree(base, work)
        which = flip(work / chance.choice(files), chance)
        yield (
            f"{which}, {'stopped' if number % 2 else 'killed'}",
            look(work, is_clean=bool(number % 2)),
        )
    shutil.rmtree(work, ignore_errors=True)


def differences(reference: Seen, seen: Seen) -> list[str]:
    """What isn't served as it was; messages that were never stored are an error of their own."""
    found = []
    for name, was in reference.state.items():
        now = seen.state.get(name)
        if now == was:
            continue
        found.append(name)
        if name.endswith("messages") and isinstance(now, list) and isinstance(was, list):
            foreign = [each for each in now if each not in was]
            assert not foreign, f"{name}: never stored: {foreign[:2]}"
    return found
