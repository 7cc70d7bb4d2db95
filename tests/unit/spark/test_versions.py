"""A Spark that is too old is refused with the reason, not by a name that can't be imported."""

import pytest

from hermes.spark.versions import check_spark


@pytest.mark.parametrize("installed", ["4.2.0", "4.2.0.dev3", "4.3.1", "4.10", "5.0.0rc1", None])
def test_what_sources_need_is_there(installed: str | None) -> None:
    check_spark(installed)


@pytest.mark.parametrize("installed", ["4.1.1", "4.0.0", "3.5.3", "4.1.0.dev2"])
def test_what_is_older_is_refused(installed: str) -> None:
    with pytest.raises(ImportError, match=f"PySpark 4.2 or newer, and this is {installed}"):
        check_spark(installed)
