"""Fifty kills under a producer that waits for the disk."""

import pytest
from kills_under_a_producer import RestartableBroker, check_no_loss, secured
from soak import report, times


@pytest.mark.soak
def test_what_is_reported_as_sent_is_there_in_order(tmp_path) -> None:
    broker = RestartableBroker(tmp_path / "broker", {"log_dir": str(tmp_path / "log")})
    try:
        check_no_loss(broker, kills=times(50))
        report("kills under a producer", kills=times(50), lost=0)
    finally:
        broker.stop()


@pytest.mark.soak
def test_by_tls_and_as_a_user_it_is_there_too(tmp_path, certificates) -> None:
    settings, security = secured(certificates, tmp_path)
    settings["log_dir"] = str(tmp_path / "log")
    broker = RestartableBroker(tmp_path / "broker", settings)
    try:
        check_no_loss(broker, kills=times(50), security=security)
        report("kills under a producer, by TLS and as a user", kills=times(50), lost=0)
    finally:
        broker.stop()
