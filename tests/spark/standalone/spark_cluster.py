"""A standalone Spark cluster on loopback: a master and its workers, each a process of its own."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pyspark

from roquet.spark.java import java_home
from tests.interop import wire
from tests.interop.processes import Program, free_port

WORKERS: Final = 2


def executors(worker: int) -> list[int]:
    """The JVMs that a worker has started; the script that became the worker can have left it an
    ended child, too.
    """
    lists = (each.read_text() for each in Path(f"/proc/{worker}/task").glob("*/children"))
    return [int(child) for text in lists for child in text.split() if is_executor(child)]


def is_executor(pid: str) -> bool:
    return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()


class SparkCluster:
    """What is started in the `with` block is gone after it; `url` is what `spark.master` is set
    to.
    """

    def __init__(self) -> None:
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._home = Path(pyspark.__file__).parent
        self._running = ExitStack()
        self._workers: list[Program] = []

    def __enter__(self) -> Self:
        host, port = wire.parse_address(self.url.removeprefix("spark://"))
        master = self._started("Master", "--host", host, "--port", str(port), "--webui-port", "0")
        master.wait_ready(
            lambda: "I have been elected leader" in master.log(), "the Spark master to lead"
        )
        place = [
            "--host",
            host,
            "--cores",
            "1",
            "--memory",
            "1g",
            "--webui-port",
            "0",
            "--work-dir",
            "work",
        ]
        self._workers = [self._started("Worker", *place, self.url) for _ in range(WORKERS)]
        master.wait_ready(
            lambda: master.log().count("Registering worker") == WORKERS,
            "the Spark workers to register",
        )
        return self

    def kill_executor(self) -> None:
        """The JVM of one of an application's executors, with -9."""
        pid = next(each for worker in self._workers for each in executors(worker.pid))
        os.kill(pid, signal.SIGKILL)

    @property
    def executors_killed(self) -> int:
        """So many were missed by their workers."""
        return sum(
            worker.log().count(f"exitStatus {128 + signal.SIGKILL}") for worker in self._workers
        )

    def _started(self, kind: str, *words: str) -> Program:
        program = self._running.enter_context(Program(f"spark-{kind.lower()}"))
        command = [
            str(self._home / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{kind.lower()}.{kind}",
            *words,
        ]
        environment = {
            "JAVA_HOME": str(java_home()),
            "SPARK_HOME": str(self._home),
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_NO_DAEMONIZE": "1"}
        program.launch(command, environment)
        self._running.callback(program.stop)  # an orderly end, as a worker's executors end with it
        return program

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()
