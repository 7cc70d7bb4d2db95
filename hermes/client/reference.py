"""docs/client-settings.md, written from the client's configurations so that it can't fall behind.

`python -m hermes.client.reference` prints it; a test compares it with the file. What a setting
means is the entry of its class's docstring.
"""

import inspect
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType, UnionType
from typing import Any, Final, Literal, get_args, get_origin, get_type_hints

from hermes.client.groups.config import ConsumerConfig
from hermes.client.producer_config import ProducerConfig
from hermes.security import ClientSecurity

_INTRODUCTION: Final = """\
# Client settings

<!-- Written by `python -m hermes.client.reference > docs/client-settings.md`. -->

Both configurations are dataclasses with keyword arguments, checked when they are created: a wrong
setting raises `ConfigError`, which names it. Durations are strings (`"500ms"`, `"2s"`, `"1m"`) or
numbers of milliseconds, as in Kafka 0.7; only settings named `..._seconds` are numbers of seconds.
Sizes are numbers of bytes.
"""

_SECURITY: Final = """\
## Security

Both configurations have these, too; `SimpleConsumer`, `SyncProducer` and those of `hermes.aio` take
them as keyword arguments. See [security.md](security.md#clients).
"""

_WORDS: Final[Mapping[Any, str]] = {
    str: "string",
    int: "whole number",
    float: "seconds",
    bool: "`True` or `False`",
    Any: "name or object",
    NoneType: "`None`",
}


def reference() -> str:
    """The whole of docs/client-settings.md."""
    parts = [_INTRODUCTION]
    for config, guide in ((ProducerConfig, "client.md"), (ConsumerConfig, "groups.md")):
        parts.append(f"## `{config.__name__}`\n\nSee [{guide}]({guide}).\n")
        parts.append("\n".join(_table(config)) + "\n")
    parts.append(_SECURITY)
    parts.append("\n".join(_table(ClientSecurity)) + "\n")
    return "\n".join(parts)


def _table(config: type) -> Iterator[str]:
    yield "| setting | value | default | meaning |"
    yield "|---|---|---|---|"
    meanings, hints = _meanings(config), get_type_hints(config)
    inherited = {} if config is ClientSecurity else _meanings(ClientSecurity)
    for each in fields(config):
        if each.name in inherited:
            continue
        default = each.default if each.default_factory is MISSING else each.default_factory()
        shown = "**required**" if default is MISSING else f"`{default!r}`"
        value = _value(hints[each.name])
        yield f"| `{each.name}` | {value} | {shown} | {meanings[each.name]} |"


def _meanings(config: type) -> dict[str, str]:
    text = inspect.getdoc(config) or ""
    _, _, entries = text.partition("Attributes:\n")
    entries = re.split(r"\n\n", entries, maxsplit=1)[0]
    found = re.findall(r"^ {4}(\w+): (.*(?:\n {8}.*)*)", entries, re.MULTILINE)
    return {name: " ".join(meaning.split()).replace("|", "\\|") for name, meaning in found}


def _value(hint: Any) -> str:
    if get_origin(hint) is Literal:
        return " or ".join(f'`"{word}"`' for word in get_args(hint))
    if isinstance(hint, UnionType) or NoneType in get_args(hint):
        members = list(get_args(hint))
        words = ["duration"] if {str, float} <= set(members) else []
        words += [_value(each) for each in members if each not in (str, float)]
        return " or ".join(words)
    if get_origin(hint) is Mapping:
        return "mapping"
    if get_origin(hint) is Sequence:
        return "list"
    return _WORDS[hint]


if __name__ == "__main__":
    sys.stdout.write(reference())
