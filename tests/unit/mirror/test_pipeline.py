"""What a mirror says of partitions that it has no longer."""

import threading

from hermes.config.mirror import MirrorClusterAddress, MirrorConfig
from hermes.coordination.layout import BrokerPartition
from hermes.coordination.sessions import Lease
from hermes.mirror.pipeline import Mirror


def test_what_fails_of_a_partition_that_is_another_process_s_is_no_problem_here() -> None:
    places = (MirrorClusterAddress("east", brokers=(("localhost", 1),)),)
    west = MirrorClusterAddress("west", brokers=(("localhost", 2),))
    mirror = Mirror(MirrorConfig(name="m", sources=places, target=west))
    place = ("clicks", BrokerPartition(0, 0), "", threading.Condition(), Lease(0))
    claim = mirror._make_claim("east", *place)
    mirror.set_error(claim, "the target doesn't answer")
    assert list(mirror.errors) == [str(claim)]
    claim.revoke(lost=True)
    mirror.set_error(claim, "the target doesn't answer")  # which was asked before
    assert not mirror.errors
    assert not claim.figures.error
    mirror.stop()
