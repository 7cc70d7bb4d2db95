"""docs/mirror.md lists the settings of a mirror as the table has them."""

from pathlib import Path

from hermes.config.mirror import MIRROR_SETTINGS, load_mirror_config
from hermes.config.reference import shown_default

ROOT = Path(__file__).parents[3]


def test_the_document_lists_every_setting() -> None:
    document = (ROOT / "docs" / "mirror.md").read_text(encoding="utf-8")
    section = document.partition("\n## Settings\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{each.key}` | {each.kind.name} | {shown_default(each)} | {each.doc} |"
        for each in MIRROR_SETTINGS.values()
    ]


def test_the_example_loads() -> None:
    config = load_mirror_config(ROOT / "examples" / "mirror.yaml")
    assert config.topics.target_of("clicks") == "east.clicks"
