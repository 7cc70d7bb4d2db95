"""examples/two-data-centres: from a real Kafka 4 over a mirror to Spark, through kills."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kafka_4 import KafkaProcess
from short_lived_jvm import SPARK_OPTIONS

pytestmark = pytest.mark.nightly

EXAMPLE = Path(__file__).parents[2] / "examples" / "two-data-centres" / "run.py"


def test_every_order_is_proved_to_be_there_once(tmp_path: Path) -> None:
    kafka = KafkaProcess(tmp_path)
    kafka.start()
    try:
        ran = subprocess.run(
            [sys.executable, str(EXAMPLE), kafka.address, "20000"],
            capture_output=True,
            text=True,
            env={**os.environ, **SPARK_OPTIONS},
        )
    finally:
        kafka.kill()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    killed = [line for line in ran.stdout.splitlines() if line.startswith("killed the ")]
    assert len(killed) == 4
    assert ran.stdout.endswith("proved: nothing is lost, and nothing doubled\n")
