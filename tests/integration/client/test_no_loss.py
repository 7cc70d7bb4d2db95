"""A producer with acks=flushed loses nothing that it reported as sent. The long run: tests/soak."""

from kills_under_a_producer import check_no_loss


def test_what_is_reported_as_sent_is_there_in_order(start_broker) -> None:
    check_no_loss(start_broker(), kills=10)
