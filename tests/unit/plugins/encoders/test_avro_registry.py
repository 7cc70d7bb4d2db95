"""The encoder that asks a registry for its schemas."""

import json
import logging
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest
from fake_registry import FakeRegistry, fake_registry
from planted_secrets import planted

from hermes.errors import ConfigError, EncodingError, PluginError, UnknownSchemaError
from hermes.interfaces import IDecoder, IEncoder
from hermes.plugins import load_plugin
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder

OLD = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
NEW = {
    "type": "record",
    "name": "Click",
    "fields": [*OLD["fields"], {"name": "count", "type": "long", "default": 1}],
}


@pytest.fixture
def registry() -> Any:
    with fake_registry() as served:
        yield served


def test_it_is_found_by_its_name(registry: FakeRegistry) -> None:
    options = {"registry": registry.url, "schema": OLD}
    encoder = load_plugin("hermes.encoders", "avro-registry", IEncoder, **options)
    payload = encoder.encode("clicks", {"page": "ab"})
    assert payload == bytes.fromhex("0000000001 046162")
    options = {"registry": registry.url, "reader_schema": NEW}
    decoder = load_plugin("hermes.encoders", "avro-registry", IDecoder, **options)
    assert decoder.decode("clicks", payload) == {"page": "ab", "count": 1}
    with pytest.raises(ConfigError, match=r"encoder_options\.schema: needed to encode"):
        decoder.encode("clicks", {"page": "ab"})


def test_a_file_with_the_schema(registry: FakeRegistry, tmp_path: Path) -> None:
    path = tmp_path / "click.avsc"
    path.write_text(json.dumps(OLD))
    encoder = RegistryAvroEncoder(registry.url, schema_file=str(path), subject_strategy="record")
    assert encoder.encode("clicks", {"page": ""}) == bytes.fromhex("0000000001 00")
    assert list(registry.subjects) == ["Click"]
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"schema_file: .*click\.avsc: "):
        RegistryAvroEncoder(registry.url, schema_file=str(path))
    with pytest.raises(ConfigError, match="exclude each other"):
        RegistryAvroEncoder(registry.url, schema_file=str(path), schema=OLD)
    with pytest.raises(ConfigError, match=r"absent\.avsc"):
        RegistryAvroEncoder(registry.url, schema_file=str(tmp_path / "absent.avsc"))


def test_the_latest_schema_of_a_subject(registry: FakeRegistry) -> None:
    with pytest.raises(UnknownSchemaError):
        RegistryAvroEncoder(registry.url, subject="clicks")
    registry.add("clicks", json.dumps(OLD))
    registry.add("clicks", json.dumps(NEW))
    encoder = RegistryAvroEncoder(registry.url, subject="clicks")
    assert encoder.encode("any", {"page": "", "count": 0}) == bytes.fromhex("0000000002 00 00")
    assert not any(path.endswith("/versions") for _, path in registry.asked)


def test_a_schema_that_must_be_registered_already(registry: FakeRegistry) -> None:
    encoder = RegistryAvroEncoder(registry.url, schema=OLD, register=False)
    with pytest.raises(UnknownSchemaError, match="Subject 'clicks-value' not found"):
        encoder.encode("clicks", {"page": ""})


def test_a_decoder_waits_for_the_registry_and_says_so(
    registry: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    payload = RegistryAvroEncoder(registry.url, schema=OLD).encode("clicks", {"page": ""})
    registry.faults = [503, 503, 503]
    with caplog.at_level(logging.WARNING):
        decoder = RegistryAvroEncoder(registry.url)
        assert decoder.decode("clicks", payload) == {"page": ""}
    (line,) = caplog.messages
    assert line.startswith(f"waiting for a schema registry: schema registry {registry.url}: 503")
    with pytest.raises(EncodingError, match="has no schema 9"):
        decoder.decode("clicks", b"\0\0\0\0\x09")


@pytest.mark.parametrize(
    "options",
    [
        {"registry": "ftp://x"},
        {"schema": {"type": "recrod"}},
        {"subject_strategy": "none", "schema": OLD},
        {"reader_schema": "{"},
        {"references": [{"name": "x"}], "schema": OLD},
        {"nothing": 1},
    ],
)
def test_wrong_options_fail_early(registry: FakeRegistry, options: dict[str, Any]) -> None:
    with pytest.raises(PluginError, match="'avro-registry' of hermes-log"):
        load_plugin(
            "hermes.encoders", "avro-registry", IEncoder, **{"registry": registry.url, **options}
        )


def test_the_registry_is_asked_as_somebody(registry: FakeRegistry, tmp_path: Path) -> None:
    (tmp_path / "password").write_text(f"{planted('me')}\n")
    options = {"user": "me", "password_file": str(tmp_path / "password")}
    encoder = RegistryAvroEncoder(registry.url, schema=OLD, **options)
    payload = encoder.encode("clicks", {"page": "ab"})
    told = b64decode(registry.headers.pop("Authorization").split()[1])
    assert told.decode() == f"me:{planted('me')}"
    assert RegistryAvroEncoder(registry.url, **options).decode("c", payload) == {"page": "ab"}
    assert "Authorization" in registry.headers
    with pytest.raises(ConfigError, match="password_file: "):
        RegistryAvroEncoder(registry.url, user="me", password_file=str(tmp_path / "none"))
