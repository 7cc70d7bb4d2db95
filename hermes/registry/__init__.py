"""The schema registry: schemas have ids, are immutable, and follow rules of compatibility.

A state machine fed by events, and over it the HTTP interface of Confluent's registry.

    documents      JSON from anybody, read within limits; limits: how much one call may ask; errors:
                   Confluent's codes
    entities       schemas, versions of subjects, associations; events: what has happened, as the
                   log keeps it; state: what all events come to
    drafts         schemas of either type, with what they refer to; lookups: reading a state
    writer         decides changes ahead of what is durable
    registration   the call that registers a schema; schema_queries: those that look for one, or
                   compare it; mutations: those that delete, and that change settings and modes;
                   associations: which subject a topic has; reads: the calls that only read
    rest_messages  one call and its response, without HTTP; call_parameters: its path, query, body
    store          the interface of what keeps a registry
    routes         every call that is understood; service: from a call to its response
    log_records    events in the topic: which of them count; replica: a copy of the state, fed from
                   the topic; snapshot: the file that makes a start quick
    home           which broker has the topic; home_topic: reading and appending there;
                   append_queue: events on their way into it
    election       which registry of a cluster leads; forwarding: calls forwarded to it
    topic_log      the thread that reads the topic, and writes it if this one leads; topic_store:
                   the store of a registry in a cluster
    rest           calls over HTTP, on twisted.web; metrics: numbers for Prometheus; monitoring:
                   `/metrics` and `/health` of a process of its own; wiring: put together and served

Modules above `log_records` know no clock and no file, those above `rest` no Twisted.
"""
