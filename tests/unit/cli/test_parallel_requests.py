"""Who is asked at once, who is waited for, and who isn't."""

from threading import Event

from hermes.cli.parallel_requests import ParallelRequests

_DEADLINE_SECONDS = 60


def test_who_is_late_is_left_out_and_not_asked_again_until_it_answers():
    may_answer, has_answered, asked = Event(), Event(), []

    def late():
        asked.append("late")
        assert may_answer.wait(_DEADLINE_SECONDS)
        has_answered.set()
        return "late"

    inquiries = ParallelRequests(0)
    questions = {"a": lambda: "prompt", "b": late}
    for _ in range(3):
        answers = inquiries.ask(questions, needs_one=True)
        assert {key: each.result() for key, each in answers.items()} == {"a": "prompt"}
        assert inquiries.is_open("b")
    assert asked == ["late"]
    may_answer.set()
    answers = inquiries.ask({"b": late}, needs_one=True)
    assert answers["b"].result() == "late"
    assert not inquiries.is_open("b")
    assert inquiries.ask({"b": late}, needs_one=True)["b"].result() == "late"
    assert asked == ["late", "late"]


def test_while_nobody_answers_one_is_waited_for():
    may_answer = Event()

    def late():
        assert may_answer.wait(_DEADLINE_SECONDS)

    inquiries = ParallelRequests(0)
    assert inquiries.ask({"a": late, "b": late}, needs_one=False) == {}
    may_answer.set()
    assert inquiries.ask({"a": late, "b": late}, needs_one=True)


def test_an_error_is_an_answer():
    def fail():
        raise ValueError("no")

    (answer,) = ParallelRequests(0).ask({"a": fail}, needs_one=True).values()
    assert str(answer.exception()) == "no"
