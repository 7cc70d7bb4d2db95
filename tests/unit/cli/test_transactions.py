"""`hermes transactions`, whose brokers are played."""

from typing import Any

import pytest

from hermes.client.kafka_transactions import CoordinatedTransaction, KafkaTransactions


def test_a_groups_name_is_escaped_for_a_terminal(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's name comes from whoever commits for it, and a terminal obeys what it holds."""
    places = (("__consumer_offsets/g\x1b[2J", 0),)
    found = CoordinatedTransaction("t", 1, "Ongoing", 7, 0, 60_000, None, places)
    monkeypatch.setattr(KafkaTransactions, "_reach", lambda _, places: next(iter(places)))
    monkeypatch.setattr(KafkaTransactions, "describe", lambda _, name: found)
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True, raising=False)
    shown = run("transactions", "describe", "t", "-k", "localhost:1", color=True).stdout
    assert "partitions       __consumer_offsets/g\\x1b[2J:0\n" in shown
    assert "\x1b" not in shown
