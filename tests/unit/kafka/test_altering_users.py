"""What a client can't do to the users file, though it may administer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from broker_bench import log_lines
from kafka_bench import KafkaBench
from kafka_raw import parts

from hermes.protocol.kafka_errors import Code
from hermes.security.users import Users

GOOD: dict[str, Any] = {
    "name": "bob",
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"s" * 64,
    "salted_password": b"p" * 32,
}


def altered(bench: KafkaBench, *changes: dict[str, Any]) -> list[int]:
    make = parts("AlterUserScramCredentials", 0)
    upsertions = tuple(make.ScramCredentialUpsertion(**{**GOOD, **each}) for each in changes)
    answer = bench.ask("AlterUserScramCredentials", 0, deletions=(), upsertions=upsertions)
    return [each.error_code.value for each in answer.results]


@pytest.mark.parametrize(
    "change",
    [
        {"name": ""},
        {"name": "anonymous"},
        {"name": "hermes-internal"},
        {"name": "bob:SCRAM"},
        {"name": "bob\nroot"},
        {"name": "b" * 30_000},
        {"iterations": 4095},
        {"iterations": 16_385},
        {"iterations": -1},
        {"salt": b"s" * 11},
        {"salt": b"s" * 65},
        {"salt": b"s" * 500_000},
        {"salted_password": b""},
        {"salted_password": b"p" * 64},
        {"mechanism": 2},
    ],
)
def test_what_no_user_can_have_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "users"
    path.write_bytes(Users.none().encode())
    path.chmod(0o600)
    bench = KafkaBench(tmp_path / "log")
    bench.settings.config = replace(bench.settings.config, users_file=path)
    with log_lines() as lines:
        assert altered(bench, change) == [Code.UNACCEPTABLE_CREDENTIAL]
    assert Users.parse(path.read_bytes()).names == []
    assert not any("changed the passwords" in line for line in lines)
    assert altered(bench, {}) == [Code.NONE]
    assert Users.parse(path.read_bytes()).names == ["bob"]
    bench.close()
