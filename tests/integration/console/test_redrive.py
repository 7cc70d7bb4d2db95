"""Dead letters that the console gives once more: on a real broker, in topics of both formats."""

import logging
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from html import unescape
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest
from confluent_kafka import Producer
from kills_under_a_producer import RestartableBroker

from hermes.client import FetchRequest, Keys, ProducerConfig, SimpleConsumer, SyncProducer
from hermes.client import Producer as HermesProducer
from hermes.client.retrying import Letter, letter_of
from hermes.client.retrying.letter_headers import letter_record
from hermes.console import Access
from hermes.console.redrive import DONE, FAILED, STOPPED
from hermes.protocol import Acks, Message, ProduceRequest, encode_message_set
from hermes.security import Operation
from hermes.testing import RunningKafka, running_kafka

from .test_actions import Acting
from .test_pages import body, text

HOSTILE = "<img src=x onerror=alert(1)>\"'&{{7777*7777}}\u202e\x1b"
COUNT = 60


class Address(NamedTuple):
    host: str
    port: int


@pytest.fixture(scope="module")
def kafka() -> Iterator[RunningKafka]:
    with running_kafka() as running:
        yield running


@pytest.fixture
def pages(kafka: RunningKafka) -> Iterator[Acting]:
    made = Acting(kafka)
    yield made
    made.console.close()


def letter(topic: str, number: int, **more: Any) -> Letter:
    """Of group g: all in two partitions, with one of three keys each."""
    key = b"k%d" % (number % 3)
    reason = "TimeoutError: the bank" if number % 2 else "ValueError: no"
    values = {"reason": reason, "attempts": 1 + number % 4, "failed_ms": 1000 + number, **more}
    given = (("source", b"shop"),)
    letter = Letter("g", topic, None, number % 3 % 2, number, 1, 1, 1, "", b"%d" % number)
    values = {"key": key, "headers": given, "timestamp_ms": 10**12 + number, **values}
    for name, value in values.items():
        object.__setattr__(letter, name, value)
    return letter


@pytest.fixture
def filled(kafka: RunningKafka, request: pytest.FixtureRequest) -> str:
    """Dead letters of a topic of Kafka's format, and what is none; the topic's name."""
    topic = re.sub(r"\W", "-", request.node.name)
    dead = f"{topic}.g.dead"
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for name in (topic, dead, f"{topic}.g.retry.1"):
            client.create_topic(name, {"format": "kafka", "partitions": "2"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})

    def put(each: Letter) -> None:
        record = letter_record(each)
        producer.produce(dead, record.value, each.key, each.partition, headers=[*record.headers])

    for number in range(COUNT):
        put(letter(topic, number))
    put(letter("secrets", 0))  # forged: it names a topic that its dead letters aren't in
    producer.produce(dead, b"no letter", headers=[("hermes-letter", b"1")], partition=0)
    assert producer.flush(60) == 0
    return topic


def messages(kafka: RunningKafka | Address, topic: str, partitions: int = 2) -> list[list[Message]]:
    """Of each partition."""
    found = []
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for partition in range(partitions):
            offset, some = 0, []
            while fetched := list(client.fetch(FetchRequest(topic, partition, offset, 1 << 20))):
                some += [message for message, _ in fetched]
                offset = fetched[-1][1]
            found.append(some)
    return found


def order(page: str) -> str:
    found = re.search(r'name="order" value="([^"]*)"', page)
    assert found, page
    return unescape(found[1])


