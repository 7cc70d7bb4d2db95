"""What an expression that somebody registered costs, whatever it is matched with."""

import tracemalloc
from random import Random

import pytest

from hermes.regex import JavaPattern, java_syntax


def test_what_is_remembered_takes_little_memory_however_large_the_expression_is() -> None:
    # Nearly each character leads to another set of some two thousand states.
    pattern, letters = JavaPattern("(?:(?:.?){1000}){2}|.*[ac].{20}"), Random(1)
    tracemalloc.start()
    for _ in range(40):
        pattern.matches("".join(letters.choices("abcd", k=11)))
    held_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_bytes < 16 << 20


@pytest.mark.parametrize("nothing", ["x{0}", "(?:|x){0}", "(?=x){0,0}", "(?:)"])
def test_what_is_repeated_counts_also_if_it_is_nothing(nothing: str) -> None:
    """A few more braces, and to compile it would take years."""
    with pytest.raises(ValueError, match="too large"):
        JavaPattern(f"(?:(?:{nothing}){{1000}}){{1000}}")


def test_nothing_repeated_matches_nothing() -> None:
    pattern = JavaPattern("a(?:x{0}){3}b")
    assert pattern.matches("ab")
    assert not pattern.matches("axb")


def test_a_class_is_asked_once_for_each_character_however_many_steps_ask_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def between(first: str, last: str) -> java_syntax.Test:
        def test(character: str) -> bool:
            asked.append(character)
            return first <= character <= last

        return test

    monkeypatch.setattr(java_syntax, "_between", between)
    assert JavaPattern("(?:[b-c]?){500}").matches("bcbcbc")
    assert asked == ["b", "c"]
    assert JavaPattern("(?:b|c(?<=[b-c]))*").matches("bcbcbc")
    assert asked == ["b", "c"] * 2
