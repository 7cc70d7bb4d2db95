"""The console on the HTTP port of a real `twistd -n hermes`, with a password."""

import http.client
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlencode

import pytest
from hermes_testkit import BrokerProcess
from twisted.internet.task import Clock

from hermes.broker.loopback_client import OwnClient
from hermes.config.loading import parse_broker_config
from hermes.console import hash_password
from hermes.tap import _mount_console
from hermes.web import Root, WebGate

PASSWORD = "correct horse"


@pytest.fixture
def password_file(tmp_path: Path) -> Path:
    path = tmp_path / "console.password"
    path.write_text(hash_password(PASSWORD))
    path.chmod(0o600)
    return path


class Browser:
    """One connection that keeps cookies."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self._cookies: dict[str, str] = {}

    def ask(self, method: str, path: str, form: dict[str, str] | None = None) -> Any:
        headers = {"Cookie": "; ".join(map("=".join, self._cookies.items()))}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        self._connection.request(method, path, urlencode(form) if form else None, headers)
        response = self._connection.getresponse()
        response.text = response.read().decode()  # type: ignore[attr-defined]
        for cookie in response.headers.get_all("Set-Cookie", ()):
            name, _, value = cookie.partition(";")[0].partition("=")
            self._cookies[name] = value
        return response

    def close(self) -> None:
        self._connection.close()


def test_a_broker_serves_the_console_beside_health(tmp_path: Path, password_file: Path) -> None:
    settings = {
        "log_dir": str(tmp_path / "log"),
        "http_listen": "tcp:0:interface=127.0.0.1",
        "console_password_file": str(password_file),
        "topics": {"clicks": {"partitions": 2}},
    }
    broker = BrokerProcess(tmp_path / "broker", settings)
    try:
        line = broker.wait_for_line("HTTP on 127.0.0.1:")
        browser = Browser(int(re.search(r"HTTP on 127.0.0.1:(\d+)", line)[1]))  # type: ignore[index]
        form = browser.ask("GET", "/topics/clicks")
        assert (form.status, "clicks</h1>" in form.text) == (401, False)
        assert "script-src 'self'" in form.headers["Content-Security-Policy"]
        token = re.search('name="csrf" value="([^"]+)"', form.text)[1]  # type: ignore[index]
        fields = {"csrf": token, "password": PASSWORD, "back": "/topics/clicks"}
        assert browser.ask("POST", "/login", {**fields, "csrf": "0"}).status == 403
        assert browser.ask("POST", "/login", fields).headers["Location"] == "/topics/clicks"
        page = browser.ask("GET", "/topics/clicks")
        assert "clicks</h1>" in page.text
        assert "partition=0-1" in page.text
        streamed = browser.ask("GET", "/topics/clicks/messages")
        assert streamed.headers["Transfer-Encoding"] == "chunked"
        assert streamed.text.endswith("</html>")
        assert browser.ask("GET", "/health/live").status == 200
        browser.close()
    finally:
        broker.stop()
    assert not [line for line in broker.lines if "Traceback" in line]


def test_beyond_loopback_its_pages_say_what_is_missing(password_file: Path) -> None:
    def mount(settings: dict[str, Any]) -> Any:
        values = {
            "broker_id": 0,
            "log_dir": "log",
            "http_listen": "tcp:9093",
            "allow_insecure": True,
            **settings,
        }
        place = {"addresses": [("0.0.0.0", 9093)], "gates": [WebGate()]}
        web = SimpleNamespace(root=Root(), **place, on_stop=[])
        config = parse_broker_config(values, "settings")
        own = OwnClient("127.0.0.1", 9092)
        run = SimpleNamespace(own_client=own, own_kafka_client=None, own=None)
        _mount_console(Clock(), config, web, run)  # type: ignore[arg-type]
        return web

    web = mount({})
    assert web.on_stop == []
    assert "--write-password" in web.root.fallback._detail
    assert web.root.fallback._status == 403


def hermes(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("hermes"))
    return subprocess.run(
        [program, "console", *arguments], input=text, capture_output=True, text=True, timeout=60
    )


def test_the_command_makes_a_password_file(tmp_path: Path) -> None:
    path = tmp_path / "password"
    assert hermes("--write-password", str(path), text="short\n").returncode == 1
    assert not path.exists()
    made = hermes("--write-password", str(path), text=PASSWORD + "\n")
    assert (made.returncode, path.stat().st_mode & 0o777) == (0, 0o600)
    first = path.read_text()
    assert first.startswith("scrypt$")
    # Where no file can be made, as on a full disk, the old one stays.
    (tmp_path / ".password.new").mkdir()
    failed = hermes("--write-password", str(path), text=PASSWORD + "\n")
    assert (failed.returncode, failed.stderr) == (
        1,
        f"hermes: can't write {path}: Is a directory\n",
    )
    assert path.read_text() == first
