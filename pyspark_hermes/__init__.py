"""Registers `format("hermes")` with every Spark session: Spark imports all modules `pyspark_*`.

It must be possible to import this anywhere: a module that can't be is the end of Spark's search,
and of all other sources that are written in Python. What Hermes lacks is said when it is used.
"""

from typing import NoReturn

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]

try:
    from hermes.spark import HermesDataSource as DefaultSource
except ImportError as error:
    _REASON = str(error)

    class DefaultSource(DataSource):  # type: ignore[no-redef]
        """Stands for the source where it can't be imported, and says why."""

        @classmethod
        def name(cls) -> str:
            """The name of the format."""
            return "hermes"

        def schema(self) -> NoReturn:
            """Refuse any use for reading."""
            raise ImportError(_REASON)

        def writer(self, schema: StructType, overwrite: bool) -> NoReturn:
            """Refuse to write."""
            raise ImportError(_REASON)

        streamWriter = writer
