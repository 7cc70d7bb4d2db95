"""What every authorizer must do, run on each that is installed, the built-in one for a start."""

import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from hermes.errors import PluginError
from hermes.interfaces import AuthorizerSettings, IAuthorizer
from hermes.plugins import available, load_plugin
from hermes.security import AccessRule, Operation, ResourceKind

GROUP = "hermes.authorizers"
RULES = (
    AccessRule("alice", frozenset({Operation.PRODUCE}), topic="clicks*"),
    AccessRule("group:staff", frozenset(Operation)),
    AccessRule("mallory", frozenset(Operation), allow=False),
)

names = st.text(max_size=255)
questions = st.tuples(
    st.sampled_from(["alice", "mallory", "anonymous"]) | names,
    st.frozensets(st.sampled_from(["staff", "other"])),
    st.sampled_from([each.value for each in Operation]),
    st.sampled_from([each.value for each in ResourceKind]),
    st.sampled_from(["clicks", "clicks-1", ""]) | names,
)


def create(name: str, **settings: Any) -> IAuthorizer:
    return load_plugin(GROUP, name, IAuthorizer, AuthorizerSettings(**settings))


def test_the_built_in_is_there() -> None:
    assert "rules" in available(GROUP)


@pytest.mark.parametrize("name", available(GROUP))
class TestContract:
    def test_it_provides_the_interface(self, name: str) -> None:
        assert verifyObject(IAuthorizer, create(name))

    @given(question=questions)
    def test_it_answers_whatever_is_asked_and_the_same_again(
        self, name: str, question: tuple[Any, ...]
    ) -> None:
        authorizer = create(name, rules=RULES)
        before = authorizer.revision()
        answer = authorizer.is_allowed(*question)
        assert type(answer) is bool
        assert authorizer.is_allowed(*question) is answer or authorizer.revision() != before

    def test_a_stranger_may_do_nothing_by_default(self, name: str) -> None:
        authorizer = create(name)
        for operation in Operation:
            assert not authorizer.is_allowed("nobody", frozenset(), operation, "topic", "clicks")

    def test_threads_may_ask_at_once(self, name: str) -> None:
        authorizer, answers = create(name, rules=RULES), []

        def ask() -> None:
            for number in range(200):
                about = ("produce", "topic", f"clicks-{number}")
                answers.append(authorizer.is_allowed(f"user-{number}", frozenset(), *about))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(answers) == 800
        assert len(set(answers)) == 1


def test_rules_decide() -> None:
    rules = create("rules", rules=RULES)
    assert rules.is_allowed("alice", frozenset(), "produce", "topic", "clicks-1")
    assert not rules.is_allowed("alice", frozenset(), "consume", "topic", "clicks-1")
    assert rules.is_allowed("bob", frozenset({"staff"}), "admin", "cluster", "")
    assert not rules.is_allowed("mallory", frozenset({"staff"}), "admin", "cluster", "")


def test_rules_take_no_options() -> None:
    with pytest.raises(PluginError, match="it takes no options, got mode"):
        create("rules", options={"mode": "strict"})
