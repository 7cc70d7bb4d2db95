import pytest

from hermes.coordination.topic_filters import Blacklist, Whitelist
from hermes.errors import ConfigError


@pytest.mark.parametrize(
    ("raw", "regex"),
    [
        ("a,b", "a|b"),
        (" a , b ", "a|b"),
        ('"click.*"', "click.*"),
        ("'x'", "x"),
        ("a b", "ab"),
    ],
)
def test_a_list_is_prepared_as_kafka_prepares_it(raw: str, regex: str) -> None:
    assert Whitelist(raw).regex == regex
    assert Blacklist(raw).regex == regex


@pytest.mark.parametrize(
    ("regex", "allowed", "refused"),
    [
        ("a|ab", ["a", "ab"], ["b", "abc", ""]),
        (r"\Qa.b\E", ["a.b"], ["axb"]),
        (r"\Qa.b", ["a.b"], ["axb"]),
        (r"\p{Alpha}+", ["abc"], ["a1", "\u00e9"]),
        (r"[\p{Digit}_]+", ["1_2"], ["a"]),
        (r"\P{Digit}+", ["abc"], ["a1"]),
        (r"\w+", ["a_1"], ["\u00e9"]),
        (r"(?i)click", ["CLICK", "click"], ["clack"]),
        (r"(?<x>a)b", ["ab"], ["a"]),
        (r"(?!test|x$).*", ["clicks", "xy"], ["test-1", "x"]),
        (r"\Qa+\E+", ["a++"], ["aa"]),
        (r"[^a-c]{2}?", ["xy"], ["x", "xyz", "xa"]),
        (r"(?i:CLICK)s", ["clicks"], ["CLICKS"]),
        (r"^click$", ["click"], ["xclick"]),
        (r".*(?<!-dlq)", ["a"], ["a-dlq"]),
        (r"[]a]", ["]"], ["b"]),
        (r"a\z", ["a"], ["az"]),
        (r"a\x62\u0063", ["abc"], ["a"]),
        (r"(?<=)a", ["a"], ["b"]),
        (r"a.b", ["axb"], ["a\u2028b"]),
    ],
)
def test_java_s_expressions_mean_here_what_they_mean_there(
    regex: str, allowed: list[str], refused: list[str]
) -> None:
    white, black = Whitelist(regex), Blacklist(regex)
    assert [topic for topic in allowed + refused if white.allows(topic)] == allowed
    assert [topic for topic in allowed + refused if black.allows(topic)] == refused


@pytest.mark.parametrize(
    "regex",
    [
        "((",
        "*",
        r"\p{L}",
        r"[a-z&&[^b]]",
        "[a[b]]",
        r"\G",
        r"a\X",
        r"(a)\1",
        "a++",
        "(?>a)",
        "a**",
        "a{2000}",
        "(" * 1000,
        "((a{99}){99}){99}",
        "a{",
        "[b-a]",
        r"(?<x>a)\k<x>",
    ],
)
def test_what_only_java_can_evaluate_is_refused(regex: str) -> None:
    with pytest.raises(ConfigError, match="can't be used as a regular expression"):
        Whitelist(regex)


def test_lists_are_equal_by_kind_and_expression() -> None:
    assert Whitelist("a,b") == Whitelist("a|b")
    assert Whitelist("a") != Blacklist("a")
    assert len({Whitelist("a"), Whitelist("a"), Blacklist("a")}) == 2
    assert repr(Whitelist("a")) == "Whitelist('a')"


@pytest.mark.parametrize(
    "regex",
    [
        "(a+)+b",
        "(a|aa)+b",
        "(a|a?)+b",
        "(.*)*b",
        "(((a*)*)*)*b",
        "(x+x+)+y|(a*a*)*b",
        "(?!(a*)*b)a+b",
    ],
)
def test_no_expression_takes_more_than_its_share(regex: str) -> None:
    """Each keeps an engine that backtracks busy for longer than anybody lives."""
    assert not Whitelist(regex).allows("a" * 250 + "_")


def test_what_takes_too_much_work_is_refused_and_not_done() -> None:
    costly = Whitelist("(?:(?=(a*)*b|.*(a|b)*c)a)*" * 50)
    with pytest.raises(ConfigError, match="takes too much work"):
        costly.allows("a" * 250)


def test_a_long_expression_is_not_quoted_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        Whitelist("((" + "a" * 100_000)
    assert len(str(caught.value)) < 500
