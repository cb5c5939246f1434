"""Registers `format("rocketmq-store")`: Spark imports `pyspark_*` modules to find data sources."""

from roquet.spark.store_source import RocketMQStoreSource as DefaultSource

__all__ = ["DefaultSource"]
