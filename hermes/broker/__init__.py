"""The broker: what requests do to the logs, and the Twisted that carries them.

`Broker` decides, `BrokerConnection` keeps order and bounds, the sends move bytes, `BrokerService`
starts and stops it all. Nothing here knows the client library, nor the client library this.
"""

from hermes.broker.service import BrokerService

__all__ = ["BrokerService"]
