"""A producer with acks=flushed loses nothing that it reported as sent. The long run: tests/soak."""

from kills_under_a_producer import check_no_loss, check_outlived, secured


def test_what_is_reported_as_sent_is_there_in_order(start_broker) -> None:
    check_no_loss(start_broker(), kills=10)


def test_a_producer_with_defaults_outlives_its_broker(start_broker) -> None:
    check_outlived(start_broker(), kills=2)


def test_it_does_so_by_tls_and_as_a_user(start_broker, certificates, tmp_path) -> None:
    settings, security = secured(certificates, tmp_path)
    check_outlived(start_broker(**settings), kills=2, security=security)
