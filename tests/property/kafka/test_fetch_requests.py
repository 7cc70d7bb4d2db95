"""What reads Fetch requests by hand says what their schema says, or leaves them to it."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st
from kafka_bench import encode_request, messages

from hermes.kafka.apis import APIS
from hermes.kafka.fetching.fetch_messages import fields_of, read_plain
from hermes.kafka.schemas import Schema, load_schema

FETCH = APIS[1]
VERSIONS = st.integers(FETCH.lowest, FETCH.highest)
SCHEMAS: dict[int, Schema] = {}

int8 = st.integers(-(2**7), 2**7 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)


def schema_of(version: int) -> Schema:
    if version not in SCHEMAS:
        SCHEMAS[version] = load_schema(FETCH, version, is_exact=True)
    return SCHEMAS[version]


@st.composite
def bodies(draw: st.DrawFn, version: int) -> bytes:
    """The body of a request of any number of topics and partitions."""
    kinds = messages("Fetch", version, "request")
    fields: dict[str, Any] = {
        "max_wait": timedelta(milliseconds=draw(int32)),
        "min_bytes": draw(int32),
        "max_bytes": draw(int32),
        "isolation_level": draw(int8),
        "topics": draw(st.lists(topics(version, kinds), max_size=3).map(tuple)),
    }
    if version < 15:
        fields["replica_id"] = draw(int32)
    if version >= 7:
        fields |= {"session_id": draw(int32), "session_epoch": draw(int32)}
        fields["forgotten_topics_data"] = draw(
            st.lists(forgotten(version, kinds), max_size=2).map(tuple)
        )
    if version >= 11:
        fields["rack_id"] = draw(st.text(max_size=200))
    frame = encode_request("Fetch", version, client_id="", **fields)
    return frame[4 + 10 + (version >= 12) :]


@st.composite
def names(draw: st.DrawFn, version: int) -> dict[str, Any]:
    if version >= 13:
        return {"topic_id": draw(st.uuids() | st.just(UUID(int=0)))}
    return {"topic": draw(st.text(max_size=3)) * draw(st.sampled_from([1, 70]))}


@st.composite
def forgotten(draw: st.DrawFn, version: int, kinds: Any) -> Any:
    numbers = draw(st.lists(int32, max_size=3).map(tuple))
    return kinds.ForgottenTopic(**draw(names(version)), partitions=numbers)


@st.composite
def topics(draw: st.DrawFn, version: int, kinds: Any) -> Any:
    named = draw(names(version))
    parts = []
    for _ in range(draw(st.integers(0, 3))):
        values = {"partition": draw(int32), "fetch_offset": draw(int64)}
        values["partition_max_bytes"] = draw(int32)
        if version >= 5:
            values["log_start_offset"] = draw(int64)
        if version >= 9:
            values["current_leader_epoch"] = draw(int32)
        if version >= 12:
            values["last_fetched_epoch"] = draw(int32)
        parts.append(kinds.FetchPartition(**values))
    return kinds.FetchTopic(**named, partitions=tuple(parts))


@given(VERSIONS.flatmap(lambda version: st.tuples(st.just(version), bodies(version))))
def test_a_plain_request_says_what_its_schema_says(asked: tuple[int, bytes]) -> None:
    version, body = asked
    found = read_plain(body, 0, version)
    assert found == fields_of(schema_of(version).read(body, 0), version)
    assert all(read_plain(body[:end], 0, version) is None for end in range(len(body)))


@given(
    VERSIONS.flatmap(lambda version: st.tuples(st.just(version), bodies(version))),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=2),
)
def test_what_is_read_of_a_changed_request_is_what_its_schema_reads(
    asked: tuple[int, bytes], changes: list[tuple[int, int]]
) -> None:
    version, body = asked
    changed = bytearray(body)
    for place, byte in changes:
        changed[place % len(changed)] = byte
    found = read_plain(changed, 0, version)
    if found is not None:
        assert found == fields_of(schema_of(version).read(bytes(changed), 0), version)
