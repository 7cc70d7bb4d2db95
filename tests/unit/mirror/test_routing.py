"""What goes where, and the ranges that it is told with."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hermes.config.mirror import Partitioning
from hermes.interfaces import IPartitioner
from hermes.mirror.routing import CHUNK_BYTES, TargetPart, make_route
from hermes.mirror.stretches import Stretch
from hermes.plugins.discovery import load_plugin
from hermes.protocol import Codec, MessageSet, encode_message_set

RULES = [
    Partitioning("index"),
    Partitioning("random"),
    Partitioning("key", "bytes", (0, 2)),
    Partitioning("key", "json", ("a", "b")),
]


def stretch(begin: int, payloads: Sequence[bytes], codec: Codec = Codec.NONE) -> Stretch:
    data = encode_message_set(list(payloads), codec)
    return Stretch(begin, begin + len(data), memoryview(data), 1 if codec else len(payloads))


def payloads_of(parts: Sequence[TargetPart], target: int) -> list[bytes]:
    return [
        message.payload
        for part in parts
        if part.target == target
        for message, _ in MessageSet(part.data)
    ]


def test_by_index_a_partition_goes_to_one() -> None:
    given_stretch = stretch(100, [b"a", b"b"])
    for index, count, expected in ((0, 3, 0), (2, 3, 2), (5, 3, 2), (4, 1, 0)):
        route = make_route(Partitioning("index"), index, "source")
        reached = [100] * count
        (part,) = route.parts(given_stretch, reached)
        assert part[:3] == (expected, 100, given_stretch.end)
        assert part.is_verbatim
        assert bytes(part.data) == bytes(given_stretch.data)
        assert reached[expected] == given_stretch.end
        assert route.home(count) == expected


def test_what_is_there_is_left_out() -> None:
    one, two = stretch(0, [b"a"]), stretch(0, [b"a", b"b"])
    route = make_route(Partitioning("index"), 0, "source")
    reached = [one.end]
    (part,) = route.parts(two, reached)
    assert (part.begin, part.end, part.messages) == (one.end, two.end, 1)
    assert payloads_of([part], 0) == [b"b"]
    assert list(route.parts(two, reached)) == []


def test_by_key_messages_go_where_producers_of_the_key_put_them() -> None:
    route = make_route(Partitioning("key", "json", ("user", "id")), 0, "source")
    payloads = [json.dumps({"user": {"id": f"u{n}"}}).encode() for n in range(50)]
    parts = list(route.parts(stretch(0, payloads), [0] * 4))
    partition = load_plugin("hermes.partitioners", "java-hash", IPartitioner).partition
    for target in range(4):
        expected = [p for n, p in enumerate(payloads) if partition("t", f"u{n}", 4) == target]
        assert payloads_of(parts, target) == expected


@pytest.mark.parametrize("payload", [b"no json", b"[1]", b'{"user": 1}', b"\xff", b"[" * 100_000])
def test_a_message_without_a_key_is_chosen_for_by_its_offset(payload: bytes) -> None:
    rule = Partitioning("key", "json", ("user", "id"))
    parts = list(make_route(rule, 0, "source").parts(stretch(7, [payload]), [7] * 4))
    assert [part.target for part in parts] == [7 % 4]


@pytest.mark.parametrize("value", ["[1, 2]", "99999999999999999999999", "1.5", "true", '"text"'])
def test_a_key_may_be_any_value(value: str) -> None:
    payload = f'{{"id": {value}}}'.encode()
    rule = Partitioning("key", "json", ("id",))
    targets = {
        part.target
        for begin in range(4)
        for part in make_route(rule, 0, "s").parts(stretch(begin, [payload]), [begin] * 4)
    }
    assert len(targets) == 1


def test_a_compressed_set_of_one_partition_stays_as_it_is() -> None:
    rule = Partitioning("key", "bytes", (0, 1))
    given_stretch = stretch(0, [b"a1", b"a2"], Codec.GZIP)
    (part,) = make_route(rule, 0, "source").parts(given_stretch, [0] * 4)
    assert part.data == bytes(given_stretch.data)


def test_a_compressed_set_of_several_is_compressed_anew_for_each() -> None:
    rule = Partitioning("key", "bytes", (0, 1))
    payloads = [bytes([65 + n % 5]) + b"x" * 100 for n in range(40)]
    parts = list(make_route(rule, 0, "source").parts(stretch(0, payloads, Codec.GZIP), [0] * 4))
    assert sorted(p for n in range(4) for p in payloads_of(parts, n)) == sorted(payloads)
    assert len(parts) > 1
    for part in parts:
        ((message, _),) = MessageSet(part.data).iterate(deep=False)
        assert message.codec is Codec.GZIP


def test_at_random_a_chunk_goes_to_one_and_the_next_elsewhere() -> None:
    route = make_route(Partitioning("random"), 0, "source")
    payload = b"x" * 50_000
    begin, reached, chosen = 0, [0] * 5, {}
    for _ in range(20):
        one = stretch(begin, [payload] * 30)
        for part in route.parts(one, reached):
            if part.messages:
                starts = range(part.begin, part.end, len(payload) + 10)
                for start in starts:
                    chosen.setdefault(start // CHUNK_BYTES, set()).add(part.target)
        begin = one.end
    assert all(len(each) == 1 for each in chosen.values())
    assert len(set.union(*chosen.values())) > 1


@given(
    rule=st.sampled_from(RULES),
    sets=st.lists(
        st.tuples(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.sampled_from(Codec)),
        min_size=1,
        max_size=6,
    ),
    count=st.integers(1, 5),
    restart=st.integers(0, 6),
)
def test_ranges_have_no_holes_and_a_restart_sends_only_what_is_missing(
    rule: Partitioning,
    sets: list[tuple[list[bytes], Codec]],
    count: int,
    restart: int,
) -> None:
    route = make_route(rule, 3, "source")
    reached, told = [0] * count, [0] * count
    stored: list[list[bytes]] = [[] for _ in range(count)]
    begin = 0
    stretches = []
    for payloads, codec in sets:
        stretches.append(stretch(begin, payloads, codec))
        begin = stretches[-1].end
    # Again from the start after so many, as if nothing had been committed.
    for one in (*stretches[:restart], *stretches):
        for part in route.parts(one, reached):
            assert part.begin == told[part.target]
            assert part.end > part.begin
            if part.is_verbatim:
                assert len(part.data) == part.end - part.begin
            told[part.target] = part.end
            stored[part.target] += [message.payload for message, _ in MessageSet(part.data)]
    sent = [payload for payloads, _ in sets for payload in payloads]
    assert sorted(each for one in stored for each in one) == sorted(sent)
    assert told == reached
