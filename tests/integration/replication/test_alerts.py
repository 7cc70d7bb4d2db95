"""The alerts for copies: each is raised when it should be, and not before; promtool says so."""

import re
from pathlib import Path

from raised_alerts import Raised, check_alerts

from hermes.kafka.replicas.copy_metrics import FAMILIES

ROOT = Path(__file__).parents[3]
RULES = ROOT / "examples" / "monitoring" / "replicas.rules.yaml"

RAISED = {
    "HermesReplicaPartitionsOffline": Raised(
        {"hermes_replica_offline_partitions{instance='a'}": "0 3x30"},
        {"hermes_replica_offline_partitions{instance='b'}": "1 0x30"},
        2,
    ),
    "HermesReplicaUnderMinInSync": Raised(
        {"hermes_replica_under_min_isr{instance='a'}": "0 1x30"},
        {"hermes_replica_under_min_isr{instance='b'}": "0x30"},
        2,
    ),
    "HermesReplicaUnderReplicated": Raised(
        {"hermes_replica_under_replicated{instance='a'}": "2x30"},
        {"hermes_replica_under_replicated{instance='b'}": "2x8 0x20"},
        10,
    ),
    "HermesReplicaFallsBehind": Raised(
        {"hermes_replica_lag_seconds{instance='a',broker='2'}": "0 40+60x30"},
        {"hermes_replica_lag_seconds{instance='a',broker='3'}": "0 9x30"},
        6,
    ),
    "HermesReplicaCommitsSlowly": Raised(
        {
            "hermes_replica_commit_seconds_bucket{instance='a',le='1.0'}": "0+97x60",
            "hermes_replica_commit_seconds_bucket{instance='a',le='3.0'}": "0+100x60",
            "hermes_replica_commit_seconds_bucket{instance='a',le='+Inf'}": "0+100x60",
        },
        {
            "hermes_replica_commit_seconds_bucket{instance='b',le='1.0'}": "0+100x60",
            "hermes_replica_commit_seconds_bucket{instance='b',le='+Inf'}": "0+100x60",
        },
        11,
    ),
    "HermesReplicaMoveStalls": Raised(
        {
            "hermes_replica_moving{instance='a'}": "1x60",
            "hermes_replica_throttled_bytes_total{instance='a',direction='sent'}": "7x60",
        },
        {
            "hermes_replica_moving{instance='b'}": "1x60",
            "hermes_replica_throttled_bytes_total{instance='b',direction='sent'}": "0+1000x60",
        },
        16,
    ),
    "HermesReplicaInSyncChangesOften": Raised(
        {"hermes_replica_isr_changes_total{instance='a',kind='shrink'}": "0+1x60"},
        {"hermes_replica_isr_changes_total{instance='a',kind='expand'}": "0+1x60"},
        11,
    ),
    "HermesReplicaUncleanElection": Raised(
        {"hermes_replica_elections_total{instance='a',clean='no'}": "0 0 1x30"},
        {"hermes_replica_elections_total{instance='a',clean='yes'}": "0+5x30"},
        2,
    ),
}


def test_each_alert_is_raised_when_it_should_be_and_not_before(tmp_path: Path) -> None:
    families = {*FAMILIES, "hermes_replica_commit_seconds_bucket"}
    names = check_alerts(RULES, RAISED, families, tmp_path)
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(HermesReplica\w+)` \|", document, re.M)) == names


def test_every_family_is_in_the_document_and_no_other() -> None:
    document = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    rows = [line for line in document.splitlines() if line.startswith("| `hermes_replica")]
    assert rows == [
        f"| `{each.name}` | {each.kind} | {', '.join(f'`{label}`' for label in each.labels)} "
        f"| {each.help} |"
        for each in FAMILIES.values()
    ]
