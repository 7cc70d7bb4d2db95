"""One Kafka client's connection: a `BrokerConnection` whose requests are Kafka's.

Order and bounds are the same: see there. Kafka's own broker takes one request of a connection at a
time; here Produce requests don't wait for the flush of those before them.
"""

from twisted.internet.interfaces import IAddress
from twisted.internet.protocol import ServerFactory

from hermes.broker.connection import BrokerConnection
from hermes.broker.connections import Connections
from hermes.kafka.authenticating import KafkaGate
from hermes.kafka.dispatching import Dispatcher
from hermes.kafka.frames import FrameReceiver, ProduceFrame
from hermes.server.policies import ListenerPolicy


class KafkaConnection(BrokerConnection):
    _pipelined = (ProduceFrame,)
    _gate_kind = KafkaGate

    def _new_receiver(self) -> FrameReceiver:
        return FrameReceiver(self._connections.config.max_request_bytes)


class KafkaFactory(ServerFactory):
    """Makes the connections of one listener."""

    noisy = False

    def __init__(
        self, connections: Connections, dispatcher: Dispatcher, policy: ListenerPolicy
    ) -> None:
        self._connections = connections
        self._dispatcher = dispatcher
        self._policy = policy

    def buildProtocol(self, addr: IAddress | None) -> KafkaConnection | None:
        if not self._connections.has_room(addr):
            return None
        return KafkaConnection(self._connections, self._policy, self._dispatcher)
