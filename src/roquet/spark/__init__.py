"""RocketMQ as a PySpark data source: `spark.read.format("rocketmq")`."""
