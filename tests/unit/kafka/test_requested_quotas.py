"""A quota that a client sets holds for connections that are there, and as long as it is set."""

from pathlib import Path
from typing import Any

from broker_bench import answers
from kafka_bench import KafkaBench, decode_answer
from kafka_raw import parts

from hermes.client.kafka_asking import encoded_request
from hermes.config.requested import MOST_ENTRIES
from hermes.protocol.kafka_errors import Code


def alter(bench: KafkaBench, value: float, *, remove: bool = False) -> int:
    op = {"key": "producer_byte_rate", "value": value, "remove": remove}
    entity = [{"entity_type": "user", "entity_name": "ANONYMOUS"}]
    connection, transport = bench.connect_kafka()
    entries = [{"entity": entity, "ops": [op]}]
    values: dict[str, Any] = {"entries": entries, "validate_only": False}
    connection.dataReceived(encoded_request("AlterClientQuotas", 1, 7, values)[0])
    bench.turns(transport)
    (answer,) = answers(transport)
    connection.connectionLost()
    return int(decode_answer("AlterClientQuotas", 1, answer).entries[0].error_code.value)


def test_it_delays_who_is_connected_until_it_is_taken_away(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path)
    connection, transport = bench.connect_kafka()
    asked = encoded_request("Metadata", 1, 7, {"topics": []})[0]
    connection.dataReceived(asked * 3)
    bench.turns(transport)
    assert bench.connections.quotas.delays == {}
    assert alter(bench, 1.0) == 0
    connection.dataReceived(asked * 3)
    bench.turns(transport)
    (delayed,) = bench.connections.quotas.delays
    assert delayed == ("anonymous", "bytes_in")
    bench.clock.advance(3600)
    bench.turns(transport)
    assert alter(bench, 0.0, remove=True) == 0
    count = bench.connections.quotas.delays[delayed]
    connection.dataReceived(asked * 3)
    bench.turns(transport)
    assert bench.connections.quotas.delays[delayed] == count
    assert len(answers(transport)) == 9
    connection.connectionLost()
    bench.close()


def test_more_than_may_be_kept_is_not_looked_at(tmp_path: Path) -> None:
    bench = KafkaBench(tmp_path)
    make = parts("AlterClientQuotas", 1)
    ops = (make.OpData(key="producer_byte_rate", value=1.0, remove=False),)
    entries = tuple(
        make.EntryData(entity=(make.EntityData(entity_type="user", entity_name=f"u{n}"),), ops=ops)
        for n in range(MOST_ENTRIES + 2)
    )
    answer = bench.ask("AlterClientQuotas", 1, entries=entries, validate_only=False)
    codes = [each.error_code.value for each in answer.entries]
    assert codes == [Code.NONE] * MOST_ENTRIES + [Code.INVALID_REQUEST] * 2
    assert len(bench.settings.config.requested.quotas) == MOST_ENTRIES
    bench.close()
