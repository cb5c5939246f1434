"""RocketMQ as a PySpark data source: `spark.read.format("rocketmq")`, `rocketmq-store` and the sink.

May import: admin, client, protocol, storage, storetool.
"""
