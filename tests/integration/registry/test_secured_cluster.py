"""Two brokers that let in nobody without a password: what they are to each other, as users."""

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from hermes_testkit import BrokerProcess
from server_process import free_ports

from hermes.client import SyncProducer
from hermes.protocol import Acks, ProduceRequest, encode_message_set
from hermes.security.users_file import change_users_file

PASSWORDS = {"brokers": "we-brokers-1-all", "alice": "alice-2-looks"}
RULES = [
    {"principal": "brokers", "operations": ["all"]},
    {"principal": "alice", "operations": ["produce", "consume", "describe", "create"]},
]


class Pair:
    """Two brokers; the first has the coordination of both."""

    def __init__(self, folder: Path, certificates: Certificates) -> None:
        self._ca = certificates.ca
        users = folder / "users"
        for name, password in PASSWORDS.items():
            change_users_file(
                users, lambda found, n=name, p=password: found.with_user(n, p), may_create=True
            )
        (folder / "password").write_text(PASSWORDS["brokers"] + "\n")
        pair = certificates.server
        listener = {
            "tls": {"certificate": str(pair.certificate), "key": str(pair.key)},
            "authentication": "scram",
        }
        (connect,) = free_ports(1)
        at = {"endpoint": "tcp:0:interface=127.0.0.1", **listener}
        shared = {
            "listen": {**at, "name": "cluster"},
            "http_listen": at,
            "users_file": str(users),
            "access": RULES,
            "connect_as": {
                "user": "brokers",
                "password_file": str(folder / "password"),
                "tls_ca": str(certificates.ca),
            },
        }
        first = {
            "coordination": "embedded",
            "coordination_listen": {**at, "endpoint": f"tcp:{connect}:interface=127.0.0.1"},
        }
        second = {
            "broker_id": 1,
            "coordination": "zookeeper",
            "zookeeper_connect": f"127.0.0.1:{connect}",
        }
        self.brokers: list[BrokerProcess] = []
        self.http: list[int] = []
        for number, more in enumerate((first, second)):
            place = folder / str(number)
            settings = {
                **shared,
                **more,
                "log_dir": str(folder / f"log{number}"),
                "ready_file": str(folder / f"ready{number}"),
            }
            self.brokers.append(BrokerProcess(place, settings))
            ready = json.loads((folder / f"ready{number}").read_text())
            self.http.append(ready["http_listen"][0]["port"])

    def ask(self, number: int, path: str, body: Any = None) -> tuple[int, str]:
        both = f"alice:{PASSWORDS['alice']}".encode()
        request = urllib.request.Request(
            f"https://127.0.0.1:{self.http[number]}{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {base64.b64encode(both).decode()}"},
        )
        context = ssl.create_default_context(cafile=str(self._ca))
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def client(self) -> dict[str, Any]:
        return {"user": "alice", "password": PASSWORDS["alice"], "tls_ca": str(self._ca)}

    def stop(self) -> None:
        for broker in reversed(self.brokers):
            broker.stop()


@pytest.fixture
def pair(tmp_path: Path, certificates: Certificates) -> Iterator[Pair]:
    made = Pair(tmp_path, certificates)
    yield made
    made.stop()
    for broker in made.brokers:
        said = "".join(broker.lines)
        assert "Traceback" not in said, said
        assert not [each for each in PASSWORDS.values() if each in said]


def test_brokers_are_users_of_each_other(pair: Pair) -> None:
    """Whatever registry is asked, one of them leads: the other finds it, and its topic."""
    schemas = [json.dumps({"type": "record", "name": name, "fields": []}) for name in "AB"]
    ids = []
    for number, schema in enumerate(schemas):
        status, text = pair.ask(
            number, f"/registry/subjects/s{number}/versions", {"schema": schema}
        )
        assert status == 200, text
        ids.append(json.loads(text)["id"])
    assert sorted(ids) == [1, 2]
    for number in range(2):
        for schema_id in ids:
            status, text = pair.ask(number, f"/registry/schemas/ids/{schema_id}")
            assert status == 200, text
        told = json.loads(pair.ask(number, "/registry/hermes")[1])
        assert told["problem"] == ""

    # The console of either shows the topics of both.
    for number, broker in enumerate(pair.brokers):
        with SyncProducer("127.0.0.1", broker.port, **pair.client()) as producer:
            messages = encode_message_set([b"message-of-%d" % number])
            request = ProduceRequest(f"of-{number}", 0, messages)
            producer.send_acknowledged([request], Acks.FLUSHED)
    for number in range(2):
        end = time.monotonic() + 60
        while not all(f"of-{each}" in pair.ask(number, "/topics")[1] for each in range(2)):
            assert time.monotonic() < end, pair.ask(number, "/")[1]
            time.sleep(0.1)
        other = 1 - number
        assert f"message-of-{other}" in pair.ask(number, f"/topics/of-{other}/messages")[1]
        assert "does not answer" not in pair.ask(number, "/")[1]
