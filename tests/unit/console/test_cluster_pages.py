"""What the overview shows; the cluster is the test's own."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hermes.config.addresses import BrokerAddress
from hermes.console.cluster_client import ClusterClient
from hermes.console.cluster_pages import _overview
from hermes.console.cluster_sampler import ClusterView, TopicRow
from hermes.console.page_request import PageRequest
from hermes.console.pages import Console
from hermes.console.sessions import Access


def test_a_concern_leads_to_its_topic_whatever_its_name_holds() -> None:
    """Data directories of Kafka 0.7 have names that are not allowed any more."""
    console = Console(ClusterClient(BrokerAddress("broker", 9092)), Access(None), lambda: False)
    view = ClusterView(0.0, (), {"a#b?": TopicRow("a#b?", 1, 0, None, 1)}, None, (), (), 2000)
    stubs: dict[str, Any] = {
        "cluster": SimpleNamespace(coordination_error=lambda: "there is none"),
        "sampler": SimpleNamespace(view=lambda: view),
        "topics": SimpleNamespace(problems=lambda *_: [("a#b?", "partition 0: no disk")]),
    }
    page = _overview(replace(console.sources, **stubs), PageRequest("GET", ()))
    assert b'href="/topics/a%23b%3F">Show<' in page.body  # type: ignore[operator]
