import os
import re

import pytest

from hermes.config.addresses import BrokerAddress
from hermes.console.cluster_client import ClusterClient
from hermes.console.page_request import PageRequest
from hermes.console.pages import Console
from hermes.console.sessions import (
    SESSION_COOKIE,
    Access,
    Password,
    check_exposure,
    hash_password,
)
from hermes.errors import ConfigError, HermesError

SESSION = "s" * 43


@pytest.fixture(scope="module")
def hashed():
    return hash_password("correct horse")


@pytest.fixture
def password(hashed, tmp_path):
    path = tmp_path / "password"
    path.write_text(hashed)
    path.chmod(0o600)
    return Password(path)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


def make(password=None, *, may_act=True, clock=None):
    access = Access(password, clock=clock or Clock())
    # Nothing listens at this port: pages that need a broker would say so.
    return Console(ClusterClient(BrokerAddress("127.0.0.1", 1)), access, lambda: may_act), access


def get(console, path=(), session=SESSION):
    return console.answer(PageRequest("GET", path, cookies={SESSION_COOKIE: session}, here="/x"))


def post(console, path, session=SESSION, client="192.0.2.1", **form):
    cookies = {SESSION_COOKIE: session}
    return console.answer(PageRequest("POST", path, form=form, cookies=cookies, client=client))


def token(body):
    (found,) = set(re.findall(rb'name="csrf" value="(\w+)"', body))
    return found.decode()


@pytest.mark.parametrize("forged", ["s" * 41 + "\r\n", "s" * 42 + ";", "s" * 42, "\xb2" * 43])
def test_what_is_no_session_of_ours_is_never_sent_back(forged):
    console, _ = make()
    assert get(console, ("nothing",), forged).cookies[SESSION_COOKIE] != forged


def test_a_browser_gets_a_session():
    console, _ = make()
    answer = console.answer(PageRequest("GET", ("nothing",)))
    assert answer.status == 404
    assert len(answer.cookies[SESSION_COOKIE]) == 43


def test_a_browser_that_has_a_session_is_given_no_other():
    """An answer that was under way while somebody logged in would end what the login began."""
    console, _ = make()
    assert get(console, ("nothing",)).cookies == {}


@pytest.mark.parametrize("given", ["", "0" * 64, "ü", "\udce4"])
def test_a_post_without_the_sessions_token_changes_nothing(given):
    console, _ = make()
    assert post(console, ("groups", "g", "reset"), csrf=given).status == 403


def test_a_token_of_another_session_is_refused():
    console, access = make()
    other = access.token("o" * 43)
    assert post(console, ("groups", "g", "reset"), csrf=other).status == 403
    own = access.token(SESSION)
    assert post(console, ("groups", "g", "reset"), csrf=own, changes="[").status == 400


def test_tokens_are_of_one_process():
    assert make()[1].token(SESSION) != make()[1].token(SESSION)


def test_nothing_is_changed_without_console_actions():
    console, access = make(may_act=False)
    answer = post(console, ("groups", "g", "reset"), csrf=access.token(SESSION), changes="[]")
    assert answer.status == 403
    assert b"console_actions" in answer.body


def test_without_the_password_there_is_only_the_form(password):
    console, _ = make(password)
    for path in ((), ("topics",), ("groups", "x"), ("logout",)):
        answer = get(console, path)
        assert answer.status == 401
        assert b'type="password"' in answer.body
    assert get(console, ("static", "console.css")).status == 200


def test_the_password_opens_a_new_session_which_a_logout_ends(password):
    console, _ = make(password)
    csrf = token(get(console).body)
    answer = post(console, ("login",), csrf=csrf, password="correct horse", back="/topics")
    assert (answer.status, answer.headers["Location"]) == (303, "/topics")
    session = answer.cookies[SESSION_COOKIE]
    assert session != SESSION
    page = get(console, ("nothing",), session)
    assert page.status == 404
    post(console, ("logout",), session, csrf=token(page.body))
    assert get(console, ("nothing",), session).status == 401
    assert get(console, ("nothing",)).status == 401


@pytest.mark.parametrize("wrong", ["", "correct horse ", "x" * 2000])
def test_a_wrong_password_opens_nothing(password, wrong):
    console, _ = make(password)
    csrf = token(get(console).body)
    answer = post(console, ("login",), csrf=csrf, password=wrong, back="/")
    assert answer.status == 403
    assert b"not the password" in answer.body
    assert answer.cookies == {}