def wait(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def give(pages: Acting, dead: str, **query: Any) -> Any:
    """Preview, and start what was shown; the redrive."""
    page = pages("topics", dead, "redrive", **{"to": "group", **query})
    started = pages.post("topics", dead, "redrive", order=order(page))
    assert (started.status, started.headers["Location"]) == (303, f"/topics/{dead}/redrive")
    redrive = pages.console.sources.redrives.of(dead)
    assert redrive is not None
    return redrive


def test_letters_are_given_to_all_in_their_order(
    kafka: RunningKafka, pages: Acting, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.console")
    dead = f"{filled}.g.dead"
    assert dead in text(pages("dead-letters"))
    shown = pages("topics", dead, "redrive", to="topic", reason="timeouterror", attempts="2")
    assert "15 dead letters" in text(shown)
    assert "45 not chosen, 2 no dead letters of this topic" in text(shown)
    assert "TimeoutError: the bank 15" in text(shown)
    assert messages(kafka, filled) == [[], []], "a look changes nothing"
    redrive = give(pages, dead, to="topic", reason="timeouterror", attempts="2")
    wait(lambda: not redrive.is_running)
    assert redrive.state == DONE
    assert {kind: count for kind, count in redrive.counts.items() if count} == {
        "sent": 15,
        "other": 45,
        "strange": 2,
    }
    chosen = [n for n in range(COUNT) if n % 2 and 1 + n % 4 <= 2]
    for partition, found in enumerate(messages(kafka, filled)):
        numbers = [n for n in chosen if n % 3 % 2 == partition]
        assert [int(each.payload) for each in found] == numbers
        for each in found:
            number = int(each.payload)
            attempts = b"%d" % (1 + number % 4)
            assert each.key == b"k%d" % (number % 3)
            assert each.headers == (("source", b"shop"), ("hermes-attempts-before", attempts))
            assert each.timestamp_ms == 10**12 + number
    page = text(pages("topics", dead, "redrive"))
    assert "done , 15 given once more" in page
    assert "anonymous, to the topic where they were published" in page
    assert f"console: 'anonymous' started a redrive of '{dead}' to the topic, reason" in caplog.text
    assert f"redrive of '{dead}' done: 15 sent, 45 other, 2 strange; continues" in caplog.text


def test_a_group_alone_gets_letters_whose_attempts_count_on(
    kafka: RunningKafka, pages: Acting, filled: str
) -> None:
    redrive = give(pages, f"{filled}.g.dead", attempts="")
    wait(lambda: not redrive.is_running)
    assert messages(kafka, filled) == [[], []]
    found = [letter_of(each) for some in messages(kafka, f"{filled}.g.retry.1") for each in some]
    expected = [letter(filled, n) for p in (0, 1) for n in range(COUNT) if n % 3 % 2 == p]
    assert found == expected


def test_what_was_given_again_too_often_is_left(
    kafka: RunningKafka, pages: Acting, filled: str
) -> None:
    dead = f"{filled}.g.dead"
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for before in (b"19", b"20", b"\xff", b"9" * 50):
        more = (("hermes-attempts-before", before),)
        record = letter_record(letter(filled, 1, reason="again", attempts=1, headers=more))
        producer.produce(dead, record.value, headers=[*record.headers])
    assert producer.flush(60) == 0
    page = text(pages("topics", dead, "redrive", to="topic", reason="again", attempts="20"))
    assert "3 dead letters" in page, "what is no number counts nothing"


def test_one_that_is_stopped_goes_on_where_it_was_in_another_console(
    kafka: RunningKafka, pages: Acting, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.console")
    dead = f"{filled}.g.dead"
    first = Acting(kafka)
    redrive = give(first, dead, rate="50", attempts="")
    wait(lambda: redrive.counts["sent"] >= 3)
    assert "running" in text(first("dead-letters"))
    refused = first.post("topics", dead, "redrive", order=order(first_page(pages, dead)))
    assert "runs already" in text(body(refused))
    first.console.close()
    assert redrive.state == STOPPED
    assert 3 <= redrive.counts["sent"] < COUNT
    places = re.findall(r"redrive of .* stopped: .*; continues from (\S+)", caplog.text)
    assert places == [redrive.places]
    again = give(pages, dead, attempts="", **{"from": places[0]})
    wait(lambda: not again.is_running)
    assert again.state == DONE
    found = [letter_of(each) for some in messages(kafka, f"{filled}.g.retry.1") for each in some]
    numbers = [each.offset for each in found if each is not None]
    assert sorted(numbers) == list(range(COUNT)), "nothing is missing, and here nothing is twice"


def first_page(pages: Acting, dead: str) -> str:
    return pages("topics", dead, "redrive", to="group", attempts="")


def test_one_is_stopped_by_its_button(
    pages: Acting, filled: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "hermes.console")
    dead = f"{filled}.g.dead"
    redrive = give(pages, dead, rate="1", attempts="")
    assert 'name="stop"' in pages("topics", dead, "redrive")
    assert pages.post("topics", dead, "redrive", stop="1").status == 303
    wait(lambda: not redrive.is_running)
    assert redrive.state == STOPPED
    page = text(pages("topics", dead, "redrive"))
    assert f"To go on where it ended, begin at {redrive.places}" in page
    assert f"'anonymous' stopped the redrive of '{dead}'" in caplog.text


def test_letters_of_the_old_format(kafka: RunningKafka, pages: Acting) -> None:
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for name in ("old", "old.g.dead", "old.g.retry.1"):
            client.create_topic(name, {"format": "0.7", "partitions": "2"})
    plain = {"key": None, "headers": (), "timestamp_ms": None, "broker": 0}
    letters = [letter("old", number, **plain) for number in range(9)]
    rich = letter("old", 9)
    with SyncProducer(kafka.host, kafka.port) as producer:
        for each in (*letters, rich):
            encoded = encode_message_set([each.encode()])
            stored = ProduceRequest("old.g.dead", each.partition, encoded)
            producer.send_acknowledged([stored], Acks.FLUSHED)
    redrive = give(pages, "old.g.dead", attempts="")
    wait(lambda: not redrive.is_running)
    found = [letter_of(each) for some in messages(kafka, "old.g.retry.1") for each in some]
    expected = [each for p in (0, 1) for each in (*letters, rich) if each.partition == p]
    assert found == expected
    redrive = give(pages, "old.g.dead", attempts="", to="topic")
    wait(lambda: not redrive.is_running)
    assert (redrive.counts["sent"], redrive.counts["too rich"]) == (9, 1)
    found_payloads = [[each.payload for each in some] for some in messages(kafka, "old")]
    assert found_payloads == [
        [each.payload for each in letters if each.partition == p] for p in (0, 1)
    ]


def test_hostile_letters_are_shown_harmlessly(kafka: RunningKafka, pages: Acting) -> None:
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for name in ("odd", "odd.g.dead"):
            client.create_topic(name, {"format": "kafka"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    attack = letter("odd", 1, reason=HOSTILE * 100, payload=HOSTILE.encode(), key=b"\xff<b>")
    record = letter_record(attack)
    producer.produce("odd.g.dead", record.value, attack.key, headers=[*record.headers])
    assert producer.flush(60) == 0
    page = pages("topics", "odd.g.dead", "redrive", to="topic", attempts="")
    for wrong in ("<img", "<b>", "60481729", "\u202e", "\x1b"):
        assert wrong not in page.partition("<main")[2], wrong
    assert "1 dead letter" in text(page)


def test_a_group_without_retries_is_told(kafka: RunningKafka, pages: Acting) -> None:
    with SimpleConsumer(kafka.host, kafka.port) as client:
        for name in ("short", "short.g.dead"):
            client.create_topic(name, {"format": "kafka"})
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    producer.produce("short.g.dead", b"v", headers=[*letter_record(letter("short", 0)).headers])
    assert producer.flush(60) == 0
    page = text(pages("topics", "short.g.dead", "redrive", to="group"))
    assert "There is no topic 'short.g.retry.1': the redrive would fail there." in page
    redrive = give(pages, "short.g.dead")
    wait(lambda: not redrive.is_running)
    assert redrive.state == FAILED
    assert "short.g.retry.1" in text(pages("topics", "short.g.dead", "redrive"))


def test_only_who_may_read_and_produce_gives_letters_again(
    kafka: RunningKafka, pages: Acting, filled: str
) -> None:
    dead = f"{filled}.g.dead"
    seeing = Operation.DESCRIBE, Operation.CONSUME
    pages.console._access = pages.access = Access(
        None, rights=lambda principal, operation, resource: operation in seeing
    )
    page = pages("topics", dead, "redrive", to="topic", attempts="")
    assert f"You may not produce to topic '{filled}': its letters are left out." in text(page)
    redrive = give(pages, dead, to="topic", attempts="")
    wait(lambda: not redrive.is_running)
    assert (redrive.counts["sent"], redrive.counts["forbidden"]) == (0, COUNT)
    pages.console._access = pages.access = Access(
        None, rights=lambda principal, operation, resource: operation is Operation.DESCRIBE
    )
    assert pages.answer("topics", dead, "redrive").status == 403
    assert pages.post("topics", dead, "redrive", stop="1").status == 403
    pages.may_act = False
    assert pages.answer("topics", dead, "redrive").status == 403


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"to": "everybody"}, "to"),
        ({"rate": "0"}, "rate"),
        ({"rate": "nan"}, "rate"),
        ({"rate": "inf"}, "rate"),
        ({"rate": HOSTILE}, "rate"),
        ({"attempts": "-1"}, "attempts"),
        ({"attempts": "9" * 30}, "attempts"),
        ({"since": "yesterday"}, "since"),
        ({"until": HOSTILE}, "until"),
        ({"from": "0"}, "from"),
        ({"from": "7:0"}, ""),
        ({"from": "0:99999"}, ""),
    ],
)
def test_what_is_wrong_is_said_beside_the_field(
    pages: Acting, filled: str, query: dict[str, str], field: str
) -> None:
    answer = pages.answer("topics", f"{filled}.g.dead", "redrive", **{"to": "group", **query})
    page = body(answer)
    assert answer.status == 400
    assert (f'id="{field}-error"' if field else 'role="alert"') in page
    assert "<img" not in page


@pytest.mark.parametrize(
    "change",
    [
        lambda given: "",
        lambda given: "[" * 10_000,
        lambda given: "{}",
        lambda given: given.replace('"group"', '"everybody"'),
        lambda given: given.replace('"rate": null', '"rate": -1'),
        lambda given: given.replace('"rate": null', '"rate": true'),
        lambda given: given.replace('"rate": null', '"rate": NaN'),
        lambda given: given.replace("[0, ", "[-1, ", 1),
        lambda given: given.replace("[0, ", "[1.5, ", 1),
        lambda given: given.replace('"0-0"', '"7-7"'),
        lambda given: given.replace('"reason": ""', '"reason": 7'),
        lambda given: given.replace('"reason": ""', '"colour": ""'),
        lambda given: given.replace(".g.dead", ".h.dead"),
    ],
)
def test_only_what_a_preview_has_shown_is_started(
    pages: Acting, filled: str, change: Callable[[str], str]
) -> None:
    dead = f"{filled}.g.dead"
    given = order(pages("topics", dead, "redrive", to="group"))
    assert change(given) != given
    assert pages.post("topics", dead, "redrive", order=change(given)).status == 400
    assert pages.console.sources.redrives.of(dead) is None


def test_a_broker_that_goes_away_and_returns_is_waited_for(tmp_path: Path) -> None:
    settings = {"log_dir": str(tmp_path / "log"), "num_partitions": 2}
    broker = RestartableBroker(tmp_path / "broker", settings)
    letters = [letter("t", number, headers=()) for number in range(2000)]
    pages = Acting(Address("127.0.0.1", broker.port))
    try:
        config = ProducerConfig(broker_list=f"0:127.0.0.1:{broker.port}", acks="flushed")
        with SimpleConsumer("127.0.0.1", broker.port) as client:
            for name in ("t", "t.g.dead"):
                client.create_topic(name, {"format": "kafka"})
        with HermesProducer(config) as producer:
            for partition in (0, 1):
                some = [each for each in letters if each.partition == partition]
                keys = Keys([each.key for each in some])
                records = [letter_record(each) for each in some]
                producer.send("t.g.dead", records, keys, partition=partition)
        redrive = give(pages, "t.g.dead", to="topic", rate="1000", attempts="")
        wait(lambda: redrive.counts["sent"] >= 100)
        broker.kill_and_restart()
        wait(lambda: not redrive.is_running)
        assert (redrive.state, redrive.error) == (DONE, "")
        for partition, found in enumerate(messages(Address("127.0.0.1", broker.port), "t")):
            numbers = [int(each.payload) for each in found]
            expected = [n for n in range(2000) if n % 3 % 2 == partition]
            assert list(dict.fromkeys(numbers)) == expected, "none is missing, and first in order"
    finally:
        pages.console.close()
        broker.stop()


class Program:
    """`hermes console --actions` as a process, and one browser's session with it."""

    def __init__(self, kafka: RunningKafka) -> None:
        where = ["-b", f"{kafka.host}:{kafka.port}", "-l", "tcp:0:interface=127.0.0.1"]
        program = str(Path(sys.executable).with_name("hermes"))
        self.process = subprocess.Popen(
            [program, "console", *where, "--actions"],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stderr.readline())
        assert found
        self._port = int(found[1])
        self._cookie = ""

    def ask(self, path: str, form: dict[str, str] | None = None) -> str:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        headers = {"Cookie": self._cookie}
        if form is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        method = "GET" if form is None else "POST"
        connection.request(method, path, None if form is None else urlencode(form), headers)
        response = connection.getresponse()
        self._cookie = (response.headers["Set-Cookie"] or self._cookie).partition(";")[0]
        answer = response.read().decode()
        connection.close()
        assert response.status in (200, 303), answer
        return answer

    def end(self, stop: Callable[[], None]) -> str:
        """Stop it; what it has said."""
        stop()
        _, said = self.process.communicate(timeout=60)
        return said


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_console_that_is_started_again_is_told_where_to_go_on(
    kafka: RunningKafka, filled: str, is_killed: bool
) -> None:
    dead = f"{filled}.g.dead"
    path = f"/topics/{dead}/redrive"
    given, places = f"{filled}.g.retry.1", ""
    program = Program(kafka)
    try:
        page = program.ask(f"{path}?to=group&rate=20")
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token
        program.ask(path, {"csrf": token[1], "order": order(page)})
        wait(lambda: any(messages(kafka, given)))
    finally:
        said = program.end(program.process.kill if is_killed else program.process.terminate)
    assert f"started a redrive of '{dead}'" in said
    ended = re.findall(r"stopped: .* continues from (\S+)", said)
    assert len(ended) == (0 if is_killed else 1), said
    if ended:
        (places,) = ended
    program = Program(kafka)
    try:
        page = program.ask(f"{path}?to=group&from={places}")
        token = re.search(r'name="csrf" value="([^"]+)"', page)
        assert token
        program.ask(path, {"csrf": token[1], "order": order(page)})
        wait(lambda: "<strong>done</strong>" in program.ask(path))
    finally:
        program.end(program.process.terminate)
    found = [letter_of(each) for some in messages(kafka, given) for each in some]
    numbers = [each.offset for each in found if each is not None]
    assert set(numbers) == set(range(COUNT)), "nothing is missing"
    for partition in (0, 1):
        own = [each for each in dict.fromkeys(numbers) if each % 3 % 2 == partition]
        assert own == sorted(own)
    assert is_killed or len(numbers) == COUNT
