"""How many examples property tests try: some in every run, twenty times as many in the soak.

`pytest --hypothesis-profile=soak tests/property` does what the soak does.
"""

from hypothesis import settings

__all__ = ["examples"]

_USUAL = 100


def examples(usual: int) -> int:
    """So many in a usual run, for a test that wants fewer than 100, or more; more in the soak."""
    return usual * settings().max_examples // _USUAL
