"""A producer with acks=flushed loses nothing that it reported as sent. The long run: tests/soak."""

from kills_under_a_producer import check_no_loss, check_outlived


def test_what_is_reported_as_sent_is_there_in_order(start_broker) -> None:
    check_no_loss(start_broker(), kills=10)


def test_a_producer_with_defaults_outlives_its_broker(start_broker) -> None:
    check_outlived(start_broker(), kills=2)
