"""Where Spark looks for data sources: with this module installed, `format("rocketmq")` needs no registration."""

from roquet.spark.source import RocketMQSource as DefaultSource

__all__ = ["DefaultSource"]
