"""Each line that the broker can log is explained in docs/log-lines.md, and no other is.

Of those that embedded coordination logs the ones are that concern who runs a broker.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
LEVELS = {"info", "warn", "warning", "error", "critical", "exception", "failure"}
#: The rooms whose every line is explained.
BROKER = ("broker", "server", "partition", "cluster", "v0_7", "web", "listening")
OWNERS = {"lines", "_lines", "limited_log", "_limited_log", "log", "_log", "_logger"}


def logged_templates(package: str) -> Iterator[str]:
    """The texts that a package hands to its loggers, with `...` for what is filled in."""
    for path in (ROOT / "hermes" / package).glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and is_logging(node.func):
                texts = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
                if texts:
                    yield re.sub(r"\{\w+\}(-?\{\w+\})?|%[sd]", "...", str(texts[-1]))


def is_logging(function: ast.expr) -> bool:
    """Whether a call is `self._log.info(...)`, `self.factory.lines.error(...)` or the like."""
    if not isinstance(function, ast.Attribute) or function.attr not in LEVELS:
        return False
    return ast.unparse(function.value).rpartition(".")[2] in OWNERS


def test_every_line_is_explained() -> None:
    document = (ROOT / "docs" / "log-lines.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `([^`]+)` \| \w+ \|", document, re.MULTILINE)
    logged = {template for room in BROKER for template in logged_templates(room)}
    coordination = "coordination", "coordination/embedded"
    kafka = "kafka", *(f"kafka/{each.name}" for each in (ROOT / "hermes" / "kafka").iterdir())
    rooms = ("", *coordination, "registry", "mirror", *kafka, "groups")
    others = [each for room in rooms for each in logged_templates(room)]
    assert logged - set(explained) == set()
    assert len(explained) == len(set(explained))
    for line in set(explained) - logged:
        assert any(each.startswith(line.removesuffix("...")) for each in others), line
