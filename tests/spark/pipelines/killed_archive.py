"""One run of an archive in a driver of its own that kills itself and its JVM, with -9, at a moment
of the write.

python -m tests.spark.pipelines.killed_archive NAME_SERVER FOLDER FORMAT MOMENT TOPIC...
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from roquet.spark.pipelines.archive.delta import delta_conf
from roquet.spark.pipelines.archive.folder import STATES
from roquet.spark.pipelines.archive.job import Archive, archive
from roquet.spark.pipelines.archive.sources import Topics
from roquet.spark.session import session

DATA: Final = "topic=*/day=*/*.parquet"
LOG: Final = "_delta_log"


def die() -> None:
    """With the whole process group, which the test made of this."""
    os.killpg(0, signal.SIGKILL)


def before_rename(matches: Callable[[Path, Path], bool]) -> None:
    """Die when a file that matches is about to get another name."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "os.rename" and matches(Path(str(arguments[0])), Path(str(arguments[1]))):
            die()

    sys.addaudithook(hook)


def when(is_so: Callable[[], bool]) -> None:
    """Die as soon as a folder looks like that: the JVM writes, whose steps cannot be seen from
    here.
    """

    def watch() -> None:
        while not is_so():
            pass
        die()

    threading.Thread(target=watch, daemon=True).start()


def is_state(path: Path) -> bool:
    return path.parent.name == STATES and path.suffix == ".json"


def parquet(folder: Path, moment: str) -> None:
    """`written`: Spark has written, nothing has its name yet. `before-state`: files are in their
    staging folder, the state is about to be the archive's. `within`: it is, and the second file is
    about to go where it belongs.
    """
    moves: list[Path] = []

    def is_second_move(source: Path, target: Path) -> bool:
        if STATES in target.parts or target.suffix != ".parquet":
            return False
        moves.append(source)
        return len(moves) == 2

    moments: dict[str, Callable[[Path, Path], bool]] = {
        "written": lambda source, target: source.suffix == ".parquet" and STATES in target.parts,
        "before-state": lambda _, target: is_state(target),
        "within": is_second_move,
    }
    before_rename(moments[moment])


def delta(folder: Path, moment: str) -> None:
    """`written`: a data file is there. `before-state`: a file of the log begins to be there, under
    whatever name. `within`: the commit is there, and the archive has not looked at it.
    """
    log = folder / LOG
    data, commits = len(list(folder.glob(DATA))), len(list(log.glob("*.json")))
    known = set(os.listdir(log)) if log.is_dir() else set()
    moments: dict[str, Callable[[], bool]] = {
        "written": lambda: len(list(folder.glob(DATA))) > data,
        "before-state": lambda: log.is_dir() and bool(set(os.listdir(log)) - known),
        "within": lambda: len(list(log.glob("*.json"))) > commits,
    }
    when(moments[moment])


def main(arguments: Sequence[str]) -> None:
    name_server, folder, file_format, moment, *topics = arguments
    conf = delta_conf() if file_format == "delta" else {}
    spark = session(
        "killed-archive", **{"spark.master": "local[2]", "spark.driver.memory": "1g", **conf}
    )
    source = Topics(name_server, tuple(topics), options={"failOnDataLoss": "false"})
    {"parquet": parquet, "delta": delta}[file_format](Path(folder), moment)
    archive(spark, Archive(source, folder, file_format))


if __name__ == "__main__":
    main(sys.argv[1:])
