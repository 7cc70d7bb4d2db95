import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from hermes.broker import BrokerService
from hermes.client import SimpleConsumer
from hermes.client.admin import ReloadedConfig
from hermes.config.loading import load_broker_config
from hermes.errors import ConfigError
from hermes.protocol import ConfigChange
from hermes.storage import FileLayer
from hermes.storage.lock import DirectoryLock
from hermes.storage.owner import write_owner


@pytest.fixture
def broker_yaml(tmp_path):
    def write(**settings):
        path = tmp_path / "broker.yaml"
        path.write_text(yaml.safe_dump({"broker_id": 3, "log_dir": "logs", **settings}))
        return str(path)

    return write


def test_a_good_file_is_called_good(run, broker_yaml):
    path = broker_yaml(listen="tcp:9093:interface=127.0.0.1")
    result = run("config", "check", path)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == f"{path}: good: broker 3 listens on tcp:9093:interface=127.0.0.1\n"


def test_as_json_it_shows_every_setting(run, broker_yaml, tmp_path):
    path = broker_yaml(segment_bytes="1MiB", topics={"clicks": {"partitions": 4}})
    result = run("config", "check", "--json", path)
    settings = json.loads(result.stdout)
    assert settings["broker_id"] == 3
    assert settings["segment_bytes"] == 1048576
    assert settings["log_dir"] == str(tmp_path / "logs")
    assert settings["topics"]["clicks"]["partitions"] == 4
    assert settings["topics"]["clicks"]["segment_bytes"] == 1048576


MIRROR = {"name": "west", "sources": [{"name": "east", "brokers": "b:1"}]}


def test_a_mirror_is_checked_and_shown(run, broker_yaml):
    result = run("config", "check", "--json", broker_yaml(mirror=MIRROR))
    assert json.loads(result.stdout)["mirror"] == MIRROR
    path = broker_yaml(mirror={**MIRROR, "whitelist": "("})
    result = run("config", "check", path)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"hermes: {path}: mirror: topic filter: '('")


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"mirror": {**MIRROR, "sources": 7}}, "mirror: sources: "),
        ({"mirror": {**MIRROR, "http_listen": "tcp:9092"}}, "mirror.http_listen: "),
        ({"segment_bites": 1}, "segment_bites: unknown setting"),
        ({"num_partitions": "two"}, "num_partitions: "),
        ({"topics": {"clicks": {"partitions": 0}}}, "topics.clicks.partitions: "),
        ({"retention_policy": "by-mood"}, "retention_policy: "),
        ({"topics": {"a": {"retention_policy": "x"}}}, "topics.a.retention_policy: "),
        ({"listen": "pigeon:9092"}, "listen: "),
        ({"listen": ["tcp:9092", "tcp:9092"]}, "listen: "),
        ({"log_levels": {"hermes.broker.flushng": "debug"}}, "log_levels: Hermes has no module"),
        ({"log_levels": {"hermes.tap.a": "debug"}}, "log_levels: Hermes has no module"),
        ({"topics": {"a/b": {}}}, "topics.a/b: "),
        ({"topics": {"..": {}}}, "topics...: "),
        ({"topics": {"../x": {}}}, "topics.../x: "),
        ({"listen": "unix:/nowhere/at/all", "coordination": "none"}, "listen: "),
        ({"listen": "unix:socket"}, "advertised_port: "),
        ({"coordination_listen": "pigeon:9"}, "coordination_listen: "),
        ({"listen": "systemd:domain=INET:index=0"}, "listen: "),
        ({"coordination_listen": "unix:socket"}, "coordination_listen: "),
        ({"ready_file": "/nowhere/at/all"}, "ready_file: "),
        ({"ready_file": "."}, "ready_file: "),
        ({"log_dir": "broker.yaml/logs"}, "log_dir: "),
    ],
)
def test_a_bad_one_is_one_line_with_file_and_key_and_exit_1(
    run, broker_yaml, settings, key, tmp_path, monkeypatch
):
    path = broker_yaml(**settings)
    monkeypatch.chdir(tmp_path)
    result = run("config", "check", path)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"hermes: {path}: {key}")
    assert result.stderr.count("\n") == 1
    with pytest.raises(ConfigError) as refused:  # what the check refuses, the start refuses
        BrokerService(load_broker_config(path), None)
    assert str(refused.value).removeprefix(f"{path}: ").startswith(key)


@pytest.mark.parametrize("command", ["check", "import"])
def test_a_missing_file_is_a_failure_not_a_traceback(run, tmp_path, command):
    result = run("config", command, str(tmp_path / "none.yaml"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"hermes: {tmp_path / 'none.yaml'}: ")


PROPERTIES = (
    "brokerid=7\nlog.dir=/data\nenable.zookeeper=false\nnum.partitions=2\nmine=x\nyours=y\n"
)


@pytest.mark.parametrize("from_stdin", [False, True])
def test_import_prints_a_file_that_a_broker_takes_and_nothing_else(run, tmp_path, from_stdin):
    properties = tmp_path / "server.properties"
    properties.write_text(PROPERTIES)
    result = run("config", "import", "-" if from_stdin else str(properties), input=PROPERTIES)
    source = "stdin" if from_stdin else properties
    assert result.exit_code == 0
    assert result.stderr == f"hermes: {source}: without an equivalent, left out: mine, yours\n"
    imported = tmp_path / "imported.yaml"
    imported.write_bytes(result.stdout_bytes)
    config = load_broker_config(imported)
    assert (config.broker_id, config.num_partitions) == (7, 2)
    assert config.coordination == "none"


def test_a_value_that_means_nothing_is_refused_with_its_key(run, tmp_path):
    properties = tmp_path / "server.properties"
    properties.write_text("num.partitions=many\n")
    result = run("config", "import", str(properties))
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"hermes: {properties}: num.partitions: ")


