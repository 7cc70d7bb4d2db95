"""Ten thousand strangers at an embedded server that asks for users by TLS."""

from pathlib import Path

import pytest
from certificates import Certificates
from fuzzed_coordination import fuzz_guarded
from soak import report, seed, times


@pytest.mark.soak
def test_fuzzed_proofs(tmp_path: Path, certificates: Certificates) -> None:
    figures = fuzz_guarded(tmp_path / "server", certificates, times(10_000), seed())
    report("fuzz, coordination's users", **figures)
    assert figures["rss_mib_after"] - figures["rss_mib_before"] < 60
