"""The records of `__transaction_state`: Kafka's own bytes, and what can't be read."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.errors import RemoteProtocolError
from hermes.transactions.records import decode_key, decode_value, encode_key, encode_value
from hermes.transactions.state import State, Transaction

_VECTORS = Path(__file__).parents[2] / "vectors" / "kafka-4-transactions.json"
RECORDS = [
    (bytes.fromhex(key), bytes.fromhex(value))
    for key, value in json.loads(_VECTORS.read_text())["records"]
]

_IDS = st.integers(-1, 2**63 - 1)
_TIMES = st.integers(-1, 2**62)
TRANSACTIONS = st.builds(
    Transaction,
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**15 - 1),
    st.integers(0, 2**31 - 1),
    st.sampled_from(list(State)),
    st.frozensets(st.tuples(st.text("abc._-", min_size=1), st.integers(0, 2**31 - 1))),
    _TIMES,
    _TIMES,
    st.integers(-1, 2**15 - 1),
    _IDS,
    _IDS,
    st.sampled_from([0, 2]),
)


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_kafkas_own(key: bytes, value: bytes) -> None:
    assert encode_key(decode_key(key) or "") == key
    found = decode_value(value)
    assert decode_value(encode_value(found)) == found
    if len(found.places) < 2:  # Kafka doesn't sort them
        assert encode_value(found) == value


def test_kafkas_own_tell_of_each_state() -> None:
    found = [decode_value(value) for _, value in RECORDS]
    assert {each.state for each in found} == set(State) - {State.DEAD}
    assert ("__consumer_offsets", 0) in found[-3].places
    assert {each.version for each in found} == {0, 2}


@given(TRANSACTIONS)
def test_all_that_is_written_is_read(transaction: Transaction) -> None:
    if transaction.state is State.EMPTY:
        transaction = transaction._replace(places=frozenset())
    assert decode_value(encode_value(transaction)) == transaction


def test_the_epoch_before_is_a_tag_of_our_own() -> None:
    transaction = Transaction(7, 5, 1, State.EMPTY, last_epoch=4)
    encoded = encode_value(transaction)
    assert encoded.hex() == (
        "0001 0000000000000007 0005 00000001 00 00 ffffffffffffffff ffffffffffffffff"
        " 01 e807 02 0004"
    ).replace(" ", "")
    assert decode_value(encoded) == transaction


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_keys(name: str) -> None:
    assert decode_key(encode_key(name)) == name


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\1a", b"\0\0\0\5a", b"\0\0\xff\xff"])
def test_keys_of_other_kinds(key: bytes | None) -> None:
    assert decode_key(key) is None


def test_version_0() -> None:
    written = (
        bytes.fromhex("0000 0000000000000007 0005 0000ea60 01 00000001 0006")
        + b"orders"
        + bytes.fromhex("00000002 00000000 00000003 0000000000000384 0000000000000383")
    )
    assert decode_value(written) == Transaction(
        *(7, 5, 60_000, State.ONGOING, frozenset({("orders", 0), ("orders", 3)})),
        updated_ms=900,
        started_ms=899,
    )
    empty = bytes.fromhex("0000 0000000000000007 0005 0000ea60 00 ffffffff") + bytes(16)
    assert decode_value(empty).places == frozenset()


@given(st.sampled_from([value for _, value in RECORDS]), st.data())
def test_hostile_bytes_are_read_or_refused(value: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(value) - 1))
    changed = bytearray(value[: data.draw(st.integers(0, len(value)))] if place % 2 else value)
    if place < len(changed):
        changed[place] = data.draw(st.integers(0, 255))
    try:
        decode_value(bytes(changed))
    except RemoteProtocolError:
        return
