"""Access rules and quotas in a real broker, for users who prove who they are."""

import os
import re
import signal
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from hermes_testkit import BrokerProcess
from mirrored_pair import eventually

from hermes import SimpleConsumer
from hermes.client import SyncProducer
from hermes.errors import BrokerError, BrokerUnavailableError, HermesError, NotAuthorizedError
from hermes.protocol import LATEST, Acks, FetchRequest, ProduceRequest, encode_message_set
from hermes.security.users import Users
from hermes.security.users_file import change_users_file

StartBroker = Callable[..., BrokerProcess]

ACCESS = [
    {"principal": "alice", "operations": ["produce", "create", "consume"], "topic": "web-*"},
    {"principal": "group:readers", "operations": ["consume"], "topic": "web-clicks"},
    {"principal": "root", "operations": ["all"]},
]


class Site:
    """A broker with users, whose settings and users change."""

    def __init__(self, start_broker: StartBroker, users_file: Path, **settings: Any) -> None:
        self.users_file = users_file
        listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram"}
        self.broker = start_broker(
            listen=listener, users_file=str(users_file), access=ACCESS, **settings
        )
        self._stack = ExitStack()

    def client(self, user: str) -> SimpleConsumer:
        """A connection of a user, closed at the end."""
        made = SimpleConsumer("127.0.0.1", self.broker.port, user=user, password=f"{user}'s")
        return self._stack.enter_context(made)

    def producer(self, user: str) -> SyncProducer:
        """The same to produce by."""
        made = SyncProducer("127.0.0.1", self.broker.port, user=user, password=f"{user}'s")
        return self._stack.enter_context(made)

    def change(self, **settings: Any) -> None:
        """Write broker.yaml and have it read again."""
        values = yaml.safe_load(self.broker.config_file.read_text())
        self.broker.config_file.write_text(yaml.safe_dump({**values, **settings}))
        before = len(self.broker.lines)
        os.kill(self.broker.process.pid, signal.SIGHUP)
        eventually(lambda: any("was read again for" in line for line in self.broker.lines[before:]))

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def users_file(tmp_path: Path) -> Path:
    path = tmp_path / "users"

    def add(users: Users) -> Users:
        for name, groups in (("alice", ()), ("bob", ("readers",)), ("eve", ()), ("root", ())):
            users = users.with_user(name, f"{name}'s", groups, iterations=4096)
        return users

    change_users_file(path, add, may_create=True)
    return path


@pytest.fixture
def make_site(start_broker: StartBroker, users_file: Path) -> Iterator[Callable[..., Site]]:
    sites: list[Site] = []

    def make(**settings: Any) -> Site:
        sites.append(Site(start_broker, users_file, **settings))
        return sites[-1]

    yield make
    for site in sites:
        site.close()


def append(producer: SyncProducer, topic: str, count: int = 1) -> None:
    """Produce and wait for the answer; raises what the broker answers."""
    produce = ProduceRequest(topic, 0, encode_message_set([b"hello"] * count))
    for result in producer.send_acknowledged([produce], acks=Acks.FLUSHED):
        if isinstance(result, BrokerError):
            raise result


def topics_of(client: SimpleConsumer) -> list[str]:
    return [each.topic for each in client.metadata().topics]


def test_everybody_does_what_the_rules_allow_and_no_more(make_site: Callable[..., Site]) -> None:
    site = make_site()
    alice = site.producer("alice")
    append(alice, "web-clicks")
    with pytest.raises(NotAuthorizedError):
        append(alice, "orders")
    root, bob, eve = site.client("root"), site.client("bob"), site.client("eve")
    root.create_topic("orders")
    assert topics_of(root) == ["orders", "web-clicks"]
    assert topics_of(bob) == ["web-clicks"]
    assert topics_of(eve) == []
    fetch = FetchRequest("web-clicks", 0, 0, 1000)
    assert [message.payload for message, _ in bob.fetch(fetch)] == [b"hello"]
    for refused in (
        lambda: bob.create_topic("web-more"),
        lambda: bob.delete_topic("web-clicks"),
        lambda: eve.fetch(fetch),
        lambda: eve.get_offsets_before("web-clicks", 0, LATEST, 1),
        lambda: alice_settings(site),
        eve.reload_config,
    ):
        with pytest.raises(NotAuthorizedError):
            refused()
    assert topics_of(root) == ["orders", "web-clicks"]
    site.broker.wait_for_line("'alice' may not produce to topic 'orders'")
    site.broker.wait_for_line("'bob' may not delete topic 'web-clicks'")


