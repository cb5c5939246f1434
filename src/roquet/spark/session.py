"""Starts Spark sessions on a Java that this PySpark supports."""

from __future__ import annotations

import os
import socket
import sys
from typing import Final

from pyspark.sql import SparkSession

from roquet.spark.java import ensure_java

_QUIET: Final = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
_TO_PYTHON: Final = {
    "spark.python.unix.domain.socket.enabled": str(hasattr(socket, "AF_UNIX")).lower()
}
"""Over TCP, Spark's default, Java and a Python worker often wait 40 ms for each other per task."""
_LOOPBACK: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


def session(app_name: str, **conf: str) -> SparkSession:
    """Start (or return) a Spark session whose Python workers run this interpreter.

    :param conf: Spark settings, as in `session("report", **{"spark.driver.memory": "1g"})`. Without
        `spark.master` Spark runs on this machine, on all its cores.
    :raises roquet.spark.java.JavaNotFound: no Java on this machine can run Spark.
    """
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    master = conf.get("spark.master", "local[*]")
    defaults = _QUIET | _TO_PYTHON | (_LOOPBACK if master.startswith("local") else {})
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in (defaults | conf).items():
        builder = builder.config(name, value)
    return builder.getOrCreate()
