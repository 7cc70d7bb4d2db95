"""docs/configuration.md is what the table of settings says, and what it shows as YAML loads."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from hermes.config.broker import BROKER_SETTINGS, BrokerConfig
from hermes.config.loading import load_broker_config, parse_broker_config
from hermes.config.reference import reference
from hermes.config.topic import DEFAULT_OF, TOPIC_ONLY, TOPIC_SETTINGS
from hermes.config.yaml_text import read_yaml

ROOT = Path(__file__).parents[3]


def test_the_file_is_up_to_date() -> None:
    written = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m hermes.config > docs/configuration.md"


def test_the_module_prints_it(tmp_path: Path) -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "hermes.config"], cwd=tmp_path, capture_output=True, check=True
    )
    assert printed.stdout.decode() == reference()
    assert printed.stderr == b""


def test_every_setting_is_in_it_once() -> None:
    settings, _, _ = reference().partition("| Kafka 0.7 |")
    of_broker, _, rest = settings.partition("\n## Listeners\n")
    settings = of_broker + rest[rest.index("\n## ") :]
    rows = re.findall(r"^\| `(\w+)` \|", settings, re.MULTILINE)
    assert rows == [*BROKER_SETTINGS, *TOPIC_SETTINGS]


def test_every_broker_setting_stands_under_a_heading() -> None:
    assert all(setting.section for setting in BROKER_SETTINGS.values())


def test_every_topic_setting_falls_back_to_one_of_the_broker_or_has_a_default() -> None:
    for setting in TOPIC_SETTINGS.values():
        if setting.attribute in TOPIC_ONLY:
            assert setting.attribute not in BrokerConfig.__dataclass_fields__
            continue
        fallback = DEFAULT_OF.get(setting.attribute, setting.attribute)
        assert fallback in BrokerConfig.__dataclass_fields__


@pytest.mark.parametrize("block", re.findall(r"```yaml\n(.*?)```", reference(), re.DOTALL))
def test_its_examples_load(block: str) -> None:
    parse_broker_config(read_yaml(block.encode(), "example"))


def test_the_longer_example_loads() -> None:
    config = load_broker_config(ROOT / "examples" / "broker.yaml")
    assert config.topics, "it should show a topic of its own"
