"""Where Spark looks for data sources: with this module installed, `format("rocketmq-store")` needs no registration."""

from roquet.spark.store_source import RocketMQStoreSource as DefaultSource

__all__ = ["DefaultSource"]
