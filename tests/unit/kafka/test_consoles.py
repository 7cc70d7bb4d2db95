"""What docs/kafka.md says that consoles ask for is announced, and what is absent is not."""

import re
from pathlib import Path

import pytest

from hermes.kafka.apis import APIS

PAGE = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text(encoding="utf-8")
CONSOLES = PAGE.partition("### Consoles")[2].partition("\n## ")[0]
ABSENT = PAGE.partition("## What is absent")[2].partition("\n## ")[0]
ROWS = [row.split("|")[1:4] for row in CONSOLES.splitlines() if row.startswith("| ")][1:]

# What a request is called, among other words.
NAME = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b|\bMetadata\b")
ANNOUNCED = {each.name for each in APIS.values()}


@pytest.mark.parametrize(("asked", "absent"), [row[1:] for row in ROWS], ids=[r[0] for r in ROWS])
def test_consoles_find_what_they_ask_for(asked: str, absent: str) -> None:
    wanted = set(NAME.findall(asked))
    assert len(wanted) > 10
    assert wanted <= ANNOUNCED
    missing = set(NAME.findall(absent))
    assert missing.isdisjoint(ANNOUNCED)
    assert all(name in ABSENT for name in missing)


def test_what_is_absent_is_not_announced() -> None:
    rows = [row.split("|") for row in ABSENT.splitlines() if row.startswith("| ")][1:]
    named = {name for row in rows for name in NAME.findall(row[2])}
    assert len(named) > 10
    assert named.isdisjoint(ANNOUNCED)