def test_who_tries_too_often_is_told_when_to_come_back(password, monkeypatch):
    monkeypatch.setattr(password, "is_right", lambda given: given == "correct horse")
    console, _ = make(password)
    csrf = token(get(console).body)
    for _ in range(5):
        assert post(console, ("login",), csrf=csrf, password="wrong").status == 403
    answer = post(console, ("login",), csrf=csrf, password="correct horse", back="/topics")
    assert (answer.status, answer.headers["Retry-After"]) == (429, "10")
    assert b"Try again in 10 seconds" in answer.body
    assert b"not the password" not in answer.body
    assert b'name="back" value="/topics"' in answer.body
    owner = post(console, ("login",), client="192.0.2.2", csrf=csrf, password="correct horse")
    assert owner.status == 303


def test_a_login_needs_a_token_too(password):
    console, _ = make(password)
    assert post(console, ("login",), password="correct horse").status == 403
    assert get(console).status == 401


def test_a_session_that_nobody_uses_ends(password):
    clock = Clock()
    console, _ = make(password, clock=clock)
    csrf = token(get(console).body)
    answer = post(console, ("login",), csrf=csrf, password="correct horse")
    session = answer.cookies[SESSION_COOKIE]
    clock.now += 11 * 3600
    assert get(console, ("nothing",), session).status == 404
    clock.now += 13 * 3600
    assert get(console, ("nothing",), session).status == 401


def test_the_hash_is_salted_and_does_not_hold_the_password(hashed):
    assert hashed.startswith("scrypt$32768$8$1$")
    assert hash_password("correct horse") != hashed
    assert "horse" not in hashed


def test_a_password_file_must_be_its_owners_alone(hashed, tmp_path):
    path = tmp_path / "password"
    path.write_text(hashed)
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Password(path)


@pytest.mark.parametrize(
    "text", ["", "secret", "scrypt$1$8$1$AA==$AA==", "scrypt$a$b$c$d$e", "md5$2$8$1$AA==$AA==",
             "scrypt$1048576$8$1$AA==$" + "A" * 43 + "="]
)  # fmt: skip
def test_what_is_no_hash_is_refused_with_what_to_do(text, tmp_path):
    path = tmp_path / "password"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="--write-password"):
        Password(path)


def test_a_missing_password_file_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(ConfigError, match="it is not a regular file"):
        Password(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="can't read"):
        Password(tmp_path / "none")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org"])
def test_beyond_loopback_there_must_be_a_password(host):
    with pytest.raises(ConfigError, match=r"--write-password FILE and name it \("):
        check_exposure("http_listen", [("127.0.0.1", 1), (host, 2)], has_password=False)
    check_exposure("http_listen", [(host, 2)], has_password=True)


@pytest.mark.parametrize("address", [("127.0.0.1", 1), ("::1", 1), ("127.8.8.8", 1), "/a/socket"])
def test_on_loopback_it_may_do_without(address):
    check_exposure("http_listen", [address], has_password=False)


def test_static_files_are_the_only_ones_served():
    console, _ = make()
    for path in (
        ("static", "..", "pages.py"),
        ("static", "../pages.py"),
        ("static", ""),
        ("static",),
    ):
        assert get(console, path).status == 404
    script = get(console, ("static", "console.js"))
    assert script.content_type.startswith("text/javascript")
    assert "immutable" in script.headers["Cache-Control"]


def test_a_broker_that_does_not_answer_is_shown_as_that():
    console, _ = make()
    page = get(console)
    assert page.status == 200
    assert b"does not answer" in page.body
    assert get(console, ("topics", "clicks")).status == 502
    console.close()


class FakeUsers:
    """Two users, one of whom can change the password."""

    def __init__(self):
        self.passwords = {"alice": "wonder", "bob": "build"}
        self.tries = []

    def log_in(self, address, user, password):
        self.tries.append((address, user))
        name = user.lower()
        return (name, self.proof_of(name)) if self.passwords.get(name) == password else None

    def proof_of(self, user):
        return self.passwords.get(user)


class UserConsole:
    """A console where the listener authenticates users, and the request brings none."""

    def __init__(self, rights=None, password=None, clock=None):
        self.users = FakeUsers()
        self.access = Access(password, self.users, rights, clock or Clock())
        self.console = Console(
            ClusterClient(BrokerAddress("127.0.0.1", 1)), self.access, lambda: True
        )

    def ask(self, method, path, session=SESSION, principal=None, client="192.0.2.1", **form):
        cookies = {SESSION_COOKIE: session}
        return self.console.answer(
            PageRequest(method, path, form=form, cookies=cookies, here="/x", client=client,
                principal=principal)
        )  # fmt: skip

    def log_in(self, user="alice", password="wonder", client="192.0.2.1"):
        csrf = token(self.ask("GET", ()).body)
        return self.ask("POST", ("login",), client=client, csrf=csrf, user=user, password=password)


