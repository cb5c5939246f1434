"""RocketMQ as a PySpark data source: the formats `rocketmq` (source and sink) and `rocketmq-store`.

May import: admin, client, protocol, storage, storetool.
"""
