"""The safe default: what other machines reach has TLS and authentication, or is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

from hermes.config.broker import BROKER_SETTINGS
from hermes.config.loading import load_broker_config, parse_broker_config
from hermes.config.mirror import load_mirror_config
from hermes.errors import ConfigError

TLS = {"certificate": "broker.pem", "key": "broker.key"}
CLIENTS = {**TLS, "client_ca": "ca.pem"}
MIRROR = {"name": "west", "sources": [{"name": "east", "brokers": "b:1"}]}
MINIMAL = {"broker_id": 0, "log_dir": "logs"}
USERS = {"users_file": "users"}


def tcp(**values: Any) -> dict[str, Any]:
    return {"endpoint": "tcp:9094", **values}


def test_nothing_is_open_to_others_by_default() -> None:
    config = parse_broker_config(MINIMAL)
    assert all(each.is_loopback for each in (*config.listen, config.coordination_listen))
    assert config.http_listen is None


@pytest.mark.parametrize("setting", ["listen", "http_listen", "coordination_listen", "mirror"])
@pytest.mark.parametrize(
    ("listener", "why"),
    [
        ("tcp:9094", "whoever reaches it may read, write and delete everything:"),
        (tcp(), "whoever reaches it"),
        (tcp(tls=TLS), "may read, write and delete everything, though by TLS:"),
        (tcp(authentication="scram"), "without TLS, anybody on the path can read and change"),
        (
            tcp(tls={**CLIENTS, "client_certificate": "optional"}),
            "may read, write and delete everything, though by TLS:",
        ),
        (tcp(endpoint="tcp6:9094"), "whoever reaches it"),
        (tcp(endpoint="tcp:9094:interface=10.0.0.1"), "whoever reaches it"),
    ],
)
def test_others_are_kept_out_unless_that_is_asked_for(
    setting: str, listener: Any, why: str
) -> None:
    given = {"mirror": {**MIRROR, "http_listen": listener}} if setting == "mirror" else {}
    settings = {**MINIMAL, **USERS, **(given or {setting: listener})}
    with pytest.raises(ConfigError) as caught:
        parse_broker_config(settings)
    assert caught.value.key == ("mirror.http_listen" if given else setting)
    assert why in str(caught.value)
    assert "or set allow_insecure: true" in str(caught.value)
    parse_broker_config({**settings, "allow_insecure": True})


@pytest.mark.parametrize("setting", ["listen", "http_listen", "coordination_listen"])
@pytest.mark.parametrize(
    "listener",
    [
        tcp(tls=TLS, authentication="scram"),
        tcp(tls=CLIENTS, authentication="tls"),
        tcp(tls=CLIENTS),
        "tcp:9094:interface=127.0.0.1",
        tcp(endpoint="tcp:9094:interface=127.0.0.1", authentication="scram"),
    ],
)
def test_what_is_safe_needs_no_leave(setting: str, listener: Any) -> None:
    parse_broker_config({**MINIMAL, **USERS, setting: listener})


def test_a_coordination_that_is_not_served_is_not_looked_at() -> None:
    parse_broker_config({**MINIMAL, "coordination": "none", "coordination_listen": "tcp:1"})


def test_passwords_need_somebody_who_knows_them() -> None:
    local = {**MINIMAL, "listen": tcp(endpoint="unix:/run/hermes.sock", authentication="scram")}
    with pytest.raises(ConfigError, match=r"listen: .* there are no users: set users_file \("):
        parse_broker_config(local)
    parse_broker_config({**local, "authenticator": "ldap"})
    parse_broker_config({**local, **USERS})


def test_names_are_told_apart() -> None:
    twice = [{"endpoint": f"unix:/run/{each}", "name": "same"} for each in "ab"]
    with pytest.raises(ConfigError, match="listen: two listeners are called 'same'"):
        parse_broker_config({**MINIMAL, "listen": twice})


def test_what_may_be_secret_is_not_shown() -> None:
    options = {"url": "ldap://a", "password": "sesame"}
    config = parse_broker_config({**MINIMAL, "authenticator_options": options})
    shown = BROKER_SETTINGS["authenticator_options"].kind.show(config.authenticator_options)
    assert shown == "url: ***, password: ***"
    assert "sesame" not in repr(config)


FILE = """
users_file: users
listen: {endpoint: "tcp:0", tls: {certificate: a.pem, key: a.key}, authentication: scram}
http_listen: [{endpoint: "tcp:0", tls: {certificate: a.pem, key: a.key, client_ca: /ca.pem}}]
coordination_listen:
  {endpoint: "tcp:0", tls: {certificate: a.pem, key: a.key}, authentication: scram}
"""


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    path.write_text(f"broker_id: 0\nlog_dir: logs\n{FILE}")
    config = load_broker_config(path)
    assert config.users_file == tmp_path / "users"
    assert config.http_listen is not None
    for each in (*config.listen, *config.http_listen, config.coordination_listen):
        assert each.tls is not None
        assert (each.tls.certificate, each.tls.key) == (tmp_path / "a.pem", tmp_path / "a.key")
    assert config.http_listen[0].tls is not None
    assert config.http_listen[0].tls.client_ca == Path("/ca.pem")


MIRROR_FILE = """
name: west
sources: [{name: east, brokers: "b:1"}]
target: {brokers: "c:1"}
http_listen: {endpoint: "tcp:0", tls: {certificate: a.pem, key: ~/a.key}, authentication: scram}
users_file: users
"""


def test_a_mirror_has_the_same_default(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text(MIRROR_FILE)
    config = load_mirror_config(path)
    assert config.users_file == tmp_path / "users"
    assert config.http_listen is not None
    assert config.http_listen[0].tls is not None
    assert config.http_listen[0].tls.certificate == tmp_path / "a.pem"
    path.write_text(MIRROR_FILE.replace("authentication: scram", "name: open"))
    with pytest.raises(ConfigError, match="http_listen: 'tcp:0' can be reached from other mach"):
        load_mirror_config(path)
    path.write_text(MIRROR_FILE.replace("users_file: users", ""))
    with pytest.raises(ConfigError, match="http_listen: 'tcp:0' has authentication: scram, and"):
        load_mirror_config(path)


def test_the_mirror_of_a_broker_is_told_what_the_broker_says(tmp_path: Path) -> None:
    path = tmp_path / "broker.yaml"
    lines = "\n".join(f"  {line}" for line in MIRROR_FILE.splitlines() if "target" not in line)
    path.write_text(f"broker_id: 0\nlog_dir: logs\nmirror:\n{lines}\n")
    mirror = load_broker_config(path).mirror
    assert mirror is not None
    assert mirror.config.users_file == tmp_path / "users"
    assert mirror.config.http_listen is not None
    assert mirror.config.http_listen[0].tls is not None
    assert mirror.config.http_listen[0].tls.certificate == tmp_path / "a.pem"
    line = mirror.line({"brokers": "x:1"}, allow_insecure=True, users_file=Path("/users")).decode()
    line = json.dumps(json.loads(line), ensure_ascii=False)
    assert '"allow_insecure": true' in line
    assert f'"users_file": "{tmp_path}/users"' in line
    assert f'"certificate": "{tmp_path}/a.pem"' in line
    assert '"key": "/' in line
    assert '"target": {"brokers": "x:1"}' in line
