"""A whole pipeline, with kills of producers, and faults of every kind in every kind of tier."""

from contextlib import ExitStack

from audited_pipeline import AuditedPipeline
from mirror_clusters import Clusters


def test_one_of_20000_is_found_at_each_tier_and_nothing_where_nothing_is(tmp_path):
    with ExitStack() as stack:
        AuditedPipeline(Clusters(tmp_path / "a place", stack), 20_000, kills=2).run()
