"""YAML as broker.yaml means it: PyYAML's safe loader without the surprises of YAML 1.1.

`no` and `on` are strings, not booleans; `010`, `1:30` and dates are strings, not numbers in
disguise; a key given twice is an error; and every key is a string as written in the file (a topic
may be called `123`). What is written here reads the same by the rules of 1.1 and 1.2.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import yaml

from hermes.config.files import read_regular_file
from hermes.errors import ConfigError
from hermes.quoting import quoted

_WHOLE = r"[-+]?(?:0|[1-9][0-9_]*)"
_TAGS = (
    # tag, what a plain scalar of it looks like, the characters that it can start with
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", _WHOLE, list("-+0123456789")),
    (
        "float",
        rf"{_WHOLE}(?:\.[0-9]+(?:[eE][-+]?[0-9]+)?|[eE][-+]?[0-9]+)",
        list("-+0123456789"),
    ),
)


#: How many values all aliases of a document together may repeat.
_MOST_REPEATED = 10_000


class _Loader(yaml.SafeLoader):
    """The safe loader with the stricter rules of the module's docstring."""

    # A table of its own, so that none of SafeLoader's resolvers is inherited.
    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}  # type: ignore[misc]

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise _invalid("a key must be a string", key_node)
            if key_node.value in mapping:
                raise _invalid(f"{quoted(key_node.value)} is given twice", key_node)
            mapping[key_node.value] = self.construct_object(value_node, deep=deep)
        return mapping


for _tag, _pattern, _first in _TAGS:
    _Loader.add_implicit_resolver(
        f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first
    )


class _Dumper(yaml.SafeDumper):
    """The safe dumper; quotes whatever either version's rules would take for something else."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {  # type: ignore[misc]
        first: [
            *yaml.SafeDumper.yaml_implicit_resolvers.get(first, []),
            *_Loader.yaml_implicit_resolvers.get(first, []),
        ]
        for first in {*yaml.SafeDumper.yaml_implicit_resolvers, *_Loader.yaml_implicit_resolvers}
    }


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    # Line breaks of YAML 1.1 that PyYAML folds when it quotes them singly: escape them instead.
    style = '"' if any(character in text for character in "\x85\u2028\u2029") else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def _check_aliases(root: yaml.Node) -> None:
    """Refuse a document whose aliases expand to very much: a few lines can mean gigabytes."""
    sizes: dict[int, int] = {}
    if _size_of(root, sizes, set()) > len(sizes) + _MOST_REPEATED:
        raise _invalid(f"its aliases repeat more than {_MOST_REPEATED} values", root)


def _size_of(node: yaml.Node, sizes: dict[int, int], around: set[int]) -> int:
    """A node with what it holds, aliases expanded; `sizes` has those that were met."""
    key = id(node)
    if key in around:
        raise _invalid("an alias is part of what it refers to", node)
    if key not in sizes:
        around.add(key)
        sizes[key] = 1 + sum(_size_of(each, sizes, around) for each in _within(node))
        around.discard(key)
    return sizes[key]


def _within(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return chain.from_iterable(node.value)
    return iter(node.value if isinstance(node, yaml.SequenceNode) else ())


def _invalid(problem: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.constructor.ConstructorError(None, None, problem, node.start_mark)


def read_yaml_file(path: str | Path, max_bytes: int) -> object:
    """Parse a file as `read_yaml` does; that it can't be read is a ConfigError, too."""
    try:
        content = read_regular_file(path, max_bytes)
    except OSError as error:
        raise ConfigError("", f"can't be read: {error.strerror}", source=str(path)) from None
    return read_yaml(content, str(path))


def read_yaml(content: bytes, source: str) -> object:
    """Parse one YAML document: UTF-8, or UTF-16 with a byte order mark.

    Returns:
        Mappings with string keys, lists, strings, numbers, booleans or None.

    Raises:
        ConfigError: this is not YAML; one line that names the file, the line and the problem.
    """
    try:
        loader = _Loader(content)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _check_aliases(node)
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = error.problem or error.context
        raise ConfigError(where, f"not valid YAML: {problem}", source=source) from None
    except (yaml.YAMLError, UnicodeError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise ConfigError("", f"not valid YAML: {problem}", source=source) from None
    except RecursionError:
        raise ConfigError("", "not valid YAML: nested too deeply", source=source) from None


def write_yaml(values: Mapping[str, object]) -> str:
    text: str = yaml.dump(
        dict(values),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=True,
        default_flow_style=False,
        width=1 << 20,  # a long value stays on its line
    )
    return text
