"""Registers `format("hermes")` with every Spark session: Spark imports all modules `pyspark_*`."""

from hermes.spark import HermesDataSource as DefaultSource

__all__ = ["DefaultSource"]
