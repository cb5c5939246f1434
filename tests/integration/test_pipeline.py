"""`roquet pipeline` as its users start it: a process with a Spark of its own, which may be
killed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from roquet.dev import Cluster
from tests.docs.conftest import cluster
from tests.spark.pipelines.conftest import send

__all__ = ["cluster"]

pytestmark = [pytest.mark.process, pytest.mark.spark]

MESSAGES: Final = 6000
PATIENCE_S: Final = 180


@contextmanager
def running(*words: object) -> Iterator[subprocess.Popen[str]]:
    """The command, its JVM and its workers in a process group of their own, which does not outlive
    the block.
    """
    command = [sys.executable, "-m", "roquet.cli.main", "pipeline", *map(str, words)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def wait_until(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def being_written(folder: Path) -> bool:
    """Files of a run that is not over; folders come and go meanwhile."""
    names = (
        name
        for staged in folder.glob("_roquet/staged-*")
        for *_, files in os.walk(staged)
        for name in files
    )
    return any(name.endswith(".parquet") for name in names)


def workers_of(session: int) -> list[int]:
    """The Python processes that read for Spark: forks of a pyspark.daemon, whose parent is one,
    too.
    """
    daemons: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and b"pyspark.daemon" in (entry / "cmdline").read_bytes():
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == session:
                    daemons[int(entry.name)] = int(fields[1])
        except OSError:
            continue
    return [pid for pid, parent in daemons.items() if parent in daemons]


def archived_numbers(folder: Path) -> list[int]:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = folder.glob("topic=*/day=*/*.parquet")
    return sorted(
        int(body)
        for file in files
        for body in parquet.ParquetFile(file).read(["body"])["body"].to_pylist()
    )


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_an_archive_has_each_message_once_whoever_is_killed_meanwhile(
    cluster: Cluster, tmp_path: Path
) -> None:
    """First the driver, then the workers that read for the next run, with -9."""
    send(cluster.name_server, "orders", range(MESSAGES))
    words = [
        "archive",
        tmp_path,
        "-n",
        cluster.name_server,
        "-t",
        "orders",
        "-o",
        "pullBatchSize=1",
        "--json",
    ]
    with running(*words) as process:
        wait_until(lambda: being_written(tmp_path), process)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert not list(tmp_path.glob("topic=*"))

    with running(*words, "--master", "local[2,4]") as process:
        wait_until(lambda: being_written(tmp_path) and workers_of(process.pid), process)
        killed = workers_of(process.pid)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=PATIENCE_S)

    assert killed
    assert process.returncode == 0, errors
    assert json.loads(output)["rows"] == MESSAGES
    assert archived_numbers(tmp_path) == list(range(MESSAGES))


def test_what_cannot_be_done_is_told_in_a_line(tmp_path: Path) -> None:
    with running(
        "archive", tmp_path, "-n", "127.0.0.1:1", "-t", "orders", "-o", "noProgressTimeoutMs=100"
    ) as process:
        output, errors = process.communicate(timeout=PATIENCE_S)

    assert (process.returncode, output) == (2, "")
    assert errors.splitlines()[-1].startswith("roquet: 127.0.0.1:1: no answer in 0.1 s")
