"""The audit: that nothing is lost, and nothing doubled, from producers to the last consumer.

In the order of a reading:

    events          what the parts of a pipeline report on the topic hermes-audit: values <-> JSON
    publishing      sends these, so that each counts once whatever fails
    counting        counts a tier's messages by topic and window
    set_counting, record_counting
                    what is in a message set of 0.7, and in batches of Kafka's format
    log_counting    reads logs for that
    producers, cluster_counter, consumers, clients
                    the tiers: the callback handler `audit`; a cluster's messages, counted as a
                    group; members of a group that are audited, and the decoder `audit`; producers
                    and consumers of other libraries
    event_reader, tiers, log_tally
                    reads events, and adds them up, of each log by its ranges
    commits         what groups of Kafka's consumers have by what they committed
    comparing       what is complete, short, over or uncertain
    checking        all of that for some clusters: what `hermes audit` does
    audit_metrics, serving
                    its metrics, and how they are served

docs/audit.md is the guide, with what the audit can prove and what it can't. The stamp that
producers put on messages is `hermes.protocol.stamps`.
"""
