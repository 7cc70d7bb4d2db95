"""Requests about ACLs, where others decide and where there are very many."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from kafka_bench import KafkaBench
from kafka_raw import ANY_ACL, parts

from hermes.config.requested import MOST_ENTRIES
from hermes.protocol.kafka_errors import Code

RULES = [{"principal": "anonymous", "operations": ["all"]}]


def created(bench: KafkaBench, *names: str) -> list[int]:
    make = parts("CreateAcls", 3)
    creations = tuple(
        make.AclCreation(
            resource_type=2,
            resource_name=name,
            resource_pattern_type=3,
            principal="User:alice",
            host="*",
            operation=3,
            permission_type=3,
        )
        for name in names
    )
    answer = bench.ask("CreateAcls", 3, creations=creations)
    return [each.error_code.value for each in answer.results]


def deleted(bench: KafkaBench, count: int) -> list[Any]:
    filters = (parts("DeleteAcls", 3).DeleteAclsFilter(**ANY_ACL),) * count
    return list(bench.ask("DeleteAcls", 3, filters=filters).filter_results)


def test_with_a_plugin_there_are_none(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, access=RULES)
    bench.settings.config = replace(bench.settings.config, authorizer="a-plugin")
    told = bench.ask("DescribeAcls", 3, **ANY_ACL)
    assert (told.error_code.value, told.resources) == (Code.SECURITY_DISABLED, ())
    assert "a-plugin decides" in told.error_message
    assert created(bench, "t") == [Code.SECURITY_DISABLED]
    bench.close()


def test_there_are_only_so_many_and_one_too_many_changes_nothing(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, access=RULES)
    half = [f"t{n}" for n in range(MOST_ENTRIES - 1)]
    assert set(created(bench, *half)) == {Code.NONE}
    assert created(bench, "one", "two", "") == [
        *[Code.POLICY_VIOLATION] * 2,
        Code.INVALID_REQUEST,
    ]
    assert len(bench.settings.config.requested.acls) == MOST_ENTRIES - 1
    assert created(bench, "one") == [Code.NONE]
    assert created(bench, *half[:3]) == [Code.NONE] * 3  # they are there
    bench.close()


def test_a_deletion_answers_within_bounds(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path, access=RULES)
    created(bench, *[f"t{n}" for n in range(996)])  # and four of the file
    results = deleted(bench, 1002)
    codes = [each.error_code.value for each in results]
    assert codes == [Code.NONE] * 10 + [Code.INVALID_REQUEST] * 992
    assert sum(len(each.matching_acls) for each in results) == 10_000
    assert bench.settings.config.requested.acls == frozenset()
    bench.close()
