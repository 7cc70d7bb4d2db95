"""Registries that want users, by TLS: Confluent's client against a broker's, and one of its own."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Certificates
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError

from hermes.schemas import RegistryClient
from hermes.security import ClientSecurity
from hermes.security.users_file import change_users_file
from hermes.testing import RunningBroker, running_broker

USERS = {"writer": "writes-1-schemas", "reader": "reads-2-schemas", "other": "does-3-else"}
RULES = [
    {"principal": "writer", "operations": ["produce"], "topic": "hermes-schemas"},
    {"principal": "reader", "operations": ["describe"], "topic": "hermes-schemas"},
]
SCHEMA = Schema(json.dumps({"type": "record", "name": "R", "fields": []}))


@contextmanager
def of_a_broker(tmp_path: Path, certificates: Certificates) -> Iterator[tuple[str, str]]:
    settings = {"http_listen": "tcp:0:interface=127.0.0.1", "access": RULES}
    with running_broker(tmp_path / "log", settings, tls=True, users=USERS) as broker:
        yield f"{broker.http}/registry", str(broker.tls_ca)


@contextmanager
def of_its_own(tmp_path: Path, certificates: Certificates) -> Iterator[tuple[str, str]]:
    """A `hermes registry` that is itself a user of a broker with TLS."""
    for name, password in USERS.items():
        change_users_file(
            tmp_path / "users",
            lambda found, n=name, p=password: found.with_user(n, p),
            may_create=True,
        )
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"access": RULES}))
    (tmp_path / "password").write_text("keeps-4-schemas\n")
    pair = certificates.server
    listener = {
        "endpoint": "tcp:0:interface=127.0.0.1",
        "tls": {"certificate": str(pair.certificate), "key": str(pair.key)},
        "authentication": "scram",
    }
    access = [
        {"principal": "registry", "operations": ["all"], "topic": "hermes-schemas"},
        {"principal": "registry", "operations": ["admin", "describe"]},
    ]
    settings = {"access": access, "registry": False, "coordination": "embedded"}
    users = {"registry": "keeps-4-schemas"}
    with (
        running_broker(tmp_path / "log", settings, tls=True, users=users) as broker,
        process(broker, tmp_path, listener) as port,
    ):
        yield f"https://localhost:{port}", str(certificates.ca)


@contextmanager
def process(broker: RunningBroker, folder: Path, listener: dict[str, Any]) -> Iterator[int]:
    command = [
        *(str(Path(sys.executable).with_name("hermes")), "registry"),
        *("-b", f"{broker.host}:{broker.port}", "--tls-ca", str(broker.tls_ca)),
        *("--user", "registry", "--password-file", str(folder / "password")),
        *("--listen", json.dumps(listener), "--users-file", str(folder / "users")),
        *("--rules", str(folder / "rules.yaml")),
    ]
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    said: list[str] = []
    with running.stderr as lines:
        try:
            for line in lines:
                said.append(line)
                if "the schema registry of" in line:
                    break
            found = re.findall(r"https://127\.0\.0\.1:(\d+)", said[-1] if said else "")
            assert found, said
            yield int(found[0])
            running.send_signal(signal.SIGINT)
            rest = lines.read()
            assert running.wait(60) == 0, rest
            assert "Traceback" not in rest
        finally:
            running.kill()
            running.wait(60)


@pytest.mark.parametrize("served", [of_a_broker, of_its_own])
def test_confluents_client_by_tls_with_a_users_password(
    served: Any, tmp_path: Path, certificates: Certificates
) -> None:
    with served(tmp_path, certificates) as (url, ca):

        def client(user: str, password: str = "", **more: str) -> SchemaRegistryClient:
            info = {"basic.auth.user.info": f"{user}:{password or USERS[user]}"} if user else {}
            return SchemaRegistryClient(
                {"url": url, "ssl.ca.location": ca, "max.retries": 0, **info, **more}
            )

        with client("writer") as writer:
            schema_id = writer.register_schema("clicks-value", SCHEMA)
        with client("reader") as reader:
            assert reader.get_schema(schema_id).schema_str
            assert reader.get_subjects() == ["clicks-value"]
            with pytest.raises(SchemaRegistryError) as caught:
                reader.register_schema("others-value", SCHEMA)
            assert (caught.value.http_status_code, caught.value.error_code) == (403, 403)
            assert "'reader' may not change schemas" in caught.value.error_message
        for who, status in (
            (client("other"), 403),
            (client(""), 401),
            (client("reader", "guess"), 401),
            (client("nobody", "guess"), 401),
        ):
            with who, pytest.raises(SchemaRegistryError) as caught:
                who.get_subjects()
            assert caught.value.http_status_code == status
            assert "clicks" not in caught.value.error_message

        security = ClientSecurity(tls_ca=ca, user="reader", password=USERS["reader"])
        own = RegistryClient(url, retry_seconds=0, **security.settings())
        assert own.by_id(schema_id) is not None
        own.close()
