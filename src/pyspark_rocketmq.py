"""Registers `format("rocketmq")`: Spark imports `pyspark_*` modules to find data sources."""

from roquet.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
