import json
import re

import pytest

from hermes.config.requested import Requested
from hermes.security import INTERNAL
from hermes.security.acls import Acl
from hermes.security.users import Users
from hermes.storage import FileLayer
from hermes.storage.requested_file import REQUESTED_NAME, write_requested

RULES = """
broker_id: 0
log_dir: logs
access:
- {principal: "*", operations: [describe], topic: "web-*"}
- {principal: alice, operations: [produce], topic: clicks}
- {principal: "group:etl", operations: [group], group: "/etl-.+/"}
- {principal: mallory, operations: [all], allow: false}
- {principal: ops, operations: [all]}
"""


@pytest.fixture
def explain(run, tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text(RULES)
    return lambda *arguments: run("access", "explain", *arguments, "--config", path)


@pytest.mark.parametrize(
    ("arguments", "begins", "says"),
    [
        (
            ("alice", "produce", "clicks"),
            "allowed: 'alice' may produce to topic 'clicks'",
            "rule 2 ",
        ),
        (("alice", "describe", "clicks"), "allowed: ", "which lets it be described: {principal"),
        (("alice", "consume", "clicks"), "refused: ", "none of the 5 rules of"),
        (("bob", "describe", "web-1"), "allowed: ", "rule 1 "),
        (("mallory", "describe", "web-1"), "refused: 'mallory' may not describe", "rule 4 "),
        (("ops", "admin"), "allowed: 'ops' may administer the cluster", "rule 5 "),
        (("bob", "group", "--group", "etl-1"), "refused: ", "none of the 5 rules"),
        (("bob", "group", "--group", "etl-1", "--member-of", "etl"), "allowed: ", "rule 3 "),
        ((INTERNAL, "admin"), "allowed: ", "the broker itself"),
        (("ops", "produce", "x" * 256), "refused: ", "up to 255 characters"),
    ],
)
def test_it_says_which_rule_decides(explain, arguments, begins, says):
    result = explain(*arguments)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(begins)
    assert says in result.stdout


def test_acls_of_kafkas_clients_decide_too(explain, tmp_path):
    (tmp_path / "logs").mkdir()
    denied = Acl(2, "clicks", 3, "User:alice", "*", 4, 2)
    requested = Requested(frozenset({denied})).encode()
    write_requested(str(tmp_path / "logs"), requested, FileLayer())
    told = explain("alice", "produce", "clicks").stdout
    assert told.startswith("refused: 'alice' may not produce to topic 'clicks': rule 6 of")
    assert "broker.yaml and ACLs" in told
    assert json.loads(explain("alice", "produce", "clicks", "--json").stdout)["number"] == 6
    (tmp_path / "logs" / REQUESTED_NAME).write_bytes(b"x")
    damaged = explain("alice", "produce", "clicks")
    assert "without the ACLs of" in damaged.stderr
    assert damaged.stdout.startswith("allowed: ")


def test_as_json(explain):
    told = json.loads(explain("mallory", "produce", "clicks", "--json").stdout)
    assert told.pop("reason").startswith("rule 4 of ")
    rule = {"principal": "mallory", "operations": ["all"], "allow": False}
    assert told == {"allowed": False, "number": 4, "rule": rule}
    told = json.loads(explain("alice", "consume", "clicks", "--json").stdout)
    assert (told["allowed"], told["number"], told["rule"]) == (False, None, None)


def test_without_rules_everything_is_allowed(run, tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text("broker_id: 0\nlog_dir: logs\n")
    result = run("access", "explain", "alice", "admin", "--config", path)
    assert "there are no rules: whoever can connect may do everything" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (
            ("alice", "produce", "clicks", "--group", "x"),
            "give TOPIC, --group or --transactional-id, one of them",
        ),
        (("alice", "produce"), "produce is not done to the cluster: name a topic or a --group"),
        (("alice", "produce", "--group", "x"), "produce is not done to a group"),
        (("alice", "write", "x"), "'write' is not one of"),
    ],
)
def test_what_makes_no_sense_is_refused(explain, arguments, complaint):
    result = explain(*arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def test_a_file_that_is_missing_is_named(run, tmp_path):
    path = tmp_path / "none.yaml"
    result = run("access", "explain", "alice", "admin", "--config", path)
    assert result.exit_code == 1
    assert re.fullmatch(rf"hermes: {path}: can't be read: .+\n", result.stderr)


def test_the_rules_are_shown_by_config_check(run, tmp_path):
    path = tmp_path / "broker.yaml"
    path.write_text(RULES)
    shown = json.loads(run("config", "check", "--json", path).stdout)["access"]
    assert shown[0] == {
        "principal": "*",
        "operations": ["describe"],
        "topic": "web-*",
        "allow": True,
    }


def test_groups_are_those_of_the_users_file(run, tmp_path):
    users, path = tmp_path / "users", tmp_path / "broker.yaml"
    path.write_text(f"{RULES}users_file: {json.dumps(str(users))}\n")
    asked = ("access", "explain", "bob", "group", "--group", "etl-1", "--config", path)
    result = run(*asked)
    assert result.stdout.startswith("refused: ")
    assert "name the groups of 'bob' by --member-of" in result.stderr
    users.touch(0o600)
    users.write_bytes(Users.none().with_user("bob", None, ["etl"]).encode())
    result = run(*asked)
    assert result.stdout.startswith("allowed: ")
    assert result.stderr == ""
