"""mirror.yaml: what it may say, and the one line about what it may not."""

import json
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates

from hermes.config.embedded_mirror import EMBEDDED_MIRROR
from hermes.config.mirror import (
    MirrorClusterAddress,
    Partitioning,
    load_mirror_config,
    parse_mirror_config,
)
from hermes.errors import ConfigError
from hermes.security import ClientSecurity

LEAST: dict[str, Any] = {
    "name": "west",
    "sources": [{"name": "east", "zookeeper": "zoo1:2181,zoo2:2181/hermes"}],
    "target": {"brokers": "[::1]:9092, here:9093"},
}


def test_the_least_has_a_value_for_everything() -> None:
    config = parse_mirror_config(LEAST)
    assert config.sources == (MirrorClusterAddress("east", "zoo1:2181,zoo2:2181/hermes"),)
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
        ({"sources": [{"name": "a"}]}, "sources: expected one of zookeeper"),
        ({"sources": [{"name": "a", "zookeeper": "z:1", "brokers": "b:1"}]}, "one of"),
        ({"sources": [{"name": "a", "kafka": "z:1", "brokers": "b:1"}]}, "one of"),
        ({"sources": [{"name": "a", "zookeper": "z:1"}]}, "unknown key 'zookeper'"),
        ({"sources": [{"name": "a", "brokers": "b:1"}] * 2}, "two sources are called a"),
        ({"sources": [{"name": "a", "brokers": "a:b:1"}]}, "sources: 'a:b:1' is not a broker"),
        (
            {"target": {"brokers": ["b:99999"]}},
            "target: 'b:99999' is not a broker's address: a port",
        ),
        ({"target": {"brokers": 9092}}, "target: expected HOST:PORT"),
        ({"target": {"brokers": None}}, "target: expected HOST:PORT"),
        ({"target": {"brokers": {"a": 9092}}}, "target: expected HOST:PORT"),
        ({"audit": True, "target": {"kafka": "k:1"}}, "audit: its counts go to a Hermes"),
        ({"audit": True, "audit_to": {"kafka": "k:1"}}, "audit_to: it is a Hermes"),
        ({"audit_to": {"brokers": "b:1"}}, "audit_to: it has no effect without audit: true"),
        ({"groups": "g", "target": {"kafka": "k:1"}}, "groups: only a Hermes translates"),
        ({"sources": [{"name": "a", "zookeeper": "z:1", "kafka": "k:1"}]}, "give groups, too"),
        ({"target": {"zookeeper": "z:1", "kafka": "k:1"}, "groups": "g"}, "one of"),
        ({"target": "here"}, "target: expected a mapping of zookeeper, brokers, kafka, connect_as"),
        (
            {"target": {"brokers": "b:1", "connect_as": {"user": "me"}}},
            "target: connect_as: give user and password_file together",
        ),
        (
            {"target": {"brokers": "b:1", "connect_as": {"password": "s3cret"}}},
            "target: connect_as: unknown key 'password'",
        ),
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


SECURED = """
name: w
sources:
- name: east
  brokers: a:1
  connect_as: {user: mirror, password_file: east.password, tls_ca: ca.pem}
target: {zookeeper: b:2181, connect_as: {tls_certificate: "%s", tls_key: "%s"}}
"""


@pytest.fixture
def secured(tmp_path: Path, certificates: Certificates) -> Path:
    """A mirror.yaml beside the files that it names."""
    (tmp_path / "ca.pem").write_bytes(certificates.ca.read_bytes())
    (tmp_path / "east.password").write_text("s3cret\n")
    mine = certificates.client("mirror")
    path = tmp_path / "mirror.yaml"
    path.write_text(SECURED % (mine.certificate, mine.key))
    return path


def test_each_cluster_is_connected_to_as_somebody_else(
    secured: Path, certificates: Certificates
) -> None:
    config = load_mirror_config(secured)
    (east,) = config.sources
    folder = secured.parent
    assert east.security == ClientSecurity(
        user="mirror", password="s3cret", tls_ca=str(folder / "ca.pem")
    )
    mine = certificates.client("mirror")
    assert config.target.security == ClientSecurity(
        tls_certificate=str(mine.certificate), tls_key=str(mine.key)
    )
    assert "s3cret" not in f"{config!r} {east} {config.target}"


def test_a_new_password_is_a_change(secured: Path) -> None:
    before = load_mirror_config(secured)
    assert load_mirror_config(secured) == before
    (secured.parent / "east.password").write_text("an0ther\n")
    assert load_mirror_config(secured) != before


@pytest.mark.parametrize("name", ["ca.pem", "east.password"])
def test_files_that_cannot_be_used_are_named(secured: Path, name: str) -> None:
    (secured.parent / name).write_text("s3cret\ns3cret\n")
    with pytest.raises(ConfigError) as caught:
        load_mirror_config(secured)
    assert str(caught.value).startswith(f"{secured}: east: ")
    assert name in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_an_embedded_mirror_has_paths_from_its_file_and_no_password(tmp_path: Path) -> None:
    values = {
        "name": "w",
        "sources": [
            {
                "name": "east",
                "brokers": ["a:1"],
                "connect_as": {"user": "m", "password_file": "p", "tls_ca": "/ca.pem"},
            }
        ],
        "audit": True,
        "audit_to": {"brokers": "b:1", "connect_as": {"user": "m", "password_file": "p"}},
    }
    (tmp_path / "p").write_text("s3cret")
    embedded = EMBEDDED_MIRROR.parse(values).relative_to(tmp_path)
    line = embedded.line({"brokers": "here:1"})
    assert b"s3cret" not in line
    (source,) = json.loads(line)["sources"]
    assert source["connect_as"]["password_file"] == str(tmp_path / "p")
    assert json.loads(line)["audit_to"]["connect_as"]["password_file"] == str(tmp_path / "p")
    assert source["connect_as"]["tls_ca"] == "/ca.pem"
