"""Add up a topic with Spark and write the sums to Parquet.

    pip install '.[spark]'
    roquet dev                                          # in another terminal
    python examples/spark_batch.py                      # or: ... 10.0.0.5:9876 folder-for-the-sums

It sends some sales first, so that there is something to add up.
"""

from __future__ import annotations

import asyncio
import json
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from roquet import Message, Producer
from roquet.spark.session import session

NAME_SERVER = "127.0.0.1:9876"
OUTPUT = "sales-by-branch"
TOPIC = "example-sales"


async def send_sales(name_server: str) -> None:
    async with Producer(name_server, "example-tills") as producer:
        await producer.send_batch([sale(f"b{number % 3}", number) for number in range(30)])


def sale(branch: str, amount: int) -> Message:
    return Message(TOPIC, json.dumps({"branch": branch, "amount": amount}).encode(), keys=branch)


def sales_by_branch(spark: SparkSession, name_server: str) -> DataFrame:
    """Everything that is in the topic when this is planned; messages are JSON in the column
    `body`.
    """
    messages = (
        spark.read.format("rocketmq")
        .option("nameServer", name_server)
        .option("subscribe", TOPIC)
        .load()
    )
    parsed = f.from_json(messages.body.cast("string"), "branch string, amount bigint")
    return (
        messages.dropDuplicates(["msgId"])  # a retried send may be stored twice, with one id
        .select(parsed.alias("sale"))
        .groupBy("sale.branch")
        .agg(f.count("*").alias("sales"), f.sum("sale.amount").alias("amount"))
    )


def main(name_server: str = NAME_SERVER, output: str = OUTPUT) -> None:
    asyncio.run(send_sales(name_server))
    spark = session("sales by branch")
    sales_by_branch(spark, name_server).write.mode("overwrite").parquet(output)
    spark.read.parquet(output).orderBy("branch").show()


if __name__ == "__main__":
    main(*sys.argv[1:])
