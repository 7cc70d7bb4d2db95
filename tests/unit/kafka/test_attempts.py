"""The table of attempts for Kafka's requests: who may not learns nothing and changes nothing.

As `tests/integration/security/test_attempts.py`, for who is known and may too little.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_bench import answers
from kafka_attempts import ATTEMPTS, BEFORE, Attempt, Names, Need, codes_of, rule_of
from kafka_bench import KafkaBench, decode_answer

from hermes.client.kafka_asking import encoded_request
from hermes.config.loading import parse_broker_config
from hermes.kafka.apis import APIS
from hermes.protocol.kafka_errors import Code
from hermes.security.users import Users

#: There are rules, and none for who asks.
_OTHERS = {"principal": "root", "operations": ["all"]}
_EVERYTHING = {"principal": "anonymous", "operations": ["all"]}
#: Of what isn't there but for the second, names that are as long as `Names`.
_ELSE = ("orderz", "orders", "filling", "barrels", "payouts-")


class Stand:
    """A broker with something of everything, and whoever asks it."""

    def __init__(self, directory: Path) -> None:
        topics = {"orders": {"format": "kafka"}}
        users_file = directory / "users"
        users_file.touch(mode=0o600)
        users_file.write_bytes(Users.none().encode())
        settings = {"access": [_EVERYTHING], "topics": topics, "users_file": str(users_file)}
        self.bench = KafkaBench(directory / "log", **settings)
        self.directory = directory
        self.bench.shared.topics.create_declared("orders")
        names = Names()
        self.ask(ATTEMPTS["a transaction's coordinator"], names)  # makes what they are kept in
        begun = self.entity(ATTEMPTS["a producer id for transactions"], names)
        assert begun.producer_epoch == 0
        self.names = names._replace(producer_id=begun.producer_id)
        for each in BEFORE:
            assert codes_of(self.entity(ATTEMPTS[each], self.names)) == {Code.NONE}, each

    def permit(self, *needs: Need) -> None:
        """Have whoever asks be permitted this alone."""
        access = [_OTHERS, *(rule_of(each, self.names, "anonymous") for each in needs)]
        made = parse_broker_config({"broker_id": 0, "log_dir": "/x", "access": access})
        settings = self.bench.settings
        settings.use(replace(settings.config, access=made.access))

    def ask(self, attempt: Attempt, names: Names) -> bytes:
        values = attempt.values(names)
        connection, transport = self.bench.connect_kafka()
        connection.dataReceived(encoded_request(attempt.api, attempt.version, 7, values)[0])
        answered: list[bytes] = []
        for _ in range(10):  # a group waits for its members
            self.bench.turns(transport)
            answered = answers(transport)
            if answered:
                break
            self.bench.clock.advance(1)
        (answer,) = answered
        connection.connectionLost()
        return answer

    def entity(self, attempt: Attempt, names: Names) -> Any:
        return decode_answer(attempt.api, attempt.version, self.ask(attempt, names))

    def stored(self) -> dict[str, str]:
        return {
            str(path.relative_to(self.directory)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.directory.rglob("*"))
            if path.is_file()
        }


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    made = Stand(tmp_path)
    yield made
    made.bench.close()


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stand]:
    """One for all that change nothing."""
    made = Stand(tmp_path_factory.mktemp("refusing"))
    yield made
    made.bench.close()


def test_every_request_is_in_the_table() -> None:
    assert {each.api for each in ATTEMPTS.values()} == {each.name for each in APIS.values()}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_whoever_may_what_it_needs_is_served(stand: Stand, what: str) -> None:
    attempt = ATTEMPTS[what]
    stand.permit(*attempt.needs)
    answer = stand.ask(attempt, stand.names)
    told = codes_of(decode_answer(attempt.api, attempt.version, answer))
    assert told == {attempt.answered}
    for need in attempt.needs:
        if need.code is Code.NONE:
            assert getattr(stand.names, need.of).encode() in answer


@pytest.mark.parametrize("what", [what for what, each in ATTEMPTS.items() if each.needs])
def test_whoever_may_nothing_gets_nothing(refusing: Stand, what: str) -> None:
    attempt, names = ATTEMPTS[what], refusing.names
    refusing.permit()
    stored = refusing.stored()
    refusals = dict(refusing.bench.shared.metrics.refusals)
    answer = refusing.ask(attempt, names)
    need = attempt.needs[0]
    assert codes_of(decode_answer(attempt.api, attempt.version, answer)) == {need.code}
    is_counted = refusals != refusing.bench.shared.metrics.refusals
    assert is_counted is (need.code is not Code.NONE)
    # The same is answered about what there isn't, and about what there is.
    to_names = {b.encode(): a.encode() for a, b in zip(names[:5], _ELSE, strict=True)}
    about_others = refusing.ask(attempt, Names(*_ELSE, names.producer_id))
    about_others = re.sub(b"|".join(to_names), lambda found: to_names[found[0]], about_others)
    assert about_others == answer
    if need.code is Code.NONE:
        assert getattr(names, need.of).encode() not in answer
    assert refusing.stored() == stored


@pytest.mark.parametrize(
    ("what", "lacking"),
    [
        (what, number)
        for what, each in ATTEMPTS.items()
        for number in range(len(each.needs))
        if len(each.needs) > 1
    ],
)
def test_whoever_lacks_one_thing_is_refused_it(refusing: Stand, what: str, lacking: int) -> None:
    attempt = ATTEMPTS[what]
    need = attempt.needs[lacking]
    refusing.permit(*(each for each in attempt.needs if each is not need))
    stored = refusing.stored()
    answer = refusing.ask(attempt, refusing.names)
    told = codes_of(decode_answer(attempt.api, attempt.version, answer))
    assert told == {need.code}
    if need.code is Code.NONE:
        assert getattr(refusing.names, need.of).encode() not in answer
    assert refusing.stored() == stored
