"""docs/plugins.md has the signature of every method of every plugin kind."""

from pathlib import Path

import pytest
from zope.interface import Interface

from hermes import interfaces

DOCUMENT = Path(__file__).parents[3] / "docs" / "plugins.md"
KINDS = [
    value
    for value in vars(interfaces).values()
    if isinstance(value, type(Interface)) and value is not Interface
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.getName())
def test_every_method_is_documented_as_it_is(kind: type[Interface]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"`{kind.getName()}`" in text
    for name, method in kind.namesAndDescriptions():
        assert f"`{name}{method.getSignatureString()}`" in text
