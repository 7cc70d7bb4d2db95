"""A Spark that is too old is refused with the reason, not by a name that can't be imported."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest
from pyspark.sql.types import StructType

import pyspark_hermes
from hermes.spark import HermesDataSource
from hermes.spark.versions import check_spark


@pytest.mark.parametrize("installed", ["4.2.0", "4.2.0.dev3", "4.3.1", "4.10", "5.0.0rc1", None])
def test_what_sources_need_is_there(installed: str | None) -> None:
    check_spark(installed)


@pytest.mark.parametrize("installed", ["4.1.1", "4.0.0", "3.5.3", "4.1.0.dev2"])
def test_what_is_older_is_refused(installed: str) -> None:
    with pytest.raises(ImportError, match=f"PySpark 4.2 or newer, and this is {installed}"):
        check_spark(installed)


def test_a_spark_that_lacks_something_finds_a_source_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An import that failed would end Spark's search for all sources written in Python."""
    assert found().DefaultSource is HermesDataSource
    monkeypatch.setitem(sys.modules, "hermes.spark", None)
    source = found().DefaultSource({"subscribe": "clicks"})
    assert source.name() == HermesDataSource.name()
    schema = StructType()
    for use in (
        source.schema,
        lambda: source.writer(schema, overwrite=False),
        lambda: source.streamWriter(schema, overwrite=False),
    ):
        with pytest.raises(ImportError, match=r"import of hermes\.spark halted"):
            use()


def found() -> Any:
    """The module that Spark imports, as if for the first time."""
    assert pyspark_hermes.__file__ is not None
    spec = spec_from_file_location("imported_by_spark", pyspark_hermes.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
