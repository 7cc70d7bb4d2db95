from typing import Any

import pytest

from hermes.client.groups import ConsumerConfig
from hermes.errors import ConfigError


def test_durations_are_texts_or_milliseconds() -> None:
    config = ConsumerConfig(group="g", zookeeper_connect="a:1", auto_commit_interval=1500)
    assert config.seconds("auto_commit_interval") == 1.5
    assert config.seconds("zookeeper_session_timeout") == 6


@pytest.mark.parametrize(
    "settings",
    [
        {"group": "a/b"},
        {"group": ""},
        {"consumer_id": "a/b"},
        {"zookeeper_connect": ""},
        {"auto_offset_reset": "latest"},
        {"on_corrupt": "ignore"},
        {"prefetch_bytes": 0},
        {"fetch_bytes": 1.5},
        {"fetch_wait": "soon"},
        {"fetch_wait": 0},
        {"consumer_timeout": -1},
    ],
)
def test_what_is_wrong_is_named(settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        ConsumerConfig(**{"group": "g", "zookeeper_connect": "a:1", **settings})
