"""The broker: what requests do to the logs, and the Twisted that carries them.

`Broker` decides, `BrokerConnection` keeps order and bounds, the sends move bytes, `BrokerService`
starts and stops it all. Nothing here knows the client library, nor the client library this. In the
order of a reading:

    broker       which module carries out which request; outcomes: how one ends
    producing    the life of a produce; set_checker, acknowledging: parts of it
    record_produces
                 the same with record batches; mirroring: produces of mirrors, which happen once
    fetching     the life of a fetch; waiting: until there is enough to fetch
    lookups      questions about a partition; describing: the broker itself
    topics       which there are; flushing: when logs are flushed, and flush_queue: which first
    changing     topics created and altered, broker.yaml read again; settings: what is in force
    shared       what all these have in common; metrics: what they count; clients: who asks
    fairness, large_responses, limits, pages
                 what keeps one client's requests from holding up the others
    connection   one client: order and bounds of requests; connections: all of them; responses,
                 sends, carriers: what goes out; sockets: the rest of a socket
    serving      a broker between its start and its stop, and what it consists of; patience: how
                 long a stop waits; periodic, maintenance: what runs by the clock, and clocks: which
    coordinating its part in coordination; advertising: how its listeners are reached; neighbours:
                 the other brokers, for clients that ask
    monitoring   its metrics, for Prometheus; families: their names; health: whether it is ready
    companion    a program beside the broker, in a process of its own
    service      the Twisted service; checks: what could not start
"""

from hermes.broker.service import BrokerService

__all__ = ["BrokerService"]
