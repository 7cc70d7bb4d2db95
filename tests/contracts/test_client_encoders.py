"""What every encoder must do, run on each built-in one."""

from collections.abc import Iterator
from typing import Any

import pytest
from fake_registry import fake_registry
from zope.interface.verify import verifyClass, verifyObject

from hermes.errors import EncodingError
from hermes.interfaces import IDecoder, IEncoder
from hermes.plugins.encoders.avro import AvroEncoder
from hermes.plugins.encoders.avro_registry import RegistryAvroEncoder
from hermes.plugins.encoders.message_pack import MessagePackEncoder
from hermes.plugins.encoders.plain import BytesEncoder, JsonEncoder, StringEncoder

SCHEMA = {
    "type": "record",
    "name": "Click",
    "fields": [{"name": "page", "type": "string"}, {"name": "count", "type": "long"}],
}
CASES = {
    "bytes": (BytesEncoder, {}, [b"", b"\x00\xff", b"x" * 1000], [7, "text", None, [b"a"]]),
    "string": (StringEncoder, {}, ["", "a", "日本", "\U0001f600"], [7, b"a", None, "\ud800"]),
    "json": (
        JsonEncoder,
        {},
        [None, True, 7, 1.5, "ü", [1, [2]], {"a": {"b": None}}],
        [b"bytes", {1, 2}, float("nan"), {(1, 2): 3}, object()],
    ),
    "msgpack": (
        MessagePackEncoder,
        {},
        [None, True, 7, 1.5, "ü", b"\x00", [1, [2]], {"a": {1: b"b"}}],
        [{1, 2}, 2**65, object()],
    ),
    "avro": (
        AvroEncoder,
        {"schema": SCHEMA, "schema_id": 7},
        [{"page": "/", "count": 0}, {"page": "日本", "count": -(2**63)}],
        [{}, {"page": "/", "count": "many"}, {"page": "/", "count": 2**63}, None, 7],
    ),
    "avro-registry": (
        RegistryAvroEncoder,
        {"schema": SCHEMA},
        [{"page": "/", "count": 0}, {"page": "日本", "count": -(2**63)}],
        [{}, {"page": "/", "count": 1, "more": 1}, {"page": "/", "count": 2**63}, None, 7],
    ),
}


@pytest.fixture(params=CASES)
def case(request) -> Iterator[Any]:
    factory, options, values, wrong = CASES[request.param]
    if factory is not RegistryAvroEncoder:
        yield factory, options, values, wrong
        return
    with fake_registry() as registry:
        yield factory, {**options, "registry": registry.url}, values, wrong


def test_provides_both_interfaces(case) -> None:
    factory, options, _, _ = case
    assert verifyClass(IEncoder, factory)
    assert verifyClass(IDecoder, factory)
    assert verifyObject(IEncoder, factory(**options))
    assert verifyObject(IDecoder, factory(**options))


def test_what_is_encoded_decodes_to_the_same(case) -> None:
    factory, options, values, _ = case
    for value in values:
        payload = factory(**options).encode("clicks", value)
        assert type(payload) is bytes
        assert factory(**options).decode("clicks", payload) == value


def test_what_can_not_be_encoded_says_so(case) -> None:
    factory, options, _, wrong = case
    encoder = factory(**options)
    for value in wrong:
        with pytest.raises(EncodingError):
            encoder.encode("clicks", value)
