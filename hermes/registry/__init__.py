"""The schema registry: schemas have ids, are immutable, and follow rules of compatibility.

A state machine fed by events, and what asks it over HTTP in the shape of Confluent's registry.

    errors          what is answered instead of a result: Confluent's codes
    limits          how much one call may ask
    documents       JSON from anybody, read within limits
    values          schemas, versions of subjects, associations
    events          what has happened, as the log keeps it
    state           what all events come to
    schemas         schemas of either type, with what they refer to
    lookups         what is told about a state
    writer          decides changes ahead of what is durable
    registering     the call that registers a schema
    trying          the calls that look for a schema, or compare it
    changes         the calls that delete, and that change settings and modes
    associating     which subject a topic has
    rest_messages   one call and its response, without HTTP
    store           what answers stand on, and one in memory
    calls           what a call's path, query and body say
    reads           what calls that only look are answered with
    routes          every call that is understood
    service         from a call to its answer
    log_records     events in the topic: which of them count
    replica         a copy of the state, fed from the topic
    snapshot        the file that makes a start quick
    home            which broker has the topic
    topic           reading and appending there
    appending       events on their way into the topic
    election        which registry of a cluster decides
    topic_log       the thread that reads the topic, and writes it if this one leads
    forwarding      calls sent on to the leader
    topic_store     what answers stand on in a cluster
    rest            calls over HTTP, on twisted.web
    metrics         numbers for Prometheus
    monitoring      `/metrics` and `/health` of a registry in a process of its own
    wiring          a registry put together and served

What is above `log_records` knows no clock and no file, and what is above `rest` no Twisted.
"""
