"""What a real Kafka answers today is what was recorded of it."""

import json
import os
from pathlib import Path
from typing import Any

import conformance
import pytest
import record_scenes
from conformance_consumers import CONSUMER_SETTINGS
from conformance_sasl import PASSWORD, USER, authenticated, shown, told
from conformance_security import GUARDED_SETTINGS, guarded
from kafka_4 import KafkaProcess, kafka_version

SCENES = {**conformance.SCENES, **record_scenes.SCENES}
# The scenes' messages are older than a topic keeps them, and a Kafka would first look for such ones
# half a minute after its start: during whichever scene it has come to by then.
SETTINGS = {**CONSUMER_SETTINGS, "log.initial.task.delay.ms": 3_600_000}
RECORDING = Path(__file__).parents[1] / "vectors" / "kafka-4-answers.json"


LATER = Path(__file__).parents[1] / "vectors" / "kafka-4.4-answers.json"


@pytest.mark.soak
def test_kafka_still_answers_so(tmp_path: Path) -> None:
    """With `HERMES_RECORD=1` it writes the recording anew."""
    answered = _answered(tmp_path)
    recorded = {"source": f"Kafka {kafka_version()}", "answers": answered}
    if os.environ.get("HERMES_RECORD"):
        text = json.dumps(recorded, ensure_ascii=False, separators=(",", ":"))
        RECORDING.write_text(text.replace('"},"', '"},\n"').replace("]},", "]},\n") + "\n")
    before = json.loads(RECORDING.read_text(encoding="utf-8"))
    assert before["source"] == recorded["source"]
    for name in {**before["answers"], **answered}:
        assert before["answers"].get(name) == answered.get(name), name


@pytest.mark.soak
@pytest.mark.skipif("HERMES_LATER_KAFKA_JARS" not in os.environ, reason="no later Kafka is given")
def test_what_a_later_kafka_answers_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder `HERMES_LATER_KAFKA_JARS` has the jars of the recording's source."""
    monkeypatch.setenv("HERMES_KAFKA_JARS", os.environ["HERMES_LATER_KAFKA_JARS"])
    before = json.loads(RECORDING.read_text(encoding="utf-8"))["answers"]
    otherwise: dict[str, dict[str, Any]] = {}
    for name, steps in json.loads(json.dumps(_answered(tmp_path))).items():
        for label, answer in steps.items():
            if before[name].get(label) != answer:
                otherwise.setdefault(name, {})[label] = answer
    assert otherwise == json.loads(LATER.read_text(encoding="utf-8"))["otherwise"]


def _answered(tmp_path: Path) -> dict[str, Any]:
    """What a Kafka answers in each scene."""
    kafka = KafkaProcess(tmp_path / "kafka", SETTINGS, users={USER: PASSWORD})
    kafka.start()
    try:
        answered = {name: conformance.answers(play, kafka.address) for name, play in SCENES.items()}
        answered["authenticated"] = authenticated(kafka.sasl_address)
    finally:
        kafka.kill()
    secured = KafkaProcess(tmp_path / "guarded", {**SETTINGS, **GUARDED_SETTINGS})
    plain = KafkaProcess(tmp_path / "told", SETTINGS, users={USER: PASSWORD}, plain=True)
    tokens = KafkaProcess(tmp_path / "shown", SETTINGS, tokens=True)
    for other, name, ask in (
        (secured, "guarded", guarded),
        (plain, "told", told),
        (tokens, "shown", shown),
    ):
        other.start()
        try:
            answered[name] = ask(other.address if other is secured else other.sasl_address)
        finally:
            other.kill()
    return answered
