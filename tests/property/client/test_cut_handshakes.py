"""Connections that are cut at any byte of TLS and SCRAM: typed errors, another try is all right."""

from collections.abc import Iterator
from typing import Any

import pytest
from byte_cutter import ByteCutter, Cut
from client_drivers import DRIVERS, Driver
from example_counts import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes import errors
from hermes.errors import is_retriable
from hermes.testing import RunningBroker, running_broker

USERS = {"alice": "the reader's pa55word"}

cuts = st.builds(
    Cut,
    st.sampled_from(["client", "broker"]),
    # Both handshakes of either side are shorter than that.
    st.integers(0, 2500),
    st.sampled_from(["end", "reset"]),
)


@pytest.fixture(scope="module", params=[True, False], ids=["tls", "plain"])
def broker(request: pytest.FixtureRequest) -> Iterator[RunningBroker]:
    with running_broker(tls=request.param, users=USERS) as running:
        yield running


@pytest.mark.parametrize("kind", list(DRIVERS))
def test_a_cut_at_any_byte_is_no_refusal_and_the_next_connection_is_good(
    broker: RunningBroker, kind: str
) -> None:
    cutter = ByteCutter((broker.host, broker.port))
    security: dict[str, Any] = broker.client_settings("alice")

    @settings(max_examples=examples(30))
    @given(cut=cuts)
    def check(cut: Cut) -> None:
        client.disconnect()
        cutter.cut = cut
        before = cutter.cut_count
        failure = failure_of(client)
        if failure is not None:
            assert cutter.cut_count > before
            assert isinstance(failure, errors.BrokerUnavailableError)
            assert is_retriable(failure), failure
        cutter.cut = None
        client.disconnect()
        assert client.metadata([]).broker_id == broker.broker_id

    try:
        with DRIVERS[kind]("127.0.0.1", cutter.port, timeout_seconds=60, **security) as client:
            check()
        assert cutter.cut_count
    finally:
        cutter.stop()


def failure_of(client: Driver) -> errors.HermesError | None:
    try:
        client.metadata([])
    except errors.HermesError as failure:
        return failure
    return None
