import json
from contextlib import nullcontext

import pytest

from hermes.cli.options import BrokerOption
from hermes.protocol import Codec, encode_message_set

CLICKS = encode_message_set([b"open 200", b"buy 500", b"bot 500"])
VIEWS = encode_message_set([b"page 1", b"page \xff2"], Codec.GZIP)


@pytest.fixture
def tail(run, fake_consumer, monkeypatch):
    """Runs `hermes tail` up to the end, with a broker that has two topics; its output."""
    logs = {("clicks", 0): {0: CLICKS}, ("views", 0): {0: VIEWS}}
    consumer = fake_consumer(logs)
    monkeypatch.setattr(BrokerOption, "consumer", lambda *_, **__: nullcontext(consumer))

    def invoke(*arguments, code=0):
        ended = run("tail", "-b", "127.0.0.1", "-e", *arguments)
        assert ended.exit_code == code, ended.output
        return ended.stdout_bytes.splitlines() if not code else ended.stderr

    return invoke


def test_several_topics_and_where_each_message_is(tail):
    assert tail("clicks", "views", "clicks") == [
        b"clicks-0 0  open 200",
        b"clicks-0 18  buy 500",
        b"clicks-0 35  bot 500",
        b"views-0 0  page 1",
        b"views-0 0  page \xff2",
    ]


def test_the_last_ones_of_each(tail):
    lines = tail("clicks", "views", "-n", 1)
    assert lines == [b"clicks-0 35  bot 500", b"views-0 0  page \xff2"]


def test_a_count_over_all(tail):
    assert len(tail("clicks", "views", "-c", 4)) == 4


def test_filters(tail):
    assert tail("clicks", "-m", "500", "-x", "^bot") == [b"clicks-0 18  buy 500"]
    assert len(tail("clicks", "views", "-m", "open", "-m", "page")) == 3
    assert tail("views", "-m", "\udcff") == [b"views-0 0  page \xff2"]


def test_colours_tell_topics_apart_and_show_what_matched(tail):
    (line,) = tail("clicks", "-m", "500", "-x", "bot", "--colour", "always")
    assert line == b"\x1b[36mclicks-0 18\x1b[0m  buy \x1b[1m\x1b[4m500\x1b[0m"
    views = tail("clicks", "views", "--colour", "always")[-1]
    assert views == b"\x1b[32mviews-0 0\x1b[0m  page \xff2"


def test_json(tail):
    (row,) = map(json.loads, tail("clicks", "-n", 1, "--json"))
    assert row == {
        "topic": "clicks",
        "partition": 0,
        "offset": 35,
        "next_offset": 52,
        "payload": "bot 500",
    }


def test_what_can_not_be_is_told(tail):
    assert "'(' is not a regular expression" in tail("clicks", "-m", "(", code=2)
    assert tail("clicks", "none", code=1) == "hermes: there is no topic 'none'\n"
