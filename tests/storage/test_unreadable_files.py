"""Files of a store that somebody cuts or deletes under a running broker: an error for who needs
them, and no SIGBUS.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform == "win32", reason="nobody can cut a mapped file there"
)

PROGRAM: Final = """
import logging, os, sys
from itertools import count
from pathlib import Path
from tests.storage.records import append_one, found_by_key
from roquet.common.steps import finished
from roquet.errors import UnreadableFile
from roquet.protocol.filters.tags import TagFilter
from roquet.storage.config import StoreConfig
from roquet.storage.store import Store

logging.basicConfig(format="LOG %(message)s")
root, kind = Path(sys.argv[1]), sys.argv[2]
config = StoreConfig(root, [root / "commitlog"], 65536, 20 * 100_000, index_slots=1000, index_entries=4000)

def opened():
    store = Store(config, count(1_700_000_000_000).__next__)
    store.open()
    return store

def append(topic):
    append_one(store, store.queue(topic, 0), b"x" * 1000, b"KEYS\\1k", [b"k"])
    store.end_turn()

def cut(folder, number=0, size=0):
    path = sorted((root / folder).iterdir())[number]
    os.truncate(path, size)
    return path

def tried(name, work):
    try:
        print(name, "gave", work())
    except UnreadableFile as error:
        print(name, "refused", error.filename)

store = opened()
for _ in range(200):
    append("T")
append("other")
finished(store.flush_index())
if kind in ("again", "gone", "queue again", "log again"):
    store.close()
    store = opened()
if kind in ("old", "again"):
    path = cut("commitlog")
if kind == "gone":
    path = sorted((root / "commitlog").iterdir())[0]
    path.unlink()
if kind in ("log", "log again"):
    path = cut("commitlog", -1)
if kind in ("queue", "queue again"):
    path = cut("consumequeue/T/0")
if kind == "index":
    path = cut("index")
print("path", path)
for _ in range(2):
    tried("first", lambda: store.fetch("T", 0, 0, 1, TagFilter()).count)
    tried("many", lambda: store.fetch("T", 0, 0, 800, TagFilter(frozenset([0]))).count)
    tried("message", lambda: len(store.log.record_at(0) or b""))
    tried("newest", lambda: store.fetch("other", 0, 0, 1, TagFilter()).count)
    tried("time", lambda: store.offset_at_time("T", 0, 5))
    end = store.log.end
    tried("append", lambda: append("T"))
    tried("log after it", lambda: store.log.end - end)
    tried("append elsewhere", lambda: append("other"))
    tried("key", lambda: len(found_by_key(store, "T", "k", 10, 0, 1 << 60).records))
print("end")
"""
"""What it prints is asserted; it runs in a process of its own, which a SIGBUS would end."""


def told_by(folder: Path, kind: str) -> tuple[list[str], list[str], str]:
    """What was done and how it went, what was logged, and which file was cut."""
    command = [sys.executable, "-c", PROGRAM, str(folder), kind]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    told = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert told.returncode == 0, (told.returncode, told.stdout, told.stderr)
    path, *lines, end = told.stdout.splitlines()
    assert end == "end"
    logged = [line for line in told.stderr.splitlines() if "cannot be read: path=" in line]
    return lines, logged, path.removeprefix("path ")


def refused(lines: list[str], path: str) -> set[str]:
    names = {line.partition(" refused ")[0] for line in lines if line.endswith(f" refused {path}")}
    assert not [line for line in lines if " refused " in line and not line.endswith(path)]
    return names


@pytest.mark.parametrize("kind", ["old", "again"])
def test_the_first_file_of_the_log_is_cut(tmp_path: Path, kind: str) -> None:
    """One that this process has written, and one that it has only opened."""
    lines, logged, path = told_by(tmp_path, kind)
    assert refused(lines, path) >= {"first", "many", "message"}
    assert refused(lines, path).isdisjoint({"newest", "append", "append elsewhere"})
    assert "newest gave 1" in lines
    assert len(logged) == 1
    assert path in logged[0]


def test_a_file_that_vanished_before_it_was_opened_is_not_made_anew(tmp_path: Path) -> None:
    lines, logged, path = told_by(tmp_path, "gone")
    assert refused(lines, path) >= {"first", "many", "message"}
    assert "newest gave 1" in lines
    assert len(logged) == 1
    assert not Path(path).exists()


@pytest.mark.parametrize("kind", ["log", "log again"])
def test_the_file_in_use_of_the_log_is_cut(tmp_path: Path, kind: str) -> None:
    lines, logged, path = told_by(tmp_path, kind)
    assert refused(lines, path) >= {"newest", "append", "append elsewhere"}
    assert "first gave 1" in lines
    assert len(logged) == 1


@pytest.mark.parametrize("kind", ["queue", "queue again"])
def test_the_file_in_use_of_a_queue_is_cut(tmp_path: Path, kind: str) -> None:
    """One that this process has written, and one that it has only read; what is refused is not in
    the log, either.
    """
    lines, logged, path = told_by(tmp_path, kind)
    assert lines.count("log after it gave 0") == 2
    assert refused(lines, path) >= {"first", "many", "append"}
    assert refused(lines, path).isdisjoint({"newest", "append elsewhere", "message"})
    assert "newest gave 1" in lines
    assert len(logged) == 1


def test_a_file_of_the_index_is_cut(tmp_path: Path) -> None:
    lines, logged, path = told_by(tmp_path, "index")
    assert refused(lines, path) == {"key"}
    assert len(logged) == 1
