"""`hermes doctor` on set-ups that are good, and on such as have one thing wrong each."""

import fcntl
import json
import os
import re
import socket
import time
from datetime import timedelta

import pytest
import yaml
from certificates import Authority

from hermes.cli import diagnosis
from hermes.cli.options import BrokerOption
from hermes.config.listeners import ListenerConfig
from hermes.coordination.kafka_groups import group_node_path
from hermes.coordination.sessions import Session
from hermes.protocol import encode_message_set
from hermes.storage import FileLayer
from hermes.storage.lock import DirectoryLock
from hermes.testing import running_broker


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@pytest.fixture
def doctor(run, tmp_path, make_segment, port):
    """Runs it on a set-up with other settings: (exit code, the problems and notices by area)."""
    make_segment(encode_message_set([b"abc"]))
    (tmp_path / "data" / ".kafka_cleanshutdown").touch()

    def look(*arguments, with_disk=False, **settings):
        config = {
            "broker_id": 3,
            "log_dir": str(tmp_path / "data"),
            "listen": f"tcp:{port}:interface=127.0.0.1",
            "coordination": "none",
            "segment_bytes": "1MB",
            **settings,
        }
        path = tmp_path / "broker.yaml"
        path.write_text(yaml.safe_dump(config))
        environment = {"HERMES_BROKER": None, "HERMES_ZOOKEEPER": None}
        options = ["--json", "--timeout", "0.1", *arguments]
        result = run("doctor", path, *options, env=environment)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        # What this machine allows, and whether the core is compiled, is not what is tried here.
        others = ("limits", "versions", *(() if with_disk else ("disk",)))
        concerns = [each for each in found if each["level"] != "ok" and each["area"] not in others]
        problems = [each for each in concerns if each["level"] == "problem"]
        assert result.exit_code == (1 if problems else 0), result.output
        assert result.stderr.count("\n") == (1 if problems else 0)
        return {f"{each['level']} {each['area']}": each["text"] for each in concerns}

    return look


def test_nothing_is_wrong(doctor, run, tmp_path):
    assert doctor() == {}
    shown = run("doctor", tmp_path / "broker.yaml", "--timeout", "0.1").stdout
    assert "ok      versions      hermes " in shown
    assert "1 partitions, used by no broker" in shown


def test_nothing_to_look_at(run):
    nowhere = {"HERMES_BROKER": None, "HERMES_ZOOKEEPER": None}
    result = run("doctor", "--json", env=nowhere)
    assert result.exit_code == 2
    assert "no broker was looked at: give its BROKER.YAML, or -b, or -Z" in result.stderr
    areas = [json.loads(line)["area"] for line in result.stdout.splitlines()]
    assert {*areas} == {"versions", "clock"}, "what can be looked at is"


def test_groups_are_those_of_now(run, tmp_path, port):
    """While a broker runs its server tells them: its file is locked, and the snapshot is older."""
    settings = {
        "broker_id": 3,
        "listen": "tcp:0:interface=127.0.0.1",
        "coordination": "embedded",
        "coordination_listen": f"tcp:{port}:interface=127.0.0.1",
    }
    path = tmp_path / "broker.yaml"
    path.write_text(yaml.safe_dump({"log_dir": str(tmp_path / "data"), **settings}))
    with running_broker(tmp_path / "data", settings):
        pass  # its stop takes a snapshot
    with running_broker(tmp_path / "data", settings):
        session = Session(f"127.0.0.1:{port}")
        session.start()
        for group in ("/consumers/g", group_node_path("h"), group_node_path("i")):
            session.ensure_path(group)
        session.stop()
        text = texts_of(run("doctor", path, "--json"), "coordination")
    assert re.search(r"snapshot: \d+ nodes, 0 groups, as they were at 20..-..-..T", text), text
    assert re.search(r"has the brokers 3 at .*, and 3 groups", text), text
    text = texts_of(run("doctor", path, "--json"), "coordination")
    assert ".hermes_coordination: " in text, text
    assert text.count("3 groups") == 2, "the file, and the snapshot of the stop"


def texts_of(result, area):
    found = [json.loads(line) for line in result.stdout.splitlines()]
    return "\n".join(each["text"] for each in found if each["area"] == area)


def test_packages_that_are_too_old(run, installed):
    installed("twisted", "22.10.0")
    text = texts_of(run("doctor", "--json"), "versions")
    assert "Twisted 22.10.0 is installed, Hermes needs Twisted>=" in text


def test_the_configuration(doctor, tmp_path):
    (text,) = doctor(segment_bites="1").values()
    assert text.endswith("broker.yaml: segment_bites: unknown setting, did you mean segment_bytes?")
    assert "problem configuration" in doctor(retention_policy="none-such")


