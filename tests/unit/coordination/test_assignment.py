from hermes.coordination.layout import (
    BrokerPartition,
    Subscription,
    assign,
    assign_topic,
    stream_ids,
)
from hermes.coordination.topic_filters import Blacklist, Whitelist
from hermes.errors import ConfigError


def partitions(*names: str) -> list[BrokerPartition]:
    return [BrokerPartition(*map(int, name.split("-"))) for name in names]


def test_extras_go_to_the_first_streams() -> None:
    assigned = assign_topic(partitions("0-0", "0-1", "0-2", "1-0", "1-1"), ["b-0", "a-0"])
    assert {str(each): owner for each, owner in assigned.items()} == {
        "0-0": "a-0",
        "0-1": "a-0",
        "0-2": "a-0",
        "1-0": "b-0",
        "1-1": "b-0",
    }


def test_order_is_that_of_texts() -> None:
    assigned = assign_topic(partitions("2-0", "10-0", "10-10", "10-2"), ["c-10", "c-2"])
    assert [(str(each), owner) for each, owner in assigned.items()] == [
        ("10-0", "c-10"),
        ("10-10", "c-10"),
        ("10-2", "c-2"),
        ("2-0", "c-2"),
    ]


def test_java_sorts_surrogates_below_other_characters() -> None:
    first, second = assign_topic(partitions("0-0", "0-1"), ["\uffee-0", "\U0001f600-0"]).values()
    assert (first, second) == ("\U0001f600-0", "\uffee-0")


def test_streams_beyond_the_partitions_get_nothing() -> None:
    assert assign_topic(partitions("0-0"), ["a-0", "b-0"]) == {BrokerPartition(0, 0): "a-0"}


def nobody(consumer_id: str, error: ConfigError) -> None:
    raise AssertionError(consumer_id) from error


def test_a_member_whose_filter_is_too_costly_wants_nothing() -> None:
    counts = {"a" * 250: {0: [0]}}
    costly = Whitelist("(?:(?=(a*)*b|.*(a|b)*c)a)*" * 50)
    members = {"a": Subscription({}, Whitelist("a+"), 1), "evil": Subscription({}, costly, 1)}
    told: list[str] = []
    assigned = assign(counts, members, lambda name, error: told.append(f"{name}: {error}"))
    assert list(assigned["a" * 250].values()) == ["a-0"]
    assert len(told) == 1
    assert told[0].startswith("evil: topic filter: ")


def test_members_of_all_kinds_share_a_topic() -> None:
    counts = {"clicks": {0: range(4)}, "views": {0: [0]}, "unwanted": {0: [0]}}
    members = {
        "a": Subscription({"clicks": 1}),
        "b": Subscription({}, Whitelist("click.*"), 1),
        "c": Subscription({}, Blacklist("clicks,unwanted"), 2),
    }
    assert assign(counts, members, nobody) == {
        "clicks": dict(
            zip(
                partitions("0-0", "0-1", "0-2", "0-3"),
                ["a-0", "a-0", "b-0", "b-0"],
                strict=True,
            )
        ),
        "views": {BrokerPartition(0, 0): "c-0"},
    }


def test_streams_are_named_after_their_consumer() -> None:
    assert stream_ids("grp_vm-1-ab", 2) == ["grp_vm-1-ab-0", "grp_vm-1-ab-1"]
