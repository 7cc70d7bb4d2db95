"""The examples for Prometheus and Grafana, evaluated by promtool on what a broker really says."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from certificates import Certificates
from hermes_testkit import RawClient, fetch, message, produce_acknowledged
from scraping import Scrape, get, until
from tls_clients import tls_listener

from hermes import Consumer, ConsumerConfig
from hermes.coordination.group_state import store_offsets
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Session
from hermes.testing import RunningBroker, running_broker

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
def scrapes(certificates: Certificates) -> Iterator[list[str]]:
    """Two scrapes of a broker, as text; every kind of series has grown in between."""
    settings = {
        "listen": ["tcp:0:interface=127.0.0.1", tls_listener(certificates.server)],
        "http_listen": "tcp:0:interface=127.0.0.1",
        "kafka_listen": "tcp:0:interface=127.0.0.1",
        "coordination": "embedded",
        "topics": {"counted": {"format": "kafka", "partitions": 1}},
    }
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
                    _store(broker, "counted")
                until(str(broker.http), _is_complete)
                texts.append(get(f"{broker.http}/metrics")[1])
        yield texts


def _is_complete(found: Scrape) -> bool:
    names = {name for name, _ in found.samples}
    lag = found.samples["hermes_reactor_lag_seconds_count", frozenset()]
    return {"hermes_group_lag_bytes", "hermes_group_lag_messages"} <= names and lag > 0


def _store(broker: RunningBroker, topic: str) -> None:
    session = Session(str(broker.zookeeper_connect))
    session.start()
    try:
        store_offsets(session, "counting", {(topic, BrokerPartition(0, 0)): 0})
    finally:
        session.stop()


def expressions() -> list[str]:
    """Those of the dashboard, with its variables filled in."""
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    assert len(found) > 30
    return [each.replace("$instance", ".*").replace("$__rate_interval", "5m") for each in found]


def test_prometheus_takes_the_files() -> None:
    promtool("check", "config", EXAMPLES / "prometheus.yaml")
    promtool("check", "config", "--syntax-only", EXAMPLES / "prometheus-tls.yaml")
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


# Of each alert the series of a broker for which it is to be raised, one value a minute; those that
# are to stay silent; and after how many minutes it is raised, but not a minute earlier.
_LATE = "hermes_flush_seconds_bucket{le='%s',instance='a'}"
_LAG = "hermes_reactor_lag_seconds_bucket{le='%s',instance='a'}"
_RAISED: dict[str, tuple[dict[str, str], dict[str, str], int]] = {
    "HermesDown": (
        {"up{job='hermes',instance='a'}": "1 1 0x30"},
        {"up{job='hermes',instance='b'}": "1x30"},
        3,
    ),
    "HermesNotReady": (
        {"hermes_ready{check='disk'}": "1 0x30"},
        {"hermes_ready{check='ports'}": "1x30"},
        3,
    ),
    "HermesPartitionsOffline": (
        {"hermes_logs_offline{instance='a'}": "0 2x30"},
        {"hermes_logs_offline{instance='b'}": "0x30"},
        2,
    ),
    "HermesFlushesFail": (
        {"hermes_flush_failures_total{instance='a'}": "4 4 5x30"},
        {"hermes_flush_failures_total{instance='b'}": "4x30"},
        2,
    ),
    "HermesFlushesSlow": (
        {_LATE % "1.0": "0+98x40", _LATE % "2.5": "0+100x40", _LATE % "+Inf": "0+100x40"},
        {each.replace("'a'", "'b'"): "0+100x40" for each in (_LATE % "1.0", _LATE % "+Inf")},
        11,
    ),
    "HermesReactorLate": (
        {_LAG % "0.3": "0+98x40", _LAG % "1.0": "0+100x40", _LAG % "+Inf": "0+100x40"},
        {each.replace("'a'", "'b'"): "0+100x40" for each in (_LAG % "0.3", _LAG % "+Inf")},
        11,
    ),
    "HermesRequestsRefused": (
        {"hermes_requests_refused_total{instance='a',type='fetch',reason='invalid'}": "0+90x40"},
        {"hermes_requests_refused_total{instance='b',type='fetch',reason='invalid'}": "0+30x40"},
        14,
    ),
    "HermesConnectionsRefused": (
        {"hermes_connections_refused_total{instance='a'}": "0 0 3x30"},
        {"hermes_connections_refused_total{instance='b'}": "3x30"},
        2,
    ),
    "HermesRequestMemoryUsedUp": (
        {"hermes_request_memory_bytes{use='all'}": "95x30"},
        {"hermes_request_memory_bytes{use='held'}": "80x30"},
        5,
    ),
    "HermesOpenFilesRunOut": (
        {
            "process_open_fds{job='hermes',instance='a'}": "900x30",
            "process_max_fds{job='hermes',instance='a'}": "1000x30",
        },
        {
            "process_open_fds{job='hermes',instance='b'}": "700x30",
            "process_max_fds{job='hermes',instance='b'}": "1000x30",
        },
        5,
    ),
    "HermesDataLostInRecovery": (
        {
            "hermes_recovery_dropped_bytes{instance='a'}": "_ 12x80",
            "process_start_time_seconds{instance='a'}": "_ 60x80",
        },
        {
            "hermes_recovery_dropped_bytes{instance='b'}": "_ 0x80",
            "process_start_time_seconds{instance='b'}": "_ 60x80",
        },
        1,
    ),
    "HermesMessagesDamaged": (
        {"hermes_logs_damaged{instance='a'}": "0 1x30"},
        {"hermes_logs_damaged{instance='b'}": "0x30"},
        1,
    ),
    "HermesAuthenticationsFail": (
        {"hermes_authentications_total{instance='a',mechanism='m',result='wrong'}": "0+90x40"},
        {
            "hermes_authentications_total{instance='a',mechanism='m',result='accepted'}": "0+90x40",
            "hermes_authentications_total{instance='b',mechanism='m',result='wrong'}": "0+6x40",
        },
        11,
    ),
    "HermesUsersFileBroken": (
        {"hermes_users_current{instance='a'}": "0x30"},
        {"hermes_users_current{instance='b'}": "1x30"},
        2,
    ),
    "HermesCertificateEnds": (
        {"hermes_tls_certificate_end_timestamp_seconds{instance='a'}": "1209600x30"},
        {"hermes_tls_certificate_end_timestamp_seconds{instance='b'}": "1300000x30"},
        11,
    ),
    "HermesTransactionHangs": (
        {"hermes_transactions_silent_seconds{instance='a'}": "0+60x60"},
        {"hermes_transactions_silent_seconds{instance='b'}": "0+60x19 0x40"},
        26,
    ),
    "HermesTransactionEndsSlowly": (
        {"hermes_transactions_oldest_seconds{instance='a',state='ending'}": "0+60x30"},
        {
            "hermes_transactions_oldest_seconds{instance='b',state='ending'}": "30x30",
            "hermes_transactions_oldest_seconds{instance='b',state='ongoing'}": "0+60x30",
        },
        7,
    ),
    "HermesGroupFallsBehind": (
        {"hermes_group_lag_bytes{group='g',topic='t'}": "2000000000+1000x90"},
        {"hermes_group_lag_bytes{group='h',topic='t'}": "2000000000-1000x90"},
        31,
    ),
    "HermesGroupFallsBehindInMessages": (
        {"hermes_group_lag_messages{group='g',topic='t'}": "2000000+10x90"},
        {"hermes_group_lag_messages{group='h',topic='t'}": "2000000-10x90"},
        31,
    ),
    "HermesGroupOffsetsUnread": (
        {"hermes_group_offsets_timestamp_seconds{instance='a'}": "0x30"},
        {"hermes_group_offsets_timestamp_seconds{instance='b'}": "0+60x30"},
        11,
    ),
}
_ALWAYS = {"hermes_request_memory_limit_bytes{use='all'}": "100x30"} | {
    "hermes_request_memory_limit_bytes{use='held'}": "100x30"
}


def test_each_alert_is_raised_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    assert _RAISED.keys() == {rule["alert"] for group in _rules() for rule in group["rules"]}
    tests = []
    for alert, (raising, silent, minutes) in _RAISED.items():
        raised = f"count(ALERTS{{alertname='{alert}',alertstate='firing'}})"
        series = {**raising, **silent, **_ALWAYS}
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": [{"series": k, "values": v} for k, v in series.items()],
                "promql_expr_test": [
                    {"expr": raised, "eval_time": f"{minutes - 1}m", "exp_samples": []},
                    {
                        "expr": raised,
                        "eval_time": f"{minutes}m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                ],
            }
        )
    path = tmp_path / "tests.yaml"
    rules = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    path.write_text(yaml.safe_dump(rules), encoding="utf-8")
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
    explained = set(re.findall(r"^\| `(Hermes(?!Mirror|Replica)\w+)` \|", document, re.M))
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
