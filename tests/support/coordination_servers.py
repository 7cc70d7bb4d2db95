"""The servers that everything about coordination has to work on alike."""

from collections.abc import Callable

from embedded_coordination_process import EmbeddedCoordinationProcess
from server_process import ServerProcess
from zookeeper_process import ZooKeeperProcess

__all__ = ["KINDS", "ServerProcess"]

#: What makes one of them, in a directory of its own.
KINDS: dict[str, Callable[..., ServerProcess]] = {
    "embedded": EmbeddedCoordinationProcess,
    "zookeeper": ZooKeeperProcess,
}
