"""The bytes between brokers that copy partitions are Kafka's, and say what was meant."""

from contextlib import suppress
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka_bench import decode_answer, messages
from kio.serial import entity_reader

from hermes.errors import RemoteProtocolError
from hermes.kafka.replicas.fetches import (
    Answered,
    FollowerRequest,
    Wanted,
    decode_answers,
    decode_request,
    encode_answers,
)
from hermes.protocol import SourcePosition, SourceSpan
from hermes.protocol.kafka_errors import Code
from hermes.replication.messages import Answer, Diverging, Records, Refused, StartsLater
from hermes.storage import ToldSources

NUMBERS = st.integers(0, 2**31 - 1)
OFFSETS = st.integers(0, 2**63 - 1)
TOPICS = st.sampled_from([UUID(int=1).bytes, UUID(int=2).bytes, UUID(int=3).bytes])
PLACES = st.tuples(TOPICS, NUMBERS)
WANTED = st.builds(
    Wanted,
    PLACES,
    st.integers(-1, 2**31 - 1),
    OFFSETS,
    st.integers(-1, 9),
    OFFSETS,
    st.booleans(),
    OFFSETS,
)
SOURCES = st.builds(
    ToldSources,
    st.lists(st.builds(SourcePosition, NUMBERS, st.integers(-1, 2**63 - 1), st.text(max_size=9))),
    st.lists(st.builds(SourceSpan, NUMBERS, st.just(1), *[OFFSETS] * 4), max_size=3),
    OFFSETS,
)
REQUESTS = st.builds(
    FollowerRequest,
    NUMBERS,
    st.integers(1, 2**64 - 1),
    NUMBERS,
    NUMBERS,
    NUMBERS,
    NUMBERS,
    st.lists(WANTED, max_size=5),
    st.lists(PLACES, max_size=3),
)
RECORDS = st.builds(Records, OFFSETS, OFFSETS, st.just(-1) | OFFSETS)
ANSWERS = st.one_of(
    RECORDS,
    st.builds(Refused, st.sampled_from([Code.NOT_LEADER_OR_FOLLOWER, Code.FENCED_LEADER_EPOCH])),
    st.builds(Diverging, st.integers(-1, 2**31 - 1), st.just(-1) | OFFSETS, OFFSETS),
    st.builds(StartsLater, OFFSETS),
)


def body_of(request: FollowerRequest) -> tuple[bytes, int]:
    """A request without its size, and where its header's tags begin."""
    data = request.encode().encode(7)[4:]
    return data, 10 + int.from_bytes(data[8:10])


@given(REQUESTS)
def test_a_request_says_what_was_meant(request: FollowerRequest) -> None:
    assert decode_request(*body_of(request)) == request


@given(REQUESTS)
def test_a_request_is_one_of_kafkas(request: FollowerRequest) -> None:
    # The one who reads it here knows of no tags but Kafka's.
    plain = [each._replace(wants_sources=False) for each in request.wanted]
    request = request._replace(wanted=plain)
    kinds = messages("Fetch", 18, "request")
    data, position = body_of(request)
    found: Any
    found, size = entity_reader(kinds.FetchRequest)(data, position + 1)

    assert position + 1 + size == len(data)
    assert found.replica_state.replica_id == request.broker_id
    assert found.session_id == request.session
    wanted = [
        (
            *(topic.topic_id.bytes, each.partition, each.fetch_offset, each.last_fetched_epoch),
            each.log_start_offset,
        )
        for topic in found.topics
        for each in topic.partitions
    ]
    assert wanted == [
        (*each.place, each.offset, each.last_epoch, each.earliest) for each in request.wanted
    ]
    forgotten = [
        (topic.topic_id.bytes, each)
        for topic in found.forgotten_topics_data
        for each in topic.partitions
    ]
    assert forgotten == list(request.forgotten)


@given(
    st.lists(
        st.one_of(
            st.tuples(PLACES, ANSWERS, st.binary(max_size=50), st.none()),
            st.tuples(PLACES, RECORDS, st.binary(), SOURCES),
        ),
        max_size=5,
    ),
    NUMBERS,
)
def test_answers_say_what_was_meant(
    said: list[tuple[Any, Answer, bytes, Any]], session: int
) -> None:
    answered = [Answered(*each) for each in said]

    (encoded,) = encode_answers(7, session, answered)

    assert isinstance(encoded, bytes)
    assert int.from_bytes(encoded[:4]) == len(encoded) - 4
    if not any(each.sources for each in answered):
        decode_answer("Fetch", 18, encoded[4:])
    code, heard, found = decode_answers(encoded[9:])
    assert (code, heard) == (Code.NONE, session)
    assert [(*each[:2], bytes(each.data), each.sources) for each in found] == said


def test_a_refusal_of_all_is_heard() -> None:
    (encoded,) = encode_answers(7, 3, (), Code.FETCH_SESSION_ID_NOT_FOUND)
    assert isinstance(encoded, bytes)
    assert decode_answers(encoded[9:]) == (Code.FETCH_SESSION_ID_NOT_FOUND, 3, [])


def test_a_consumers_request_is_no_followers() -> None:
    data, position = body_of(FollowerRequest(1, 5, 0, 0, 500, 1 << 20, ()))
    consumers = data[: -len(b"\1\1\x0d") - 13] + b"\0"
    assert decode_request(consumers, position) is None


@given(st.binary(max_size=200))
def test_whatever_comes_is_read_or_refused(data: bytes) -> None:
    for read in (lambda: decode_request(data, 0), lambda: decode_answers(data)):
        with suppress(RemoteProtocolError):
            read()


@given(REQUESTS, st.data())
def test_a_request_that_is_cut_off_is_refused(request: FollowerRequest, data: Any) -> None:
    whole, position = body_of(request)
    end = data.draw(st.integers(position, len(whole) - 1))
    with pytest.raises(RemoteProtocolError):
        decode_request(whole[:end], position)
