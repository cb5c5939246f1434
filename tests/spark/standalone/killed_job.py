"""Jobs that lose an executor: `python -m tests.spark.standalone.killed_job MASTER NAME_SERVER TOPIC
FOLDER`.

The topic goes to an archive in FOLDER, in many tasks; then numbers go to TOPIC-sent, once each,
slowly enough that whoever started this sees them come, and can kill the executor that sends them.
"""

from __future__ import annotations

import sys
from typing import Final

from roquet.spark.pipelines.archive.job import Archive, archive
from roquet.spark.pipelines.archive.sources import Topics
from roquet.spark.pipelines.send.resend import paced
from tests.spark.standalone.job import session_on

ROWS_SENT: Final = 1_200
TASKS: Final = 4
ROWS_A_SECOND: Final = 100
"""Of one task."""


def main(master: str, name_server: str, topic: str, folder: str) -> None:
    spark = session_on(master)
    archive(
        spark,
        Archive(Topics(name_server, (topic,), options={"maxRecordsPerPartition": "25"}), folder),
    )
    rows = spark.range(ROWS_SENT, numPartitions=TASKS).selectExpr("cast(id AS string) AS body")
    slowly = rows.mapInArrow(paced(ROWS_A_SECOND), rows.schema)
    options = {
        "nameServer": name_server,
        "topic": f"{topic}-sent",
        "delivery": "effectively-once",
        "batchRows": "10",
    }
    slowly.write.format("rocketmq").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
