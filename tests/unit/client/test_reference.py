"""docs/client-settings.md is what the configurations say."""

import re
from dataclasses import fields
from pathlib import Path

from hermes.client import ProducerConfig
from hermes.client.groups import ConsumerConfig
from hermes.client.reference import reference
from hermes.security import ClientSecurity

DOCUMENT = Path(__file__).parents[3] / "docs" / "client-settings.md"


def test_the_file_is_up_to_date() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == reference(), (
        "run: python -m hermes.client.reference > docs/client-settings.md"
    )


def test_every_setting_is_in_it_once_with_its_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \| (.+) \|$", reference(), re.MULTILINE)
    security = [each.name for each in fields(ClientSecurity)]
    expected = [
        each.name
        for config in (ProducerConfig, ConsumerConfig)
        for each in fields(config)
        if each.name not in security
    ]
    expected += security
    assert [name for name, _ in rows] == expected
    assert all(meaning.endswith((".", ".)")) for _, meaning in rows)
