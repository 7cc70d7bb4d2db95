"""Passwords as requests bring them: how often they are checked, and what of them is kept."""

import base64

import pytest
from twisted.internet.defer import Deferred

from hermes.interfaces import User
from hermes.web.logins import (
    REMEMBERED_SECONDS,
    BadCredentialsError,
    Logins,
    PasswordCredentials,
    TooBusyError,
    parse_authorization,
)

ALICE = PasswordCredentials("alice", "pa:ss wörd")


def basic(text):
    return b"Basic " + base64.b64encode(text.encode())


def test_a_header_is_read_as_rfc_7617_has_it():
    assert parse_authorization(b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==") == ("Aladdin", "open sesame")
    assert parse_authorization(b"Basic dGVzdDoxMjPCow==") == ("test", "123£")
    assert parse_authorization(basic("alice:pa:ss wörd").replace(b"Basic", b"bAsIc")) == ALICE
    assert parse_authorization(basic("alice:")) == ("alice", "")


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"Basic",
        b"Basic ",
        b"Bearer abc",
        b"Basic QWxhZGRpbg==",  # no colon
        b"Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=",  # its padding is wrong
        b"Basic QWxh*ZGRpbjpvcGVuIHNlc2FtZQ==",
        b"Basic " + base64.b64encode(b"alice:\xff\xfe"),
        basic("alice:a\0b"),
        basic("alice:a\r\nb"),
        basic(":password"),
        basic("alice:" + "x" * 5000),
        b"Basic QTpC, Basic QTpD",
    ],
)
def test_anything_else_is_not_looked_at(header):
    with pytest.raises(BadCredentialsError) as caught:
        parse_authorization(header)
    assert "alice" not in str(caught.value)


class Checks:
    """A `Logins`, and what it asks for."""

    def __init__(self):
        self.now = 1000.0
        self.revision = 1
        self.asked = []
        self.logins = Logins(lambda: self.revision, self._check, lambda: self.now)

    def _check(self, address, user, password):
        self.asked.append((address, user, password, Deferred()))
        return self.asked[-1][-1]

    def answer(self, found):
        self.asked[-1][-1].callback(found)


def outcome(deferred):
    return getattr(deferred, "result", None)


def test_a_right_password_is_checked_once_a_minute():
    checks = Checks()
    first = checks.logins.check("192.0.2.1", ALICE)
    assert outcome(first) is None
    checks.answer(User("alice"))
    assert outcome(first) == "alice"
    assert outcome(checks.logins.check("192.0.2.9", ALICE)) == "alice"
    checks.now += REMEMBERED_SECONDS - 1
    assert outcome(checks.logins.check("192.0.2.1", ALICE)) == "alice"
    assert len(checks.asked) == 1
    checks.now += 1
    checks.logins.check("192.0.2.1", ALICE)
    assert [each[:3] for each in checks.asked] == [("192.0.2.1", *ALICE)] * 2


def test_a_wrong_one_is_checked_each_time():
    checks = Checks()
    for _ in range(3):
        found = checks.logins.check("192.0.2.1", ALICE)
        checks.answer(None)
        assert found.called
        assert outcome(found) is None
    assert len(checks.asked) == 3


def test_another_password_of_the_same_user_is_checked():
    checks = Checks()
    checks.logins.check("192.0.2.1", ALICE)
    checks.answer(User("alice"))
    checks.logins.check("192.0.2.1", PasswordCredentials("alice", "guess"))
    assert len(checks.asked) == 2


def test_what_changes_a_user_ends_what_was_remembered():
    checks = Checks()
    checks.logins.check("192.0.2.1", ALICE)
    checks.answer(User("alice"))
    checks.revision = 2
    checks.logins.check("192.0.2.1", ALICE)
    assert len(checks.asked) == 2
    checks.revision = 3  # while that is being checked
    checks.answer(User("alice"))
    checks.logins.check("192.0.2.1", ALICE)
    assert len(checks.asked) == 3


def test_the_same_one_is_checked_once_however_many_bring_it():
    checks = Checks()
    waiting = [checks.logins.check("192.0.2.1", ALICE) for _ in range(5)]
    assert len(checks.asked) == 1
    checks.answer(User("alice"))
    assert [outcome(each) for each in waiting] == ["alice"] * 5


def test_a_failure_to_check_reaches_all_who_wait():
    checks = Checks()
    waiting = [checks.logins.check("192.0.2.1", ALICE) for _ in range(2)]
    checks.asked[0][-1].errback(ValueError("no users file"))
    for each in waiting:
        each.addErrback(lambda failure: failure.getErrorMessage())
    assert [outcome(each) for each in waiting] == ["no users file"] * 2
    checks.logins.check("192.0.2.1", ALICE)
    assert len(checks.asked) == 2


def test_only_so_many_wait(monkeypatch):
    monkeypatch.setattr("hermes.web.logins._MOST_WAITING", 2)
    checks = Checks()
    for number in range(2):
        checks.logins.check(f"192.0.2.{number}", ALICE)
    with pytest.raises(TooBusyError):
        checks.logins.check("192.0.2.7", ALICE)


def test_nothing_that_is_kept_or_shown_has_the_password():
    checks = Checks()
    checks.logins.check("192.0.2.1", ALICE)
    checks.answer(User("alice"))
    assert "wörd" not in repr(ALICE)
    assert not any(b"alice" in key or "wörd".encode() in key for key in checks.logins._right)
