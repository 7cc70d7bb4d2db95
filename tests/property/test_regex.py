"""Expressions that mean the same to Java and Python are matched as Python's engine does."""

import pickle
import re

from hypothesis import given
from hypothesis import strategies as st

from hermes.regex import JavaPattern, compile_java

_ATOMS = st.sampled_from(
    ["a", "b", "-", ".", "[ab]", "[^a]", "[a-c_]", r"\w", r"\d", r"\S", r"\.", r"\b", "^", "$", ""]
)
_COUNTS = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,3}", "*?", "+?"])


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = st.sampled_from(["(", "(?:", "(?=", "(?!", "(?i:"])
    return st.one_of(
        st.lists(inner, min_size=1, max_size=4).map("".join),
        st.lists(inner, min_size=2, max_size=3).map("|".join),
        st.tuples(groups, inner).map(lambda each: f"{each[0]}{each[1]})"),
        st.tuples(inner, _COUNTS).map(lambda each: f"(?:{each[0]}){each[1]}"),
    )


@given(
    regex=st.recursive(_ATOMS, _grown, max_leaves=12),
    texts=st.lists(st.text("abAB-_1.", max_size=8), min_size=1, max_size=5),
)
def test_whole_texts_match_as_in_python(regex: str, texts: list[str]) -> None:
    python = re.compile(regex, re.ASCII)
    ours = pickle.loads(pickle.dumps(compile_java(regex)))
    for text in texts:
        assert ours.matches(text) == (python.fullmatch(text) is not None), (regex, text)


@given(
    regexes=st.lists(st.sampled_from(["a+", "(a|b)*c", "x", "", "(?i)AB", "[a-c]{2}", "b.*"])),
    text=st.text("abcxAB", max_size=6),
)
def test_any_of_some_matches_what_one_of_them_does(regexes: list[str], text: str) -> None:
    together = JavaPattern.any_of(tuple(regexes), 10_000) if regexes else compile_java("[^\\s\\S]")
    assert together.matches(text) == any(compile_java(each).matches(text) for each in regexes)
    again = pickle.loads(pickle.dumps(together))
    assert again.matches(text) == together.matches(text)
