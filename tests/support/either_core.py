"""Runs every test of a directory twice: with the compiled loops and with those in Python.

A directory's conftest imports the fixture, and that is all.
"""

from collections.abc import Iterator

import pytest

from hermes.protocol import core, loops

__all__ = ["either_core"]


@pytest.fixture(params=["compiled", "pure"], scope="module", autouse=True)
def either_core(request: pytest.FixtureRequest) -> Iterator[None]:
    """Exchange the loops that the protocol uses for the ones that the parameter names."""
    chosen = loops
    if request.param == "compiled":
        chosen = pytest.importorskip("hermes.protocol._core", reason="there was no compiler")
    with pytest.MonkeyPatch.context() as patch:
        for name in set(core.__all__) - {"KIND"}:
            patch.setattr(core, name, getattr(chosen, name))
        yield
