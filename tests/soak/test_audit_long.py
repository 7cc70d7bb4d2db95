"""A million messages through a whole pipeline, and one of them lost or doubled at each tier."""

from contextlib import ExitStack

import pytest
from audited import FAULTS
from audited_kafka import AuditedKafkaTopic
from audited_mirror import FaultyMirror
from audited_pipeline import AuditedPipeline
from mirror_clusters import Clusters
from soak import report, times


@pytest.mark.soak
def test_one_of_a_million_is_found_at_each_tier(tmp_path) -> None:
    with ExitStack() as stack:
        clusters = Clusters(tmp_path / "a place", stack)
        run = AuditedPipeline(clusters, times(1_000_000), kills=times(10))
        report("audit", differences=0, **run.run())


@pytest.mark.soak
def test_one_of_a_million_is_found_in_a_topic_of_kafkas_format(tmp_path) -> None:
    run = AuditedKafkaTopic(tmp_path / "a place", times(1_000_000), kills=times(10))
    report("audit of Kafka's format", differences=0, **run.run())


@pytest.mark.soak
@pytest.mark.parametrize("fault", FAULTS)
def test_one_of_a_million_that_a_mirror_loses_or_repeats_is_found(tmp_path, fault) -> None:
    with ExitStack() as stack:
        clusters = Clusters(tmp_path / "a place", stack)
        run = FaultyMirror(clusters, times(1_000_000), fault)
        report("audit of a mirror", differences=1, **run.run())
