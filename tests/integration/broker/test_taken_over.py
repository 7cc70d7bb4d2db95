"""A broker takes over what an older version has left, and leaves what that version can read.

The data directory, with embedded coordination, is that of `written_data_directory`.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest
from confluent_kafka.admin import AdminClient
from hermes_testkit import BrokerProcess
from written_data_directory import (
    COMMITTED,
    DELETED_TOPIC,
    NEW_TOPIC,
    OLD_OFFSETS,
    OLD_TOPIC,
    SEGMENT_BYTES,
    WRITTEN,
    append_by_hermes,
    append_by_kafka,
    committed,
    ready,
    settings,
    values_by_hermes,
    values_by_kafka,
)

from hermes import SimpleConsumer
from hermes.protocol import Codec

PACKED: Final = Path(__file__).parents[2] / "vectors" / "data-directory-e9be819.tar.gz"
HERMES: Final = str(Path(sys.executable).with_name("hermes"))

ADDED: Final = [b"by a later version, message %d" % number for number in range(12)]

#: What is not only appended to, by pattern.
REWRITTEN: Final = {
    r"\.hermes_coordination(\.snapshot)?": "a SQLite database, and the copy made at a stop",
    r"\.hermes_lock": "the id of the process",
    r"new-\d/\d{20}\.timeindex": "Kafka's: an append replaces the entry that a clean stop has made",
    r"\.hermes_producer_ids": "the next producer id, which goes up",
}

#: What goes away, by pattern.
REMOVED: Final = {
    r"new-\d/\d{20}\.snapshot": "the last two of idempotent producers are kept",
}

#: The names that the older version gives to files, by pattern.
KNOWN: Final = (
    r"(old|new)-\d/\d{20}\.(kafka|log|index|timeindex|appends|snapshot)",
    r"new-\d/(leader-epoch-checkpoint|partition\.metadata)",
    r"\.hermes_(coordination|coordination\.snapshot|lock|producer_ids|topics)",
    r"\.kafka_cleanshutdown",
)

#: What was added to a data directory since, by pattern: the older version doesn't read it.
SINCE: Final = {
    r"\.hermes_broker": "whose the directory is",
    r"\.hermes_requested": "ACLs and quotas of the cluster, for a start without coordination",
    r"\.hermes_producer_ids\.copy": "with a CRC-32, which the file itself lacks",
    r"new-\d/partition\.hermes": "a copy of Kafka's small files, with a CRC-32",
}


def values(broker: BrokerProcess, bootstrap: str) -> dict[str, list[bytes | None]]:
    """What clients of both kinds read of both topics."""
    found = {}
    for topic in (OLD_TOPIC, NEW_TOPIC):
        for partition in WRITTEN:
            where = f"{topic}-{partition}"
            found[f"{where} by hermes"] = values_by_hermes(broker.port, topic, partition)
            found[f"{where} by kafka"] = values_by_kafka(bootstrap, topic, partition)
    return found


def files(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def matches(name: str, patterns: Iterable[str]) -> bool:
    return any(re.fullmatch(each, name) for each in patterns)


class Life:
    """What a broker of today found in the directory, what it read later, and the files by then."""

    def __init__(self, directory: Path) -> None:
        subprocess.run(["tar", "-x", "-C", directory, "-f", PACKED], check=True)
        self.data = directory / "data"
        self.files_before = files(self.data)
        broker = BrokerProcess(directory / "broker", settings(directory))
        try:
            bootstrap, zookeeper = ready(directory)
            self.found = values(broker, bootstrap)
            self.topics = set(AdminClient({"bootstrap.servers": bootstrap}).list_topics().topics)
            with SimpleConsumer("127.0.0.1", broker.port) as consumer:
                told = consumer.describe_settings(OLD_TOPIC)
            self.settings = {each.name: (each.value, each.origin) for each in told}
            self.committed = committed(bootstrap)
            exported = [HERMES, "export-offsets", "-Z", zookeeper]
            self.exported = subprocess.check_output(exported, text=True)
            for partition in WRITTEN:
                append_by_hermes(broker.port, partition, ADDED, Codec.NONE)
                append_by_kafka(bootstrap, NEW_TOPIC, partition, ADDED, enable_idempotence=True)
            self.found_after_appends = values(broker, bootstrap)
        finally:
            self.status = broker.stop()
        self.lines = broker.lines
        self.files_after = files(self.data)


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("taken-over"))


def test_every_message_is_read_by_both_kinds_of_clients(life: Life) -> None:
    assert life.found == {
        f"{topic}-{partition} by {kind}": payloads
        for topic in (OLD_TOPIC, NEW_TOPIC)
        for partition, payloads in WRITTEN.items()
        for kind in ("hermes", "kafka")
    }


def test_what_is_appended_follows(life: Life) -> None:
    assert life.found_after_appends == {
        name: [*before, *ADDED] for name, before in life.found.items()
    }


def test_both_groups_go_on_where_they_were(life: Life) -> None:
    assert life.committed == COMMITTED
    assert sorted(life.exported.splitlines()) == sorted(OLD_OFFSETS.splitlines())


def test_settings_and_topics_are_as_they_were(life: Life) -> None:
    assert life.settings["segment_bytes"] == (SEGMENT_BYTES, "altered")
    assert {OLD_TOPIC, NEW_TOPIC} <= life.topics
    assert DELETED_TOPIC not in life.topics
    assert not any(name.startswith(DELETED_TOPIC) for name in life.files_after)


def test_it_stops_well_and_nothing_is_damaged(life: Life) -> None:
    assert life.status == 0, life.lines
    checked = subprocess.run([HERMES, "check-log", life.data], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_older_files_are_only_appended_to(life: Life) -> None:
    gone = life.files_before.keys() - life.files_after.keys()
    assert not [name for name in gone if not matches(name, REMOVED)]
    changed = {
        name
        for name, before in life.files_before.items()
        if name not in gone and not life.files_after[name].startswith(before)
    }
    assert not [name for name in changed if not matches(name, REWRITTEN)]


def test_new_files_are_of_known_kinds(life: Life) -> None:
    known = (*KNOWN, *SINCE)
    assert not [name for name in life.files_after if not matches(name, known)]
    assert not [name for name in life.files_before if not matches(name, KNOWN)]
