"""Alerts of an example, evaluated by promtool: raised when they should be, and not before."""

import re
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import yaml

__all__ = ["Raised", "check_alerts"]


class Raised(NamedTuple):
    """When an alert is to be raised; series have one value a minute.

    Attributes:
        raising: series for which it is to be.
        silent: those for which it is not.
        minutes: after how many it is raised, but not a minute earlier.
    """

    raising: Mapping[str, str]
    silent: Mapping[str, str]
    minutes: int


def check_alerts(
    rules: Path, wanted: Mapping[str, Raised], families: Collection[str], directory: Path
) -> set[str]:
    """Check all alerts of a file, which are about some of the families; returns their names."""
    _promtool("check", "rules", rules)
    (group,) = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    expressions = {rule["alert"]: rule["expr"] for rule in group["rules"]}
    assert wanted.keys() == expressions.keys()
    for expression in expressions.values():
        assert set(re.findall(r"hermes_\w+", expression)) <= set(families)
    tests = []
    for alert, (raising, silent, minutes) in wanted.items():
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
    path = directory / "tests.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}),
        encoding="utf-8",
    )
    _promtool("test", "rules", path)
    return set(expressions)


def _promtool(*arguments: object) -> None:
    ended = subprocess.run(
        ["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
