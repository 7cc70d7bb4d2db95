"""`produce --schema` and `consume --registry`: records as JSON on both ends, Avro between them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_registry import FakeRegistry, fake_registry

CLICK = {
    "type": "record",
    "name": "Click",
    "fields": [
        {"name": "page", "type": "string"},
        {"name": "user", "type": ["null", "string"], "default": None},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}, "default": 0},
    ],
}
NEWER = {
    "type": "record",
    "name": "Click",
    "fields": [*CLICK["fields"], {"name": "count", "type": "int", "default": 1}],
}


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with fake_registry() as served:
        yield served


@pytest.fixture
def schema(tmp_path: Path) -> Path:
    path = tmp_path / "click.avsc"
    path.write_text(json.dumps(CLICK))
    return path


def test_records_there_and_back(hermes, registry, schema, topic, tmp_path) -> None:
    lines = b'{"page": "/a"}\n{"page": "/\xc3\xbc", "user": "me", "at": "2011-06-13T08:00:00Z"}\n'
    hermes("produce", "-t", topic, "--schema", schema, "--registry", registry.url, stdin=lines)
    assert list(registry.subjects) == [f"{topic}-value"]
    raw = hermes("consume", "-t", topic, "-e", "-f", "%S:%s;").stdout
    first = bytes.fromhex("00 00000001 04 2f61 00 00")
    assert raw.startswith(b"%d:%s;" % (len(first), first))
    shown = hermes("consume", "-t", topic, "-e", "--registry", registry.url).stdout
    assert [json.loads(line) for line in shown.splitlines()] == [
        {"page": "/a", "user": None, "at": "1970-01-01T00:00:00+00:00"},
        {"page": "/ü", "user": "me", "at": "2011-06-13T08:00:00+00:00"},
    ]
    # What is shown can be sent again.
    again = f"{topic}-again"
    hermes(
        "produce", "-t", again, "--schema", schema, "--registry", registry.url, "--subject", "mine",
        stdin=shown,
    )  # fmt: skip
    assert "mine" in registry.subjects
    assert hermes("consume", "-t", again, "-e", "-f", "%S:%s;").stdout == raw
    newer = tmp_path / "newer.avsc"
    newer.write_text(json.dumps(NEWER))
    resolved = hermes(
        "consume", "-t", topic, "-e", "--registry", registry.url, "--schema", newer, "-c", 1,
    ).stdout  # fmt: skip
    assert json.loads(resolved)["count"] == 1
    objects = hermes("consume", "-t", topic, "-e", "--registry", registry.url, "-J").stdout
    (one, two) = map(json.loads, objects.splitlines())
    assert (one["topic"], one["offset"], two["offset"]) == (topic, 0, one["next_offset"])
    assert two["value"]["user"] == "me"
    assert "payload" not in one


def test_keys_choose_partitions_before_the_lines_are_encoded(
    hermes, registry, schema, partitioned
) -> None:
    topic = partitioned()
    lines = b"".join(b'k%d:{"page": "k%d:\xc3\xa9"}\n' % (n % 5, n % 5) for n in range(50))
    hermes(
        "produce", "-t", topic, "-K", ":", "--schema", schema, "--registry", registry.url,
        stdin=lines,
    )  # fmt: skip
    shown = hermes("consume", "-t", topic, "-e", "--registry", registry.url, "-J").stdout
    places: dict[str, set[int]] = {}
    for line in map(json.loads, shown.splitlines()):
        places.setdefault(line["value"]["page"], set()).add(line["partition"])
    assert sorted(places) == [f"k{n}:é" for n in range(5)]
    assert all(len(each) == 1 for each in places.values())
    assert len(set.union(*places.values())) > 1


def test_a_line_that_does_not_fit_ends_it_and_what_came_before_is_stored(
    hermes, registry, schema, topic
) -> None:
    lines = b'{"page": "/a"}\n{"page": "/b"}\n{"pgae": "/c"}\n{"page": "/d"}\n'
    ended = hermes(
        "produce", "-t", topic, "--schema", schema, "--registry", registry.url, stdin=lines, code=1
    )
    (line,) = ended.stderr.decode().splitlines()
    assert line == (
        "hermes: line 3: pgae: no such field; there are page, user, at; lines 1 to 2 are stored"
    )
    shown = hermes("consume", "-t", topic, "-e", "--registry", registry.url, "-f", "%s\n").stdout
    assert [json.loads(line)["page"] for line in shown.splitlines()] == ["/a", "/b"]


def test_a_schema_that_is_refused_sends_nothing(hermes, registry, schema, topic) -> None:
    registry.incompatible = "field page: string is not int, at /fields/0/type"
    arguments = ("produce", "-t", topic, "--schema", schema, "--registry", registry.url)
    ended = hermes(*arguments, stdin=b'{"page": "/"}\n', code=1)
    (line,) = ended.stderr.decode().splitlines()
    assert line.endswith("field page: string is not int, at /fields/0/type")
    assert b"there is no topic" in hermes("consume", "-t", topic, "-e", code=1).stderr
    schema.write_text('{"type": "recrod"}')
    assert b"not an Avro schema" in hermes(*arguments, code=1).stderr
    schema.write_bytes(b"\xff")
    assert b"is not UTF-8" in hermes(*arguments, code=1).stderr


def messages(topic: str, hermes: Any, registry: FakeRegistry, schema: Path) -> list[bytes]:
    """A good one, one of an unknown schema, text, a broken one, and a good one."""
    number = registry.add("s", json.dumps(CLICK)).to_bytes(4, "big")
    good = b"\0" + number + bytes.fromhex("04 2f61 00 00")
    sent = [good, b"\0\0\0\0\x63" + good[5:], b"text", good[:-1], good]
    hermes("produce", "-t", topic, "-D", "\\xfe\\xfe", stdin=b"\xfe\xfe".join(sent))
    return sent


def test_what_can_not_be_read_is_one_line_and_skipped_if_asked(
    hermes, registry, schema, topic
) -> None:
    messages(topic, hermes, registry, schema)
    arguments = ("consume", "-t", topic, "-e", "--registry", registry.url)
    ended = hermes(*arguments, code=1)
    assert len(ended.stdout.splitlines()) == 1
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"hermes: partition 0 of topic {topic}, message at offset ")
    assert line.endswith("has no schema 99 (--skip-corrupt continues after it)")
    skipping = hermes(*arguments, "--skip-corrupt", "-J")
    lines = [json.loads(each) for each in skipping.stdout.splitlines()]
    raw = hermes("consume", "-t", topic, "-e", "-f", "%o ").stdout.split()
    assert [each["offset"] for each in lines] == [int(raw[0]), int(raw[4])]
    notes = skipping.stderr.decode().splitlines()
    assert [note.partition(": skipped: ")[2][:30] for note in notes[:3]] == [
        f"schema registry {registry.url}"[:30],
        "the payload doesn't start with",
        "written with schema 1: not a v",
    ]
    assert notes[3:] == ["hermes: 3 messages were skipped that can't be read"]


def test_compressed_messages_have_the_offsets_of_their_set(hermes, registry, schema, topic) -> None:
    hermes(
        "produce", "-t", topic, "-z", "gzip", "--schema", schema, "--registry", registry.url,
        stdin=b'{"page": "/a"}\n{"page": "/b"}\n',
    )  # fmt: skip
    shown = hermes("consume", "-t", topic, "-e", "--registry", registry.url, "-J").stdout
    plain = hermes("consume", "-t", topic, "-e", "-J").stdout
    for one, other in zip(shown.splitlines(), plain.splitlines(), strict=True):
        places = [
            {k: v for k, v in json.loads(each).items() if "offset" in k} for each in (one, other)
        ]
        assert places[0] == places[1]


def test_a_registry_that_is_out_of_reach(hermes, registry, schema, topic, unused_port) -> None:
    messages(topic, hermes, registry, schema)
    url = f"http://127.0.0.1:{unused_port}"
    sending = ("produce", "-t", topic, "--schema", schema, "--registry", url)
    ended = hermes(*sending, "--delivery-timeout", 0, stdin=b'{"page": "/"}\n', code=1)
    assert ended.stderr.decode().splitlines()[-1].endswith("Connection refused")
    # One that comes back is waited for.
    registry.faults = [503, 503]
    shown = hermes("consume", "-t", topic, "-c", 1, "--registry", registry.url)
    assert json.loads(shown.stdout)["page"] == "/a"
    (line,) = shown.stderr.decode().splitlines()
    assert line.endswith("503: told to; retrying")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("produce", "--schema", "click.avsc"), "--schema needs --registry"),
        (("produce", "--subject", "s"), "--subject is for --schema"),
        (("consume", "--schema", "click.avsc"), "--schema needs --registry"),
        (("produce", "--schema", "absent", "--registry", "x"), "'absent' does not exist"),
    ],
)
def test_wrong_command_lines(hermes, schema, topic, arguments, message, monkeypatch) -> None:
    monkeypatch.chdir(schema.parent)
    command, *rest = arguments
    assert message in hermes(command, "-t", topic, *rest, code=2).stderr.decode()


def test_a_wrong_url(hermes, schema, topic) -> None:
    ended = hermes("consume", "-t", topic, "--registry", "ftp://me:secret@x", code=1)
    assert "is not a URL such as http://localhost:8081" in ended.stderr.decode()
    assert b"secret" not in ended.stderr
