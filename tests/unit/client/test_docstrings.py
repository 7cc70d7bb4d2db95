"""Every public name says what it is, and shows how it is used."""

import ast
import inspect
import re
import textwrap
from itertools import pairwise
from types import ModuleType

import pytest

import hermes
import hermes._version
import hermes.aio
import hermes.errors
import hermes.protocol.message_set
import hermes.protocol.requests
import hermes.testing

EXAMPLE = re.compile(r"^Example:\n((?:[ ]{4}.*\n|\n)+)", re.MULTILINE)

PUBLIC = [
    (module, name) for module in (hermes, hermes.aio, hermes.testing) for name in module.__all__
]
CLASSES = {
    value
    for value in (getattr(module, name) for module, name in PUBLIC)
    if inspect.isclass(value) and value.__module__.startswith("hermes")
}
ERRORS = [
    value
    for value in vars(hermes.errors).values()
    if inspect.isclass(value) and issubclass(value, Exception)
]


# A constant has no docstring of its own: it is the text below its assignment.
HOMES = {
    "EARLIEST": hermes.protocol.requests,
    "LATEST": hermes.protocol.requests,
    "MessageAndOffset": hermes.protocol.message_set,
    "__version__": hermes._version,
}


def docstring(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if inspect.isclass(value) or inspect.isfunction(value):
        return inspect.getdoc(value) or ""
    assert name in HOMES, f"say in HOMES which module assigns {name}"
    return text_below(HOMES[name], name)


def text_below(home: ModuleType, name: str) -> str:
    """The string that stands right below the assignment to a name."""
    for statement, below in pairwise(ast.parse(inspect.getsource(home)).body):
        is_ours = (
            isinstance(statement, ast.Assign | ast.AnnAssign)
            and ast.unparse(statement).partition("=")[0].partition(":")[0].strip() == name
        )
        if is_ours and isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant):
            return inspect.cleandoc(str(below.value.value))
    return ""


def example(text: str) -> str:
    """The code of an `Example:` section, or nothing."""
    found = EXAMPLE.search(text + "\n")
    return textwrap.dedent(found[1]) if found else ""


@pytest.mark.parametrize(
    ("module", "name"),
    [each for each in PUBLIC if not each[1].endswith("Error")],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_a_public_name_has_a_docstring_with_an_example(module: ModuleType, name: str) -> None:
    text = docstring(module, name)
    assert text, f"{module.__name__}.{name} has no docstring"
    code = example(text)
    assert code.strip(), f"{module.__name__}.{name} shows no example"
    ast.parse("async def main():\n" + textwrap.indent(code, "    "))  # it is Python


@pytest.mark.parametrize("error", ERRORS, ids=lambda each: each.__name__)
def test_an_error_says_what_it_means(error: type[Exception]) -> None:
    assert error.__doc__
    assert error.__doc__.splitlines()[0].endswith(".")


@pytest.mark.parametrize("owner", sorted(CLASSES, key=str), ids=lambda each: each.__qualname__)
def test_a_public_method_has_a_docstring(owner: type) -> None:
    for name, member in vars(owner).items():
        if name.startswith("_") or not (callable(member) or hasattr(member, "__get__")):
            continue
        if inspect.ismemberdescriptor(member):  # a slot: the class tells of its attributes
            continue
        assert inspect.getdoc(getattr(owner, name)), f"{owner.__qualname__}.{name}"


@pytest.mark.parametrize(
    "text", ["Something.", "Something.\n\nArgs:\n    x: y.\n", "Example: in words."]
)
def test_a_docstring_without_a_section_of_examples_is_noticed(text: str) -> None:
    assert example(text) == ""
