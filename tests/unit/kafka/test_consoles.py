"""What docs/kafka.md says that consoles ask for is announced, and what is absent is not."""

import re
from pathlib import Path

import pytest

from hermes.kafka.apis import APIS

PAGE = (Path(__file__).parents[3] / "docs" / "kafka.md").read_text(encoding="utf-8")
CONSOLES = PAGE.partition("### Consoles")[2].partition("\n## ")[0]
ABSENT = PAGE.partition("## What is absent")[2].partition("\n## ")[0]
ROWS = [
    [cell.strip() for cell in row.split("|")[1:5]]
    for row in CONSOLES.splitlines()
    if row.startswith("| ")
][1:]

# What a request is called, among other words.
NAME = re.compile(r"\b(?:[A-Z][a-z]+){2,}\b|\bMetadata\b|\bFetch\b|\bProduce\b")
ANNOUNCED = {each.name for each in APIS.values()}


@pytest.mark.parametrize(("asked", "works"), [row[2:] for row in ROWS], ids=[r[1] for r in ROWS])
def test_consoles_find_what_they_ask_for(asked: str, works: str) -> None:
    wanted = set(NAME.findall(asked))
    if works.startswith("no: "):
        assert wanted.isdisjoint(ANNOUNCED)
        assert all(name in ABSENT for name in wanted)
    else:
        assert wanted <= ANNOUNCED


def test_the_three_are_there_with_many_requests() -> None:
    assert [row[0] for row in ROWS if row[0]] == [
        "kafka-ui, 1.5",
        "AKHQ, 0.26",
        "Redpanda Console, 3.x",
        "all three",
    ]
    assert len({name for row in ROWS for name in NAME.findall(row[2])}) > 30


def test_what_is_absent_is_not_announced() -> None:
    rows = [row.split("|") for row in ABSENT.splitlines() if row.startswith("| ")][1:]
    named = {name for row in rows for name in NAME.findall(row[2])}
    assert len(named) > 10
    assert named.isdisjoint(ANNOUNCED)