def test_reload_needs_to_know_where(run):
    result = run("config", "reload")
    assert (result.exit_code, "--pid" in result.stderr) == (2, True)


def test_reload_signals_no_process_but_a_broker(run):
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            # Popen returns in the middle of the exec: for a moment there is no command line.
            while not Path(f"/proc/{process.pid}/cmdline").read_bytes():
                assert process.poll() is None
            result = run("config", "reload", "--pid", str(process.pid))
            assert (result.exit_code, result.stderr) == (
                1,
                f"hermes: process {process.pid} is no broker of Hermes, but 'sleep 600'\n",
            )
            assert process.poll() is None
        finally:
            process.kill()
    assert "there is no process" in run("config", "reload", "--pid", str(process.pid)).stderr


def test_reload_shows_what_has_changed_and_what_has_not(run, broker_yaml, monkeypatch):
    told = ReloadedConfig([ConfigChange("a", "1", "2", "")], [ConfigChange("b", "3", "4", "no")], 5)
    monkeypatch.setattr(SimpleConsumer, "reload_config", lambda _: told)
    assert run("config", "reload", "-b", "localhost").stdout.splitlines() == [
        "changed a: 1 -> 2",
        "left b: 3, not 4: no",
        "and 5 more, which the broker's log may name",
    ]
    as_json = json.loads(run("config", "reload", "-b", "localhost", "--json").stdout)
    assert as_json["changed"] == [{"name": "a", "before": "1", "after": "2", "left_because": ""}]
    assert [each["name"] for each in as_json["left"]] == ["b"]
    assert as_json["untold"] == 5


def test_what_is_open_to_others_is_said(run, broker_yaml):
    path = broker_yaml(listen="tcp:9093")
    refused = run("config", "check", path)
    assert refused.exit_code == 1
    assert "listen: 'tcp:9093' can be reached from other machines" in refused.stderr
    path = broker_yaml(listen="tcp:9093", allow_insecure=True)
    allowed = run("config", "check", path)
    assert allowed.exit_code == 0
    assert allowed.stderr.startswith("hermes: NOT SECURED: listen: tcp:9093 can be reached from")


def test_secrets_are_not_shown(run, broker_yaml):
    options = {"url": "ldap://a", "password": "sesame"}
    path = broker_yaml(authenticator_options=options)
    result = run("config", "check", "--json", path)
    assert json.loads(result.stdout)["authenticator_options"] == "password: ***, url: ***"


def test_a_directory_of_another_broker_is_no_good_until_it_is_adopted(run, broker_yaml, tmp_path):
    path = broker_yaml()
    result = run("config", "adopt", path)
    assert (result.exit_code, result.stderr) == (
        1,
        f"hermes: there is no directory {tmp_path}/logs\n",
    )
    (tmp_path / "logs").mkdir()
    write_owner(str(tmp_path / "logs"), 5, FileLayer())
    result = run("config", "check", path)
    assert result.exit_code == 1
    assert f"{path}: broker_id: {tmp_path}/logs is the data directory of broker 5" in result.stderr
    result = run("doctor", path)
    assert "is the data directory of broker 5" in result.stdout
    result = run("config", "adopt", path)
    assert result.exit_code == 0
    assert result.stdout == f"{tmp_path}/logs is the data directory of broker 3 now\n"
    assert run("config", "check", path).exit_code == 0


def test_nobody_adopts_a_directory_that_is_in_use(run, broker_yaml, tmp_path):
    (tmp_path / "logs").mkdir()
    lock = DirectoryLock(str(tmp_path / "logs"), FileLayer())
    result = run("config", "adopt", broker_yaml())
    lock.release()
    assert result.exit_code == 1
    assert "is in use by process" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "is_broker"),
    [
        (["/usr/bin/hermes", "consume", "-t", "x"], False),
        (["vi", "/etc/hermes/broker.yaml"], False),
        (["tail", "-f", "/var/log/hermes/twistd.log"], False),
        (["/usr/bin/python", "/opt/hermes/bin/twistd", "-n", "hermes", "--config", "x"], True),
        (["/usr/bin/python3", "-m", "twisted", "hermes", "--config", "x"], True),
        (["twistd", "--pidfile=", "hermes", "-c", "x"], True),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_only_a_broker_gets_the_signal(run, monkeypatch, arguments, is_broker):
    """It ends other programs: clients of Hermes' own, and those that have its name somewhere."""
    sent = []
    line = b"".join(each.encode() + b"\0" for each in arguments)
    monkeypatch.setattr(Path, "read_bytes", lambda path: line)
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append(pid))
    result = run("config", "reload", "--pid", "4711")
    assert (result.exit_code, sent) == ((0, [4711]) if is_broker else (1, []))
