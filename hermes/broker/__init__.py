"""The broker process: its connections, and what starts, watches and stops it all.

Nothing here knows the client library, nor the client library this. In the order of a reading:

service, serving, shutdown
             the Twisted service; a broker between its start and its stop; how long a stop waits
connection, connections
             one client: order and bounds of requests; all of them
coordinating its part in coordination
periodic, maintenance, clocks
             what runs by the clock, and by which
monitoring, families, health
             its metrics; their names; whether it is ready
loopback_client, sidecar_process
             how its own parts are its clients; a program beside it
"""

from hermes.broker.service import BrokerService

__all__ = ["BrokerService"]
