"""The alerts for mirrors: each is raised when it should be, and not before; promtool says so."""

import re
from pathlib import Path

from raised_alerts import Raised, check_alerts

from hermes.mirror.mirror_metrics import FAMILIES

ROOT = Path(__file__).parents[3]
RULES = ROOT / "examples" / "monitoring" / "mirror.rules.yaml"

RAISED = {
    "HermesMirrorTroubled": Raised(
        {"hermes_mirror_troubles{instance='a'}": "0 1x30"},
        {"hermes_mirror_troubles{instance='b'}": "1 1 0x30"},
        6,
    ),
    "HermesMirrorFallsBehind": Raised(
        {"hermes_mirror_lag_bytes{source='s',topic='t',partition='0-0'}": "2e9+1e6x90"},
        {"hermes_mirror_lag_bytes{source='s',topic='u',partition='0-0'}": "2e9x90"},
        31,
    ),
    "HermesMirrorLosesMessages": Raised(
        {"hermes_mirror_lost_bytes_total{source='s',topic='t'}": "5 5 5 6x30"},
        {"hermes_mirror_lost_bytes_total{source='s',topic='u'}": "5x30"},
        3,
    ),
    "HermesMirrorRefusesTopics": Raised(
        {"hermes_mirror_refused_topics{instance='a'}": "2x30"},
        {"hermes_mirror_refused_topics{instance='b'}": "0x30"},
        5,
    ),
}


def test_each_alert_is_raised_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    names = check_alerts(RULES, RAISED, FAMILIES, tmp_path)
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(HermesMirror\w+)` \|", document, re.M)) == names