def test_a_user_logs_in_with_name_and_password():
    made = UserConsole()
    form = made.ask("GET", ())
    assert form.status == 401
    assert b'name="user"' in form.body
    session = made.log_in().cookies[SESSION_COOKIE]
    page = made.ask("GET", ("nothing",), session)
    assert page.status == 404
    assert b">alice</p>" in page.body
    assert made.users.tries == [("192.0.2.1", "alice")]
    made.ask("POST", ("logout",), session, csrf=token(page.body))
    assert made.ask("GET", ("nothing",), session).status == 401


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "build"), ("nobody", "wonder"), ("", "wonder"), ("alice", "")]
)
def test_wrong_ones_are_answered_alike(user, password):
    made = UserConsole()
    answer = made.log_in(user, password)
    assert answer.status == 403
    assert b"There is no such user with this password." in answer.body
    assert answer.cookies == {}


def test_a_session_is_of_whom_the_users_name_not_of_what_was_typed():
    made = UserConsole()
    session = made.log_in("ALICE").cookies[SESSION_COOKIE]
    assert b">alice</p>" in made.ask("GET", ("nothing",), session).body


def test_logins_leave_threads_for_pages():
    """After failures each waits for seconds, in a thread that could make pages."""
    made, tries, statuses = UserConsole(), [], []

    def slow(address, user, password):
        tries.append(address)
        if len(tries) < 8:
            statuses.append(made.log_in(client=f"192.0.2.{len(tries) + 1}").status)

    made.users.log_in = slow
    made.log_in()
    assert len(tries) == 4
    assert statuses == [429, 403, 403, 403]


def test_a_user_waits_for_nobody_elses_failures():
    made = UserConsole()
    for _ in range(9):
        assert made.log_in(password="wrong").status == 403
    assert made.log_in().status == 303


@pytest.mark.parametrize("change", [lambda made: made.users.passwords.update(alice="other"),
                                    lambda made: made.users.passwords.pop("alice")])  # fmt: skip
def test_a_session_ends_with_the_password_or_the_user(change):
    made = UserConsole()
    session = made.log_in().cookies[SESSION_COOKIE]
    assert made.ask("GET", ("nothing",), session).status == 404
    change(made)
    assert made.ask("GET", ("nothing",), session).status == 401
    assert made.ask("GET", ("topics", "clicks", "messages"), session).status == 401


def test_who_brings_a_name_need_not_log_in():
    made = UserConsole()
    page = made.ask("GET", ("nothing",), principal="carol")
    assert page.status == 404
    assert b">carol</p>" in page.body
    assert b"Log out" not in page.body


def test_users_go_before_the_consoles_own_password(password):
    made = UserConsole(password=password)
    csrf = token(made.ask("GET", ()).body)
    given = {"csrf": csrf, "password": "correct horse"}
    assert made.ask("POST", ("login",), **given).status == 403
    assert made.ask("POST", ("login",), user="alice", **given).status == 403
    session = made.log_in().cookies[SESSION_COOKIE]
    # Where the listener authenticates nobody, it is the console's password that opens.
    assert made.ask("GET", ("nothing",), session, principal="anonymous").status == 401
    opened = made.ask("POST", ("login",), principal="anonymous", **given)
    assert opened.status == 303
    other = opened.cookies[SESSION_COOKIE]
    assert made.ask("GET", ("nothing",), other, principal="anonymous").status == 404
    assert made.ask("GET", ("nothing",), other).status == 401


def test_rules_are_asked_for_whoever_looks():
    asked = []

    def rights(principal, operation, resource):
        asked.append((principal, str(operation), resource.name))
        return False

    made = UserConsole(rights)
    session = made.log_in().cookies[SESSION_COOKIE]
    assert made.ask("GET", ("topics", "clicks"), session).status == 404
    assert made.ask("GET", ("brokers",), session).status == 403
    assert made.ask("GET", ("groups", "g"), principal="anonymous").status == 404
    assert asked == [
        ("alice", "describe", "clicks"),
        ("alice", "describe", ""),
        ("anonymous", "describe", "g"),
    ]


def test_while_users_can_not_be_looked_up_no_session_ends():
    made = UserConsole()
    session = made.log_in().cookies[SESSION_COOKIE]

    def fail(user):
        raise HermesError("users can't be looked up now")

    made.users.proof_of, kept = fail, made.users.proof_of
    assert made.ask("GET", ("nothing",), session).status == 503
    made.users.proof_of = kept
    assert made.ask("GET", ("nothing",), session).status == 404
