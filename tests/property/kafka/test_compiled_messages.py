"""Any message of any response is encoded as `kio` encodes it."""

from dataclasses import fields
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from hermes.kafka.apis import APIS
from hermes.kafka.compiled_messages import encoder_of, maker_of
from hermes.protocol.kio_messages import import_messages

INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
NATURALS = {"uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
MOMENTS = st.integers(0, 1 << 40).map(lambda ms: datetime.fromtimestamp(ms // 1000, UTC))
TIMES = st.integers(-1, 1 << 30).map(lambda ms: timedelta(milliseconds=ms))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    **{k: st.integers(-(1 << n - 1), (1 << n - 1) - 1) for k, n in INTEGERS.items()},
    **{k: st.integers(0, (1 << n) - 1) for k, n in NATURALS.items()},
    "bool": st.booleans(),
    "float64": st.floats(allow_nan=False),
    "error_code": st.sampled_from(ErrorCode),
    "timedelta_i32": TIMES,
    "timedelta_i64": TIMES,
    "datetime_i64": MOMENTS,
    "uuid": st.integers(1, (1 << 128) - 1).map(lambda number: UUID(int=number)),
    "string": st.text(max_size=5) | st.just("long" * 70),
    "bytes": st.binary(max_size=5) | st.just(bytes(20_000)),
}
KINDS = [(api.name, v) for api in APIS.values() for v in range(api.lowest, api.highest + 1)]


@st.composite
def messages(draw: Any, kind: Any) -> Any:
    """A message, and its values by name."""
    hints = get_type_hints(kind)
    values = {}
    for field in fields(kind):
        is_default = "tag" in field.metadata and draw(st.booleans())
        if not is_default or field.name not in defaults(kind):
            values[field.name] = draw(values_of(field, hints[field.name]))
    return kind(**values)


def defaults(kind: Any) -> dict[str, Any]:
    return {each.name: each.default for each in fields(kind) if "MISSING" not in str(each.default)}


def values_of(field: Any, hint: Any) -> st.SearchStrategy[Any]:
    options = [each for each in get_args(hint) if each is not type(None)]
    is_optional = get_origin(hint) is not tuple and len(options) < len(get_args(hint))
    inner = options[0] if is_optional else hint
    wire = field.metadata.get("kafka_type")
    if get_origin(inner) is tuple:
        part = get_args(inner)[0]
        one = VALUES[wire] if wire else messages(part)
        found: st.SearchStrategy[Any] = st.lists(one, max_size=3).map(tuple)
    else:
        found = VALUES["bytes" if wire == "records" else wire] if wire else messages(inner)
    return found | st.none() if is_optional else found


def by_kio(message: Any) -> bytes:
    buffer = BytesIO()
    entity_writer(type(message))(buffer, message)
    return buffer.getvalue()


def encoded(kind: Any, message: Any) -> bytes:
    buffer = BytesIO()
    encoder_of(kind)(message, buffer.write)
    return buffer.getvalue()


@given(st.data(), st.sampled_from(KINDS))
def test_any_message_is_encoded_as_by_kio(data: st.DataObject, of: tuple[str, int]) -> None:
    name, version = of
    kind = getattr(import_messages(name, version)[1], f"{name}Response")
    message = data.draw(messages(kind))
    assert encoded(kind, message) == by_kio(message)
    values = {each.name: getattr(message, each.name) for each in fields(kind)}
    made = maker_of(kind)(**values, of_another_version=1)
    assert isinstance(made, kind)
    assert {each.name: getattr(made, each.name) for each in fields(kind)} == values
    assert encoded(kind, made) == by_kio(message)


def test_long_arrays_have_long_lengths() -> None:
    module = import_messages("FindCoordinator", 4)[1]
    kind = module.FindCoordinatorResponse
    one = module.Coordinator(
        key="k", node_id=1, host="h", port=2, error_code=ErrorCode.none, error_message=None
    )
    for count in (0, 126, 127, 128, 20_000):
        message = kind(throttle_time=timedelta(0), coordinators=(one,) * count)
        assert encoded(kind, message) == by_kio(message)


def test_what_is_not_given_has_a_default() -> None:
    module = import_messages("DescribeGroups", 5)[1]
    made = maker_of(module.DescribeGroupsResponse)(groups=())
    assert made.throttle_time == timedelta(0)
    module = import_messages("JoinGroup", 9)[1]
    made = maker_of(module.JoinGroupResponseMember)(member_id="a", metadata=b"")
    assert made.group_instance_id is None
    assert maker_of(None)(anything=1) is None
