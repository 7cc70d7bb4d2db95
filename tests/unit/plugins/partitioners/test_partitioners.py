"""What sets each built-in partitioner apart."""

import json
from collections import Counter
from http import HTTPStatus
from pathlib import Path

import pytest

from hermes.errors import ConfigError, LocalProtocolError
from hermes.plugins.partitioners.consistent import ConsistentPartitioner
from hermes.plugins.partitioners.java_hash import JavaHashPartitioner, java_hash
from hermes.plugins.partitioners.spreading import RoundRobinPartitioner, StickyPartitioner

VECTORS = json.loads(
    (Path(__file__).parents[3] / "vectors" / "java-hash.json").read_text(encoding="utf-8")
)["vectors"]


def key_of(vector):
    return bytes.fromhex(vector["key"]) if vector["type"] == "bytes_hex" else vector["key"]


def comparable(vector) -> bool:
    # A Python int of 32 bits hashes as an Integer, so a small Long has no counterpart.
    return vector["type"] != "long" or not -(2**31) <= vector["key"] < 2**31


@pytest.mark.parametrize("vector", [v for v in VECTORS if comparable(v)], ids=str)
def test_agrees_with_the_jvm(vector) -> None:
    key = key_of(vector)
    assert java_hash(key) == vector["hash"]
    for count, expected in ((7, vector["abs_mod_7"]), (12, vector["abs_mod_12"])):
        if expected >= 0:
            assert JavaHashPartitioner().partition("t", key, count) == expected


def test_the_hash_whose_absolute_value_stays_negative_in_java() -> None:
    partitioner = JavaHashPartitioner()
    assert java_hash("polygenelubricants") == -(2**31)
    assert partitioner.partition("t", "polygenelubricants", 7) == 2
    assert partitioner.partition("t", "polygenelubricants", 8) == 0  # valid in Java too


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (HTTPStatus.OK, 200),
        (True, 1231),
        (False, 1237),
        (0.0, 0),
        (1.0, 1072693248),
        (-0.0, -(2**31)),
    ],
)
def test_java_hash_of_other_types(key, expected: int) -> None:
    assert java_hash(key) == expected


@pytest.mark.parametrize("key", [(1, 2), {"a": 1}, 2**63, -(2**63) - 1, object()])
def test_a_key_without_java_hash_says_what_to_do(key) -> None:
    with pytest.raises(LocalProtocolError, match="str"):
        java_hash(key)


def test_round_robin_takes_turns_for_each_topic() -> None:
    partitioner = RoundRobinPartitioner()
    assert [partitioner.partition("a", "key", 3) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert partitioner.partition("b", None, 3) == 0


def test_sticky_stays_for_the_number_of_calls() -> None:
    partitioner = StickyPartitioner(calls=10)
    for _ in range(20):
        assert len({partitioner.partition("t", None, 100) for _ in range(10)}) == 1


def test_sticky_sends_keys_where_java_does() -> None:
    assert StickyPartitioner().partition("t", "user-7", 12) == 3


def test_sticky_refuses_to_stay_for_no_call() -> None:
    with pytest.raises(ConfigError, match="calls"):
        StickyPartitioner(calls=0)


def test_consistent_hashing_moves_keys_to_the_new_partition_only() -> None:
    partitioner = ConsistentPartitioner()
    keys = [f"key-{n}" for n in range(2000)]
    before = [partitioner.partition("t", key, 10) for key in keys]
    after = [partitioner.partition("t", key, 11) for key in keys]
    moved = [new for old, new in zip(before, after, strict=True) if old != new]
    assert set(moved) == {10}
    assert 100 < len(moved) < 300
    assert min(Counter(before).values()) > 120


def test_consistent_hashing_is_the_same_in_every_process() -> None:
    partitioner = ConsistentPartitioner()
    assert [partitioner.partition("t", key, 1000) for key in ("a", b"a", 7)] == [28, 967, 153]


def test_consistent_hashing_refuses_other_keys() -> None:
    with pytest.raises(LocalProtocolError, match="bytes"):
        ConsistentPartitioner().partition("t", 1.5, 3)