def alice_settings(site: Site) -> None:
    site.client("alice").describe_settings()


def test_an_unanswered_produce_ends_the_connection(make_site: Callable[..., Site]) -> None:
    site = make_site()
    eve = site.producer("eve")

    def is_cut_off() -> bool:
        try:
            eve.send("web-clicks", 0, encode_message_set([b"hello"]))
        except BrokerUnavailableError:
            return True
        return False

    eventually(is_cut_off)
    assert topics_of(site.client("root")) == []
    site.broker.wait_for_line("'eve' may not produce to topic 'web-clicks'")


def test_rules_and_groups_change_for_connections_that_are_open(
    make_site: Callable[..., Site],
) -> None:
    site = make_site()
    append(site.producer("alice"), "web-clicks")
    bob, eve = site.client("bob"), site.client("eve")
    assert topics_of(bob) == ["web-clicks"]
    change_users_file(
        site.users_file, lambda users: users.with_groups("bob", ()).with_groups("eve", ["readers"])
    )
    eventually(lambda: topics_of(bob) == [] and topics_of(eve) == ["web-clicks"])
    site.change(access=[*ACCESS, {"principal": "eve", "operations": ["all"], "allow": False}])
    assert topics_of(eve) == []
    site.change(access=[{"principal": "*", "operations": ["describe"]}])
    assert topics_of(eve) == topics_of(bob) == ["web-clicks"]
    with pytest.raises(NotAuthorizedError):
        append(site.producer("alice"), "web-clicks")


def test_a_wrong_rule_changes_nothing(make_site: Callable[..., Site]) -> None:
    site = make_site()
    append(site.producer("alice"), "web-clicks")
    values = yaml.safe_load(site.broker.config_file.read_text())
    values["access"] = [{"principal": "eve", "operations": ["write"]}]
    site.broker.config_file.write_text(yaml.safe_dump(values))
    root = site.client("root")
    with pytest.raises(HermesError, match="rule 1: 'write' is no operation"):
        root.reload_config()
    assert topics_of(root) == ["web-clicks"]
    assert topics_of(site.client("eve")) == []


QUOTA = {"requests": 40, "connections": 3}


def test_who_goes_over_a_quota_is_delayed_and_loses_nothing(make_site: Callable[..., Site]) -> None:
    http = {"http_listen": "tcp:0:interface=127.0.0.1"}
    site = make_site(quotas={"alice": QUOTA}, **http)
    producers = [site.producer("alice") for _ in range(2)]
    began = time.monotonic()
    for number in range(60):
        for producer in producers:
            append(producer, f"web-{number % 2}")
    assert time.monotonic() - began >= (120 - 40) / 40 - 0.5, "a second's worth is free"
    append(site.producer("root"), "web-0")
    root = site.client("root")
    offsets = [root.get_offsets_before(f"web-{n}", 0, LATEST, 1)[0] for n in range(2)]
    size = len(encode_message_set([b"hello"]))
    assert offsets == [61 * size, 60 * size]

    third = site.producer("alice")
    append(third, "web-0")
    with pytest.raises(HermesError):
        append(site.producer("alice"), "web-0")
    site.broker.wait_for_line("'alice' has 3 connections open, as many as its quota allows")
    line = site.broker.wait_for_line("is ready: Hermes")
    port = re.search(r"HTTP on 127\.0\.0\.1:(\d+)", line)
    assert port is not None
    site.change(access=[*ACCESS, {"principal": "anonymous", "operations": ["describe"]}])
    with urllib.request.urlopen(f"http://127.0.0.1:{port[1]}/metrics") as response:
        metrics = response.read().decode()
    delays = re.search(
        r'hermes_quota_delays_total\{principal="alice",quota="requests"\} (\S+)', metrics
    )
    assert delays is not None
    assert float(delays[1]) >= 1
    refused = re.search(
        r'hermes_quota_connections_refused_total\{principal="alice"\} (\S+)', metrics
    )
    assert refused is not None
    assert float(refused[1]) >= 1
