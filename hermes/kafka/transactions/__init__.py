"""The coordinator of transactions, carried out: what decides is in `hermes.transactions`.

state_log       one partition of `__transaction_state`: read once, appended to
coordinator     the transactional ids whose partitions this broker leads; every change of one
ending          has markers written wherever a decided transaction wants them, until all are
markers         writes those that are for this broker
remote          asks coordinators and leaders on other brokers
transactions    what requests work with
transaction_metrics  their metrics
requests        the requests of producers, and of other brokers
"""