def test_the_data_directory(doctor, tmp_path):
    data = tmp_path / "data"
    (data / "notes").mkdir()
    assert doctor() == {"notice data": f"{data / 'notes'} is none of Hermes': left alone"}
    (data / "notes").rmdir()
    (data / ".kafka_cleanshutdown").unlink()
    assert "the next start recovers" in doctor()["notice data"]
    (data / ".hermes_restoring").touch()
    assert "a restore that was not finished" in doctor()["problem data"]
    (data / ".hermes_restoring").unlink()
    later = time.time() + 3600
    (segment,) = (data / "clicks-0").iterdir()
    os.utime(segment, (later, later))
    assert "in the future: was the clock set back?" in doctor()["problem clock"]


def test_the_file_of_coordination(doctor, tmp_path):
    (tmp_path / "data" / ".hermes_coordination").write_bytes(b"nonsense")
    found = doctor(coordination="embedded", coordination_listen="tcp:0:interface=127.0.0.1")
    assert "can't be used" in found["problem coordination"]


def test_files_of_somebody_else(tmp_path, monkeypatch):
    (tmp_path / "clicks-0").mkdir()
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    (found,) = diagnosis._check_access([tmp_path / "clicks-0", tmp_path / "clicks-1"])
    assert found.level == "problem"
    assert "clicks-0 can't be read and written by this user, and 1 others" in found.text


def test_ports(doctor, port):
    with socket.create_server(("127.0.0.1", port)):
        text = doctor()["problem ports"]
    assert text == f"listen: port {port}: another process uses it: stop that one, or choose " + (
        "another port"
    )
    elsewhere = f"tcp:{port}:interface=192.0.2.1"
    text = doctor(http_listen=elsewhere, allow_insecure=True)["problem ports"]
    assert "this machine has no such address" in text


def test_a_broker_that_runs_and_does_not_answer(doctor, port, tmp_path):
    lock = DirectoryLock(str(tmp_path / "data"), FileLayer())
    assert "is the broker running there?" in doctor()["problem broker"]
    with socket.create_server(("127.0.0.1", port)):
        began = time.monotonic()
        assert "problem broker" in doctor()
        assert time.monotonic() - began < 20
    lock.release()


def test_coordination(doctor, port):
    found = doctor(coordination="zookeeper", zookeeper_connect=f"127.0.0.1:{port}")
    assert "is it running, and that its address?" in found["problem coordination"]


def test_the_disk(doctor, tmp_path, monkeypatch):
    real = os.statvfs(tmp_path)

    def pretend(**others):
        names = ["f_bsize", "f_frsize", "f_blocks", "f_bfree", "f_bavail", "f_files", "f_ffree"]
        names += ["f_favail", "f_flag", "f_namemax"]
        changed = {**dict(zip(names, real, strict=False)), **others}
        monkeypatch.setattr(
            os, "statvfs", lambda path: os.statvfs_result([changed[name] for name in names])
        )

    pretend(f_frsize=1, f_blocks=10**9, f_bavail=1000)
    assert "less than one segment" in doctor(with_disk=True)["problem disk"]
    pretend(f_frsize=4096, f_blocks=10**9, f_bavail=10**6)
    assert "make room before it is full" in doctor(with_disk=True)["notice disk"]
    pretend(f_files=10**6, f_favail=3)
    assert "3 more files can be made" in doctor(with_disk=True)["problem disk"]
    pretend(f_flag=os.ST_RDONLY)
    assert "is mounted read-only" in doctor(with_disk=True)["problem disk"]


def test_limits(monkeypatch, doctor):
    monkeypatch.setattr(diagnosis.resource, "getrlimit", lambda which: (100, 100))
    config = diagnosis.BrokerConfig(broker_id=1, log_dir=diagnosis.Path("x"))
    few, small = diagnosis.check_limits(config)
    assert (few.level, small.level) == ("notice", "problem")
    assert "a process may have 100 descriptors" in few.text
    assert "less than segment_bytes" in small.text


def test_a_clock_that_was_never_set():
    assert next(diagnosis.check_clock(1000.0)).level == "problem"


@pytest.mark.parametrize(
    ("endpoint", "place"),
    [
        ("tcp:9092", ("", 9092)),
        ("tcp:port=9092:interface=127.0.0.1", ("127.0.0.1", 9092)),
        (r"tcp6:9092:interface=\:\:1", ("::1", 9092)),
        ("unix:/tmp/socket", None),
        ("tcp:nonsense", None),
    ],
)
def test_where_an_endpoint_listens(endpoint, place):
    expected = None if place is None else BrokerOption(*place)
    assert diagnosis.tcp_place(ListenerConfig(endpoint)) == expected


def test_completion(run):
    for shell in ("bash", "zsh", "fish"):
        result = run("completion", shell)
        assert result.exit_code == 0
        assert "_HERMES_COMPLETE" in result.stdout
    assert run("completion", "tcsh").exit_code == 2
    completed = run(
        env={"_HERMES_COMPLETE": "bash_complete", "COMP_WORDS": "hermes bac", "COMP_CWORD": "1"}
    )
    assert completed.stdout == "plain,backup\n"


