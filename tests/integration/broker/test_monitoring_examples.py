"""The examples for Prometheus and Grafana, evaluated by promtool on what a broker really says."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hermes_testkit import RawClient, fetch, message, produce_acknowledged
from scraping import Scrape, get, until

from hermes import Consumer, ConsumerConfig
from hermes.testing import running_broker

EXAMPLES = Path(__file__).parents[3] / "examples" / "monitoring"
RULES = EXAMPLES / "hermes.rules.yaml"
DASHBOARD = EXAMPLES / "hermes-dashboard.json"


def promtool(*arguments: object, stdin: str = "") -> str:
    ended = subprocess.run(
        ["promtool", *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def scrapes() -> Iterator[list[str]]:
    """Two scrapes of a broker, as text; every kind of series has grown in between."""
    settings = {"http_listen": "tcp:0:interface=127.0.0.1", "coordination": "embedded"}
    with running_broker(settings=settings) as broker:
        texts = []
        config = ConsumerConfig(group="g", zookeeper_connect=str(broker.zookeeper_connect))
        with RawClient(broker.port) as client, Consumer.create(config) as connector:
            for _ in range(2):
                for number in range(3):
                    client.call(produce_acknowledged(("t", 0, message(b"%d" % number))))
                client.call(fetch("t", 0, 0))
                client.call(fetch("t", 0, 1_000_000))
                if not texts:
                    (stream,) = connector.create_message_streams({"t": 1})["t"]
                    next(stream)
                    connector.commit_offsets()
                until(str(broker.http), _is_complete)
                texts.append(get(f"{broker.http}/metrics")[1])
        yield texts


def _is_complete(found: Scrape) -> bool:
    names = {name for name, _ in found.samples}
    lag = found.samples["hermes_reactor_lag_seconds_count", frozenset()]
    return "hermes_group_lag_bytes" in names and lag > 0


def expressions() -> list[str]:
    """Those of the dashboard, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(found) > 30
    return [each.replace("$instance", ".*").replace("$__rate_interval", "5m") for each in found]


def test_prometheus_takes_the_files() -> None:
    promtool("check", "config", EXAMPLES / "prometheus.yaml")
    promtool("check", "rules", RULES)


def test_names_and_types_are_as_prometheus_recommends(scrapes: list[str]) -> None:
    promtool("check", "metrics", stdin=scrapes[1])


def test_every_expression_finds_something_and_no_alert_is_raised(
    scrapes: list[str], tmp_path: Path
) -> None:
    series = _series(scrapes)
    alerts = [rule for group in _rules() for rule in group["rules"]]
    tests = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": f"count({each}) > bool 0",
                        "eval_time": "5m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    }
                    for each in expressions()
                ],
                "alert_rule_test": [
                    {"eval_time": "5m", "alertname": rule["alert"], "exp_alerts": []}
                    for rule in alerts
                ],
            }
        ],
    }
    path = tmp_path / "tests.yaml"
    path.write_text(yaml.safe_dump(tests), encoding="utf-8")
    promtool("test", "rules", path)


def test_alerts_are_about_series_that_there_are(scrapes: list[str]) -> None:
    there = set(re.findall(r"^(\w+)", scrapes[1], re.M))
    for group in _rules():
        for rule in group["rules"]:
            names = set(re.findall(r"\b(?:hermes|process)_\w+", rule["expr"]))
            assert names or rule["alert"] == "HermesDown"
            assert names <= there, rule["alert"]


def test_each_alert_is_in_the_document() -> None:
    document = (EXAMPLES.parents[1] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    explained = set(re.findall(r"^\| `(Hermes\w+)` \|", document, re.M))
    assert explained == {rule["alert"] for group in _rules() for rule in group["rules"]}


def _rules() -> list[dict[str, Any]]:
    groups: list[dict[str, Any]] = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return groups


def _series(texts: list[str]) -> list[dict[str, str]]:
    """What promtool is given: each series at the first scrape and, from a minute on, the second.

    Its clock starts at 0, and so does the broker's here.
    """
    first, second = (Scrape(text).samples for text in texts)
    started = second["process_start_time_seconds", frozenset()]
    found = []
    for (name, labels), value in second.items():
        pairs = {**dict(labels), "job": "hermes", "instance": "127.0.0.1:9093"}
        text = ",".join(f"{label}={json.dumps(given)}" for label, given in sorted(pairs.items()))
        before = first.get((name, labels), 0.0)
        if name.endswith("_timestamp_seconds") or name == "process_start_time_seconds":
            before, value = before - started, value - started
        found.append({"series": f"{name}{{{text}}}", "values": f"{before:.9g} {value:.9g}x10"})
    up = 'up{job="hermes",instance="127.0.0.1:9093"}'
    return [*found, {"series": up, "values": "1 1x10"}]
