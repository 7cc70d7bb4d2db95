"""`hermes audit`: what it shows, its exit statuses, and what it serves."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from hermes.client import EARLIEST, FetchRequest, Producer, ProducerConfig, SimpleConsumer
from hermes.testing import running_broker

HERMES = str(Path(sys.executable).with_name("hermes"))


@pytest.fixture(scope="module")
def broker():
    with running_broker(settings={"coordination": "embedded"}) as running:
        yield running


def send(broker, topic, count):
    config = ProducerConfig(
        broker_list=broker.broker_list,
        producer_type="async",
        callback_handler="audit",
        callback_handler_options={"window": 0.5},
    )
    with Producer(config) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number)


def store_again(broker, topic):
    with SimpleConsumer(broker.host, broker.port) as consumer:
        (start,) = consumer.get_offsets_before(topic, 0, EARLIEST)
        message, _ = next(iter(consumer.fetch(FetchRequest(topic, 0, start, 1 << 20))))
    with Producer(ProducerConfig(broker_list=broker.broker_list)) as producer:
        producer.send(topic, message.payload)


def audit(broker, *arguments, window="0.5"):
    where = ["-Z", broker.zookeeper_connect, "--window", window, "--grace", "0"]
    return subprocess.run(
        [HERMES, "audit", *where, *arguments], capture_output=True, text=True, timeout=120
    )


def judged(broker, topic, *arguments):
    """An audit once all windows are over and counted."""
    deadline = time.monotonic() + 60
    while True:
        ran = audit(broker, "-t", topic, "--all", "--json", *arguments)
        shown = [json.loads(line) for line in ran.stdout.splitlines()]
        states = {each["state"] for each in shown if each["kind"] == "window"}
        if states and not states & {"open", "behind"}:
            return ran, shown
        assert time.monotonic() < deadline, ran


def test_what_is_complete_ends_with_0(broker):
    send(broker, "whole", 500)
    ran, shown = judged(broker, "whole", "--strict")
    assert ran.returncode == 0, ran.stderr
    (summary,) = [each for each in shown if each["kind"] == "summary"]
    assert (summary["messages"], summary["tier"], summary["since"]) == (500, "cluster:main", None)
    table = audit(broker, "-t", "whole", "--no-count")
    assert re.search(r"whole +cluster:main +producers +\d+ +500\n", table.stdout)


def test_what_differs_ends_with_3_and_is_named(broker):
    send(broker, "doubled", 500)
    store_again(broker, "doubled")
    ran, shown = judged(broker, "doubled")
    assert ran.returncode == 3
    (window,) = [each for each in shown if each.get("state") == "over"]
    assert (window["topic"], window["over"]) == ("doubled", 1)
    table = audit(broker, "-t", "doubled", "--no-count")
    assert f"{window['start'][:19]}" in table.stdout
    assert "over by 1" in table.stdout


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--tier", "cluster:nowhere"], 1, "tier cluster:nowhere has not reported"),
        (["--also", "main=localhost:1"], 2, "two clusters have the same name"),
        (["--also", "west"], 2, "expected NAME=HOST:PORT"),
        (["--since", "soon"], 2, "@TIME"),
        (["--tier", "no tier"], 2, "is not a tier"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(broker, arguments, status, said):
    ran = audit(broker, "--no-count", *arguments)
    assert (ran.returncode, ran.stdout) == (status, "")
    assert said in ran.stderr


def test_windows_of_another_length_are_left_out_and_that_is_said(broker):
    send(broker, "other", 10)
    audit(broker, "-t", "other", window="7")
    ran = audit(broker, "-t", "other", "--no-count")
    assert "windows of another length" in ran.stderr


def test_following_tells_of_each_window_and_of_its_changes(broker):
    send(broker, "followed", 100)
    where = ["-Z", broker.zookeeper_connect, "--window", "0.5", "--grace", "0"]
    command = [HERMES, "audit", *where, "-t", "followed", "-f", "-a", "--json", "--interval", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            seen = []
            while not seen or seen[-1]["state"] != "complete":
                seen.append(json.loads(process.stdout.readline()))
            store_again(broker, "followed")
            while seen[-1]["state"] != "over":
                seen.append(json.loads(process.stdout.readline()))
        finally:
            process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM


def test_counting_for_ever_serves_metrics(broker):
    send(broker, "measured", 100)
    where = ["-Z", broker.zookeeper_connect, "--window", "0.5", "--name", "measured"]
    command = [HERMES, "audit", *where, "count", "--http-listen", "tcp:0:interface=127.0.0.1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stderr.readline()
            address = re.search(r"served at (\S+)", line)[1]
            deadline = time.monotonic() + 60
            series = 'hermes_audit_windows{topic="measured",tier="cluster:measured",state='
            while True:
                try:
                    with urlopen(f"http://{address}/metrics") as answer:
                        text = answer.read().decode()
                except OSError:
                    text = ""
                if series in text:
                    break
                assert time.monotonic() < deadline, text
                time.sleep(0.2)
        finally:
            process.send_signal(signal.SIGTERM)
            process.stderr.close()
    assert process.returncode == 128 + signal.SIGTERM
