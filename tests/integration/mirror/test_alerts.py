"""The alerts for mirrors: each is raised when it should be, and not before; promtool says so."""

import re
import subprocess
from pathlib import Path

import yaml

from hermes.mirror.mirror_metrics import FAMILIES

ROOT = Path(__file__).parents[3]
RULES = ROOT / "examples" / "monitoring" / "mirror.rules.yaml"

# Of each alert the series for which it is to be raised, one value a minute; those that are to stay
# silent; and after how many minutes it is raised, but not a minute earlier.
RAISED: dict[str, tuple[dict[str, str], dict[str, str], int]] = {
    "HermesMirrorTroubled": (
        {"hermes_mirror_troubles{instance='a'}": "0 1x30"},
        {"hermes_mirror_troubles{instance='b'}": "1 1 0x30"},
        6,
    ),
    "HermesMirrorFallsBehind": (
        {"hermes_mirror_lag_bytes{source='s',topic='t',partition='0-0'}": "2e9+1e6x90"},
        {"hermes_mirror_lag_bytes{source='s',topic='u',partition='0-0'}": "2e9x90"},
        31,
    ),
    "HermesMirrorLosesMessages": (
        {"hermes_mirror_lost_bytes_total{source='s',topic='t'}": "5 5 5 6x30"},
        {"hermes_mirror_lost_bytes_total{source='s',topic='u'}": "5x30"},
        3,
    ),
    "HermesMirrorRefusesTopics": (
        {"hermes_mirror_refused_topics{instance='a'}": "2x30"},
        {"hermes_mirror_refused_topics{instance='b'}": "0x30"},
        5,
    ),
}


def promtool(*arguments: object) -> None:
    ended = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_each_alert_is_raised_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    promtool("check", "rules", RULES)
    (group,) = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    rules = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    assert RAISED.keys() == rules.keys()
    for expression in rules.values():
        assert set(re.findall(r"hermes_\w+", expression)) <= FAMILIES.keys()
    tests = []
    for alert, (raising, silent, minutes) in RAISED.items():
        raised = f"count(ALERTS{{alertname='{alert}',alertstate='firing'}})"
        fires = {"expr": raised, "exp_samples": [{"labels": "{}", "value": 1}]}
        tests.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": [
                    {"series": k, "values": v} for k, v in {**raising, **silent}.items()
                ],
                "promql_expr_test": [
                    {"expr": raised, "eval_time": f"{minutes - 1}m", "exp_samples": []},
                    {**fires, "eval_time": f"{minutes}m"},
                ],
            }
        )
    path = tmp_path / "tests.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}),
        encoding="utf-8",
    )
    promtool("test", "rules", path)
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(HermesMirror\w+)` \|", document, re.M)) == rules.keys()