def secured(pair, port=0, **more):
    tls = {"certificate": str(pair.certificate), "key": str(pair.key)}
    return {"endpoint": f"tcp:{port}:interface=127.0.0.1", "tls": tls, **more}


def test_what_is_open_to_everybody(doctor):
    text = doctor(listen="tcp:0", allow_insecure=True)["notice security"]
    assert text.startswith("listen: tcp:0 can be reached from other machines, and whoever reaches")
    assert doctor(listen="tcp:0")["problem configuration"].endswith("or set allow_insecure: true")


def test_certificates_that_end(doctor, certificates, tmp_path):
    assert doctor(listen=secured(certificates.server)) == {}
    ended = doctor(listen=secured(certificates.expired_server))["problem security"]
    assert re.fullmatch(r"listen tcp:0.*: its certificate ends on .*: renew it", ended)
    pair = Authority(tmp_path, "soon").server(end=timedelta(days=13))
    assert "no restart is needed" in doctor(http_listen=secured(pair))["notice security"]


def test_certificates_for_other_names(doctor, run, certificates, tmp_path):
    pair = Authority(tmp_path, "named").server(hosts=["kafka1.example.org", "10.0.0.1"])
    for host in ("kafka1.example.org:9094", "10.0.0.1", "KAFKA1.example.org"):
        assert doctor(listen=secured(pair, advertised=host)) == {}
    path = tmp_path / "broker.yaml"
    for host in ("kafka2.example.org", "10.0.0.2:9094", "example.org"):
        text = doctor(listen=secured(pair, advertised=host))["problem security"]
        assert f"its certificate is not for {host.partition(':')[0]}, where clients" in text
        checked = run("config", "check", path)
        assert (checked.exit_code, checked.stderr) == (0, f"hermes: {text}\n")
    assert "problem security" in doctor(listen=secured(pair), advertised_host="localhost")


def test_certificates_that_can_not_be_used(doctor, run, certificates, tmp_path):
    other = Authority(tmp_path, "other").server()
    pair = type(other)(certificates.server.certificate, other.key)
    text = doctor(listen=secured(pair))["problem configuration"]
    assert text.startswith("listen: tls.key: ")
    path = tmp_path / "broker.yaml"
    result = run("config", "check", path)
    assert (result.exit_code, result.stderr) == (1, f"hermes: {path}: {text}\n")
    gone = type(other)(tmp_path / "gone.pem", other.key)
    assert (
        "gone.pem"
        in doctor(coordination_listen=secured(gone), coordination="embedded")[
            "problem configuration"
        ]
    )


def test_a_broker_behind_tls_and_passwords(doctor, run, port, certificates, tmp_path):
    """It is asked as whoever the options say; without them, whether its port is open."""
    users = tmp_path / "users"
    password = tmp_path / "password"
    password.write_text("correct horse battery staple\n")
    added = run("users", "add", "alice", "--file", users, "--password-file", password)
    assert added.exit_code == 0, added.stderr
    settings = {
        "broker_id": 3,
        "listen": secured(certificates.server, port, authentication="scram"),
        "users_file": str(users),
        "coordination": "none",
    }
    path = tmp_path / "broker.yaml"
    with running_broker(tmp_path / "data", settings):
        path.write_text(yaml.safe_dump({"log_dir": str(tmp_path / "data"), **settings}))
        asked = run("doctor", path, "--json")
        assert asked.exit_code == 0, asked.output
        texts = [json.loads(line)["text"] for line in asked.stdout.splitlines()]
        assert f"listen: port {port} is open" in texts
        asked_for = f"127.0.0.1:{port} was not asked: give --tls-ca and --user to look further"
        assert asked_for in texts
        proof = ["--tls-ca", certificates.ca, "--user", "alice", "--password-file", password]
        asked = run("doctor", path, "--json", *proof)
        assert asked.exit_code == 0, asked.output
        assert f"127.0.0.1:{port} is broker 3" in asked.stdout


def test_a_file_that_goes_meanwhile_is_not_refused(doctor, tmp_path, monkeypatch):
    (tmp_path / "data" / "clicks-0" / "00000000000000000003.unflushed").touch()
    access = os.access

    def flushed_meanwhile(path, mode):
        if str(path).endswith(".unflushed"):
            os.rename(path, os.path.splitext(path)[0] + ".kafka")
        return access(path, mode)

    monkeypatch.setattr(os, "access", flushed_meanwhile)
    assert doctor() == {}


def test_who_looks_at_the_same_time_is_no_broker(tmp_path):
    lock = tmp_path / ".hermes_lock"
    lock.write_text("4711\n")
    with lock.open() as file:
        other = diagnosis.holder_of(tmp_path)
        fcntl.flock(file, fcntl.LOCK_SH)  # as the look of the other one
        assert (other, diagnosis.holder_of(tmp_path)) == (None, None)
