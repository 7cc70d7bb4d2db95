"""`hermes backup` and `hermes restore` without a broker that could be asked."""

import json
import os
import time

import pytest

from hermes.coordination.embedded.jute_records import OPEN_ACL
from hermes.coordination.embedded.snapshots import condition_of
from hermes.coordination.embedded.store import FILE_NAME, CoordinationStore
from hermes.coordination.embedded.tree_changes import NodeWritten
from hermes.protocol import encode_message_set
from hermes.storage import FileLayer
from hermes.storage.lock import DirectoryLock


@pytest.fixture
def data(tmp_path, make_segment):
    """A data directory with one message and the nodes of two groups."""
    make_segment(encode_message_set([b"abc"]))
    store = CoordinationStore(tmp_path / "data" / FILE_NAME)
    store.open()
    paths = ("/consumers", "/consumers/a", "/consumers/b")
    store.write([NodeWritten(path, b"", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0) for path in paths], 1)
    store.snapshot(time.time_ns() // 1_000_000)
    store.write([NodeWritten("/later", b"", OPEN_ACL, 1, 1, 1, 0, 0, 0, 0, 0, 0)], 2)
    store.close()
    return tmp_path / "data"


def test_a_stopped_broker_and_what_is_shown(run, data, tmp_path):
    result = run("backup", "create", data, tmp_path / "backups")
    assert result.exit_code == 0, result.output
    assert ": 1 partitions, " in result.stdout
    (row,) = map(
        json.loads, run("backup", "list", tmp_path / "backups", "--json").stdout.split("\n")[:-1]
    )
    assert (row["partitions"], row["was_running"], row["source"]) == (1, False, str(data))
    table = run("backup", "list", tmp_path / "backups").stdout.splitlines()
    assert table[0].split() == ["NAME", "TAKEN", "PARTITIONS", "SIZE", "FAULTS", "DAMAGED"]
    assert table[1].startswith(row["name"])
    verified = run("backup", "verify", tmp_path / "backups")
    assert verified.stdout.endswith(" files are as they were written\n")
    assert run("restore", tmp_path / "backups", tmp_path / "restored").exit_code == 0
    assert condition_of(tmp_path / "restored" / FILE_NAME).nodes == 4
    assert run("check-log", tmp_path / "restored").exit_code == 0


def test_damage_is_named_and_has_an_exit_code_of_its_own(run, make_segment, tmp_path):
    sound = encode_message_set([b"abc"])
    make_segment(sound + sound[:-1] + b"?" + sound)
    data, backups = tmp_path / "data", tmp_path / "backups"
    name, start = f"clicks-0/{0:020}.kafka", len(sound)
    told = f"{name}: damaged at offsets {start} to {2 * start}\n"
    for _ in range(2):  # the second one links it
        result = run("backup", "create", data, backups, "--json")
        assert (result.exit_code, result.stderr) == (3, f"hermes: {told}")
        damaged = [{"path": f"data/{name}", "start": start, "end": 2 * start}]
        assert json.loads(result.stdout)["damaged"] == damaged
    assert run("backup", "list", backups).stdout.splitlines()[1].split()[-2:] == ["0", "1"]
    assert run("backup", "verify", backups).exit_code == 0
    restored = run("restore", backups, tmp_path / "restored")
    assert (restored.exit_code, restored.stderr) == (0, f"hermes: as it was backed up, {told}")
    assert (tmp_path / "restored" / name).read_bytes() == (data / name).read_bytes()


def test_an_incomplete_backup_takes_the_place_of_no_other(run, make_segment, tmp_path):
    first = encode_message_set([b"abc"])
    whole = make_segment(first)
    make_segment(encode_message_set([b"def"]), base=len(first))
    create = ("backup", "create", tmp_path / "data", tmp_path / "backups", "--keep", 1, "--json")
    names = [json.loads(run(*create).stdout)["name"] for _ in range(2)]
    assert os.listdir(tmp_path / "backups" / names[1] / "data") == ["clicks-0"]
    assert not (tmp_path / "backups" / names[0]).exists()
    whole.write_bytes(first[:-1])
    result = run(*create)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["deleted"] == []
    assert "it lacks something, so older backups are kept\n" in result.stderr
    assert run("backup", "verify", tmp_path / "backups", names[1]).exit_code == 0


def test_a_restore_says_what_the_backup_lacks(run, make_segment, tmp_path):
    first = encode_message_set([b"abc"])
    make_segment(first[:-1])
    make_segment(first, base=len(first))
    taken = run("backup", "create", tmp_path / "data", tmp_path / "backups", "--json")
    faults = json.loads(taken.stdout)["faults"]
    assert taken.exit_code == 1
    restored = run("restore", tmp_path / "backups", tmp_path / "restored", "--json")
    assert restored.exit_code == 0
    assert restored.stderr.startswith(
        "".join(f"hermes: when it was backed up: {x}\n" for x in faults)
    )
    assert json.loads(restored.stdout)["faults"] == faults


def test_a_damaged_manifest_hides_no_other_backup(run, make_segment, tmp_path):
    make_segment(encode_message_set([b"abc"]))
    create = ("backup", "create", tmp_path / "data", tmp_path / "backups", "--json")
    names = [json.loads(run(*create).stdout)["name"] for _ in range(3)]
    (tmp_path / "backups" / names[1] / "manifest.json").write_bytes(b"?")
    listed = run("backup", "list", tmp_path / "backups", "--json")
    shown = [json.loads(line)["name"] for line in listed.stdout.splitlines()]
    assert (listed.exit_code, shown) == (1, [names[0], names[2]])
    assert f"{names[1]}/manifest.json can't be used: it is damaged" in listed.stderr


def test_of_a_running_broker_the_snapshot_of_coordination_is_restored(run, data, tmp_path):
    for path in (data / "clicks-0").iterdir():  # whoever could be asked about topics isn't there
        path.unlink()
    (data / "clicks-0").rmdir()
    lock = DirectoryLock(str(data), FileLayer())
    result = run("backup", "create", data, tmp_path / "backups", "-b", "127.0.0.1:1")
    lock.release()
    assert result.exit_code == 0, result.output
    restored = run("restore", tmp_path / "backups", tmp_path / "restored", "--json")
    assert json.loads(restored.stdout)["partitions"] == []
    assert condition_of(tmp_path / "restored" / FILE_NAME)[:2] == (3, 2)


def test_what_can_not_be_is_one_line(run, data, tmp_path):
    backups = tmp_path / "backups"
    lock = DirectoryLock(str(data), FileLayer())
    for arguments, text in [
        (["backup", "create", data, backups], "name that broker with -b HOST:PORT, so"),
        (["backup", "create", data, backups, "-b", "127.0.0.1:1"], "127.0.0.1:1"),
        (["backup", "list", data], "there is no whole backup"),
        (["backup", "verify", data], "there is no whole backup"),
        (["restore", data, tmp_path / "x"], "there is no whole backup"),
        (["restore", data, tmp_path / "x", "--from", "x"], "'x' is not a backup's name"),
    ]:
        result = run(*arguments, env={"HERMES_BROKER": None})
        if arguments[1] == "list":
            assert (result.exit_code, result.stdout.count("\n")) == (0, 1)
            continue
        assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1)
        assert text in result.stderr
    lock.release()


def test_damage_is_exit_status_1(run, data, tmp_path):
    run("backup", "create", data, tmp_path / "backups")
    (victim,) = (tmp_path / "backups").rglob("*.kafka")
    victim.write_bytes(b"x" * victim.stat().st_size)
    result = run("backup", "verify", tmp_path / "backups")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == f"hermes: {victim} is damaged: its checksum is wrong\n"
    assert run("restore", tmp_path / "backups", tmp_path / "restored").exit_code == 1
