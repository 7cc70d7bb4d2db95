"""mirror.yaml: what it may say, and the one line about what it may not."""

from pathlib import Path
from typing import Any

import pytest

from hermes.config import load_mirror_config, parse_mirror_config
from hermes.config.mirror import ClusterAddress, Partitioning
from hermes.errors import ConfigError

LEAST: dict[str, Any] = {
    "name": "west",
    "sources": [{"name": "east", "zookeeper": "zoo1:2181,zoo2:2181/hermes"}],
    "target": {"brokers": "[::1]:9092, here:9093"},
}


def test_the_least_has_a_value_for_everything() -> None:
    config = parse_mirror_config(LEAST)
    assert config.sources == (ClusterAddress("east", "zoo1:2181,zoo2:2181/hermes"),)
    assert config.target.brokers == (("::1", 9092), ("here", 9093))
    assert config.partitioning == Partitioning("index")
    assert config.damaged == "skip"
    assert config.throttle_bytes is None
    assert config.topics.target_of("clicks") == "clicks"


def test_names_are_mapped_or_prefixed() -> None:
    topics = {"prefix": "east.", "map": {"clicks": "all"}}
    config = parse_mirror_config({**LEAST, "topics": topics})
    assert config.topics.target_of("clicks") == "all"
    assert config.topics.target_of("views") == "east.views"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("random", Partitioning("random")),
        ({"key": {"json": "user.id"}}, Partitioning("key", "json", ("user", "id"))),
        ({"key": {"bytes": "0:8"}}, Partitioning("key", "bytes", (0, 8))),
        ({"key": {"bytes": "-4:"}}, Partitioning("key", "bytes", (-4, None))),
    ],
)
def test_partitionings(value: object, expected: Partitioning) -> None:
    assert parse_mirror_config({**LEAST, "partitioning": value}).partitioning == expected


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        ({"name": "a/b"}, "name: expected up to 100 letters"),
        ({"name": None}, "name: expected up to 100 letters"),
        ({"sources": []}, "sources: expected a list of sources"),
        ({"sources": [{"zookeeper": "z:1"}]}, "sources: a source needs a name"),
        ({"sources": [{"name": "a"}]}, "sources: expected either zookeeper"),
        ({"sources": [{"name": "a", "zookeeper": "z:1", "brokers": "b:1"}]}, "either"),
        ({"sources": [{"name": "a", "zookeper": "z:1"}]}, "unknown key 'zookeper'"),
        ({"sources": [{"name": "a", "brokers": "b:1"}] * 2}, "two sources are called a"),
        ({"sources": [{"name": "a", "brokers": "b"}]}, "sources: expected HOST:PORT, got 'b'"),
        ({"target": {"brokers": ["b:99999"]}}, "target: expected HOST:PORT, got 'b:99999'"),
        ({"target": "here"}, "target: expected a mapping of zookeeper and brokers"),
        ({"partitioning": "keys"}, "partitioning: expected index, random"),
        ({"partitioning": {"key": {"json": "a..b"}}}, "partitioning: expected index, random"),
        ({"topics": {"prefx": "a"}}, "topics: unknown key 'prefx'"),
        ({"topics": {"map": {"a": 1}}}, "topics: expected map to have names"),
        ({"throttle": "fast"}, "throttle: expected a size"),
        ({"damaged": "ignore"}, "damaged: expected skip or stop"),
        ({"start": "latest"}, "start: expected smallest or largest"),
        ({"whitelist": "a", "blacklist": "b"}, "blacklist: give it or whitelist, not both"),
        ({"throtle": "1MB"}, "throtle: unknown setting, did you mean throttle?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(changed: dict[str, Any], line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_mirror_config({**LEAST, **changed}, "mirror.yaml")
    assert str(caught.value).startswith("mirror.yaml: ")
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_missing_is_named() -> None:
    for key in LEAST:
        rest = {name: value for name, value in LEAST.items() if name != key}
        with pytest.raises(ConfigError, match=f"^{key}: missing"):
            parse_mirror_config(rest)


def test_a_target_may_be_given_by_whoever_reads_it() -> None:
    rest = {name: value for name, value in LEAST.items() if name != "target"}
    config = parse_mirror_config(rest, default_target={"zookeeper": "here:2181"})
    assert config.target.zookeeper == "here:2181"


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "mirror.yaml"
    path.write_text("name: w\nsources: [{name: e, brokers: 'a:1'}]\ntarget: {brokers: 'b:1'}\n")
    assert load_mirror_config(path).name == "w"
    with pytest.raises(ConfigError, match="can't be read"):
        load_mirror_config(tmp_path / "other.yaml")
    path.write_text("name: w\nname: x\n")
    with pytest.raises(ConfigError, match="given twice"):
        load_mirror_config(path)
