"""The settings of a broker that can be changed by request: how fast it makes copies for moves.

They stand in coordination: so any broker sets them for any other, also for one that is down.

Source of names and types: Kafka 4's `QuotaConfig`.
"""

from collections.abc import Iterator
from typing import Any, Final

from hermes.coordination.throttles import Throttle
from hermes.errors import ConfigError
from hermes.kafka.dispatching import Call
from hermes.kafka.topic_configs import ConfigRow, ConfigSource, ConfigType, ConfigValue
from hermes.protocol.kafka_errors import invalid_request

#: Of each name, which of a `Throttle`'s rates it is.
_RATES: Final = {
    "leader.replication.throttled.rate": "leader",
    "follower.replication.throttled.rate": "follower",
}

#: What Kafka's tool takes away together with these, whether it was set or not.
_OF_DISKS: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

_SET: Final = 0
_DELETE: Final = 1

_DOC: Final = "Bytes a second for copies that move, or catch up; in-sync ones are never throttled."
_UNBOUNDED: Final = str(2**63 - 1), ConfigSource.DEFAULT


async def alter_broker(asked: Any, call: Call, *, is_check: bool) -> None:
    """Set and take away rates of one broker. Raises HermesError: none is changed."""
    call.check_admin()
    broker_id = _broker_id(asked.resource_name)
    changes = dict(_change(each) for each in asked.configs if not _is_absent(each))
    if len(asked.configs) > len({each.name for each in asked.configs}):
        raise invalid_request("Error due to duplicate config keys")

    def change(before: Throttle) -> Throttle:
        return before._replace(**changes)

    if not is_check:
        await call.server.replica_changes.throttle(broker_id, change)


def _broker_id(name: str) -> int:
    if not name.isascii() or not name.isdecimal() or len(name) > 10:
        why = f"Node id must be an integer, but it is: {name}" if name else _others()
        raise invalid_request(why)
    return int(name)


def _is_absent(asked: Any) -> bool:
    return bool(asked.name == _OF_DISKS and asked.config_operation == _DELETE)


def _change(asked: Any) -> tuple[str, int | None]:
    rate = _RATES.get(asked.name)
    if rate is None or asked.config_operation not in (_SET, _DELETE):
        raise invalid_request(_others())
    if asked.config_operation == _DELETE:
        return rate, None
    text = (asked.value or "").strip()
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ConfigError(
            "",
            f"Invalid value {asked.value} for configuration {asked.name}: expected bytes a second, "
            "from 0 on",
        )
    return rate, int(text)


def _others() -> str:
    names = " and ".join(_RATES)
    return f"The settings of a broker are those of its broker.yaml; only {names} can be set."


def throttle_configs(throttle: Throttle) -> Iterator[ConfigValue]:
    """Those that are set."""
    for name, key in _RATES.items():
        rate = getattr(throttle, key)
        if rate is not None:
            row = ConfigRow(name, ConfigType.LONG, _DOC)
            yield ConfigValue(row, str(rate), ConfigSource.DYNAMIC_BROKER, _UNBOUNDED)
