"""Drivers killed with -9 in the midst of streams and loads: nothing is lost, nothing is twice."""

import random

import pytest
from driver_kills import check_exactly_once

from hermes.testing import running_broker

pytestmark = pytest.mark.nightly


def test_two_kills_of_the_driver(tmp_path) -> None:
    """The second one hits what the first one's successor makes good; the soak suite has fifty."""
    seed = random.getrandbits(32)  # pytest-randomly makes it the same for the same seed
    with running_broker(settings={"num_partitions": 2}) as broker:
        check_exactly_once(broker.port, tmp_path, seed, kills=2)
