"""The audit of a topic of Kafka's format, through kills of all that may be killed."""

from audited_kafka import AuditedKafkaTopic


def test_one_of_20000_is_found_at_each_tier_and_nothing_where_nothing_is(tmp_path):
    AuditedKafkaTopic(tmp_path / "a place", 20_000, kills=2).run()
