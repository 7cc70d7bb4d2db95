"""Commands that serve listen for this machine only, unless they are told otherwise."""

import pytest
from click import BadParameter

from hermes.cli.listener_options import LISTENER_TYPE, check_served
from hermes.config.listeners import ListenerConfig, TlsConfig
from hermes.errors import ConfigError


def test_an_endpoint_or_a_mapping(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = r"tcp6:1:interface=\:\:1"
    assert LISTENER_TYPE.convert(text, None, None) == ListenerConfig(text)
    mapping = "{endpoint: tcp:1, tls: {certificate: a.pem, key: /b.key}}"
    tls = TlsConfig(tmp_path / "a.pem", (tmp_path / "/b.key"))
    assert LISTENER_TYPE.convert(mapping, None, None) == ListenerConfig("tcp:1", tls)


@pytest.mark.parametrize("text", ["8081", "{endpoint: tcp:1, tsl: no}", "{", "{}"])
def test_what_is_neither(text):
    with pytest.raises(BadParameter):
        LISTENER_TYPE.convert(text, None, None)


def test_what_others_reach_is_refused_or_warned_of(capsys):
    open_port, own = ListenerConfig("tcp:1"), ListenerConfig("tcp:1:interface=127.0.0.1")
    with pytest.raises(ConfigError, match=r"^--listen: 'tcp:1' can be.* or set --allow-insecure$"):
        check_served("--listen", [own, open_port], allow_insecure=False)
    check_served("--listen", [own, own], allow_insecure=False)
    assert capsys.readouterr().err == ""
    check_served("--listen", [open_port], allow_insecure=True)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hermes: NOT SECURED: --listen: tcp:1 can be reached from other mach")


@pytest.mark.parametrize(
    "arguments",
    [
        ("registry", "-b", "127.0.0.1:1", "--listen", "tcp:0"),
        ("console", "-b", "127.0.0.1:1", "--listen", "tcp:0"),
    ],
)
def test_every_command_that_serves_asks(run, arguments):
    result = run(*arguments)
    assert result.exit_code == 1
    assert "'tcp:0' can be reached from other machines" in result.stderr
