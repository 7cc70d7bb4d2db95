"""What every verifier of tokens must do, on the one of OpenID providers and on the document's.

A third party's gets a place in `KINDS`: what makes it, and a token of alice's.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oidc_issuer import AUDIENCE, running_issuer
from zope.interface.verify import verifyObject

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import ITokenVerifier, TokenHolder, TokenVerifierSettings
from hermes.plugins import load_plugin

GROUP = "hermes.token_verifiers"
PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"


class Made(NamedTuple):
    """A verifier, and a token of alice's."""

    verifier: ITokenVerifier
    token: str


@contextmanager
def of_a_provider() -> Iterator[Made]:
    with running_issuer() as issuer:
        options = TokenVerifierSettings({"issuer": issuer.url, "audience": AUDIENCE})
        yield Made(load_plugin(GROUP, "oidc", ITokenVerifier, options), issuer.token("alice"))


@contextmanager
def of_the_document() -> Iterator[Made]:
    (text,) = re.findall(r"```python test\n([^`]*class Sessions[^`]*)```", PAGE.read_text("utf-8"))
    names: dict[str, Any] = {}
    exec(text, names)
    yield Made(names["Sessions"](TokenVerifierSettings()), "7f3a9c")


KINDS: dict[str, Callable[[], AbstractContextManager[Made]]] = {
    "oidc": of_a_provider,
    "document": of_the_document,
}


@pytest.fixture(scope="module", params=KINDS)
def made(request: pytest.FixtureRequest) -> Iterator[Made]:
    with KINDS[request.param]() as found:
        yield found


class TestContract:
    def test_it_provides_the_interface(self, made: Made) -> None:
        assert verifyObject(ITokenVerifier, made.verifier)

    def test_it_says_whose_a_token_is_and_for_how_long(self, made: Made) -> None:
        holder = made.verifier.verify(made.token)
        assert isinstance(holder, TokenHolder)
        assert (holder.name, type(holder.groups)) == ("alice", frozenset)
        assert holder.life_seconds > 0

    @settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
    @given(st.text(st.characters(codec="ascii", categories=("L", "N", "P")), min_size=1))
    def test_it_takes_no_others_and_repeats_nothing_of_them(self, made: Made, token: str) -> None:
        with pytest.raises(NotAuthenticatedError) as caught:
            made.verifier.verify(token)
        assert len(token) < 8 or token not in str(caught.value)
