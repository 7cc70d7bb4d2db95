"""The same requests to Hermes as were sent to a real Kafka 4, and the same answers.

The soak asks Kafka itself again (tests/soak/test_kafka_conformance.py), which writes the recording.
"""

import json
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import conformance
import pytest
import record_scenes
from conformance_sasl import PASSWORD, SASL_DIFFERENCES, USER, authenticated, shown, told
from conformance_security import SECURITY_DIFFERENCES, guarded
from conformance_steps import comparable
from kafka_4 import kafka_version
from kafka_bench import messages
from zope.interface import implementer

from hermes.errors import NotAuthenticatedError
from hermes.interfaces import ITokenVerifier, TokenHolder
from hermes.security.users import Users
from hermes.testing import running_broker, running_kafka

SCENES = {**conformance.SCENES, **record_scenes.SCENES}
DIFFERENCES = {
    **conformance.DIFFERENCES,
    **record_scenes.DIFFERENCES,
    **SASL_DIFFERENCES,
    **SECURITY_DIFFERENCES,
}
ROOT = Path(__file__).parents[3]
RECORDED: dict[str, Any] = json.loads(
    (ROOT / "tests" / "vectors" / "kafka-4-answers.json").read_text(encoding="utf-8")
)


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with running_kafka() as running:
        yield running.bootstrap_servers


@pytest.mark.parametrize("name", SCENES)
def test_hermes_answers_as_kafka_does(name: str, bootstrap: str) -> None:
    check(name, conformance.answers(SCENES[name], bootstrap))


def test_hermes_authenticates_as_kafka_does() -> None:
    with running_kafka(users={USER: PASSWORD}) as secured:
        check("authenticated", authenticated(secured.bootstrap_servers))


def test_hermes_takes_passwords_as_kafka_does(tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_bytes(Users.none().with_user(USER, PASSWORD, iterations=4096).encode())
    path.chmod(0o600)
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "scram", "plain": True}
    settings = {
        "kafka_listen": listener,
        "users_file": str(path),
        "access": [{"principal": "alice", "operations": ["all"]}],
    }
    with running_broker(settings=settings) as secured:
        check("told", told(secured.bootstrap_servers))


@implementer(ITokenVerifier)
class Unsigned:
    """Believes what a JWT says that nobody has signed, as Kafka's default does."""

    def verify(self, token: str) -> TokenHolder:
        """See `ITokenVerifier`."""
        try:
            claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
        except (ValueError, IndexError):
            raise NotAuthenticatedError("it is no JWT") from None
        left = claims["exp"] - time.time()
        if left <= 0:
            raise NotAuthenticatedError("it has expired")
        return TokenHolder(claims["sub"], frozenset(), left)


def test_hermes_takes_tokens_as_kafka_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("hermes.server.checks", "hermes.broker.serving"):
        monkeypatch.setattr(f"{module}.token_verifier", lambda config: Unsigned())
    listener = {"endpoint": "tcp:0:interface=127.0.0.1", "authentication": "token"}
    with running_broker(settings={"kafka_listen": listener}) as secured:
        check("shown", shown(secured.bootstrap_servers))


def test_hermes_guards_as_kafka_does(tmp_path: Path) -> None:
    (tmp_path / "users").write_bytes(Users.none().encode())
    (tmp_path / "users").chmod(0o600)
    rules = [{"principal": "anonymous", "operations": ["all"]}]
    settings = {"access": rules, "users_file": str(tmp_path / "users")}
    with running_kafka(settings=settings) as secured:
        check("guarded", guarded(secured.bootstrap_servers))


def check(name: str, answered: dict[str, Any]) -> None:
    """What was answered in a scene is what Kafka answers, but for what is known."""
    expected = RECORDED["answers"][name]
    assert list(answered) == list(expected)
    different = {label for label in expected if answered[label] != expected[label]}
    known = {label for scene, label in DIFFERENCES if scene == name}
    for label in sorted(different - known):
        assert answered[label] == expected[label], label
    assert known == different, "these are alike by now"


def test_directories_are_compared_whatever_their_order() -> None:
    make = messages("DescribeLogDirs", 4, "response")
    sizes = {"partition_size": 0, "offset_lag": 0, "is_future_key": False}
    number = partial(make.DescribeLogDirsPartition, **sizes)
    found = [number(partition_index=0), number(partition_index=1)]
    topics = [make.DescribeLogDirsTopic(name=name, partitions=tuple(found)) for name in "ab"]
    turned = [replace(each, partitions=tuple(found[::-1])) for each in topics[::-1]]
    assert comparable(tuple(turned), "topics") == comparable(tuple(topics), "topics")
    other = replace(topics[0], partitions=tuple(found[:1]))
    assert comparable((other, topics[1]), "topics") != comparable(tuple(topics), "topics")


def test_the_recording_is_of_the_kafka_that_the_tests_have() -> None:
    assert RECORDED["source"] == f"Kafka {kafka_version()}"


def test_what_a_later_kafka_answers_otherwise_is_of_groups_epochs_alone() -> None:
    """So a client of Kafka 4.4 meets what it is used to, or a number that it doesn't look into."""
    path = ROOT / "tests" / "vectors" / "kafka-4.4-answers.json"
    for name, steps in json.loads(path.read_text(encoding="utf-8"))["otherwise"].items():
        for label, answer in steps.items():
            assert without_epochs(answer) == without_epochs(RECORDED["answers"][name][label]), label


def without_epochs(part: Any) -> Any:
    if isinstance(part, dict):
        return {key: without_epochs(value) for key, value in part.items() if "epoch" not in key}
    return [without_epochs(each) for each in part] if isinstance(part, list) else part


def test_the_page_has_every_difference() -> None:
    page = (ROOT / "docs" / "kafka.md").read_text(encoding="utf-8")
    for (_, label), reason in DIFFERENCES.items():
        row = f"| {label.partition(', v')[0]} |"
        assert any(row in line and reason in line for line in page.splitlines()), label
