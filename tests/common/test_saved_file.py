"""Small files that are written in the background."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path

import pytest

from roquet.common.files import replace, replace_with_backup
from roquet.common.runtime import Runtime
from roquet.common.saved_file import SavedFile


class Written:
    """A file whose content, and whose drive, a test chooses."""

    def __init__(self, folder: Path) -> None:
        self.content = b""
        self.calls = 0
        self.replace = replace
        """What the drive does when a file is to be replaced."""
        drive = partial(replace_with_backup, replace=lambda path, data: self.replace(path, data))
        self.file = SavedFile(folder / "kvConfig.json", self._now, Runtime(), drive)

    def _now(self) -> Callable[[], bytes]:
        self.calls += 1
        content = self.content
        return lambda: content

    async def save(self, content: bytes) -> None:
        self.content = content
        await self.file.save()

    @property
    def on_drive(self) -> bytes:
        return self.file.path.read_bytes()


async def test_what_cannot_be_written_is_told_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    its = Written(tmp_path)
    await its.save(b"old")

    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    its.replace = full
    with pytest.raises(OSError, match="No space"):
        await its.save(b"new")
    for _ in range(2):
        its.file.retry()
        await its.file.close()
    assert its.on_drive == b"old"
    its.replace = replace
    for _ in range(2):
        its.file.retry()
        await its.file.close()
    assert its.on_drive == b"new"
    told = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert told == ["file not written, it stays as it was and is tried again", "file written again"]


async def test_only_the_first_failure_and_the_first_success_after_it_are_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error of another kind is no failed write: nothing would mend it. It is logged each time."""
    errors = [None, OSError("full"), ValueError("odd"), KeyError(), None, None, OSError("again")]
    outcomes = iter(errors)

    def fail_or_not(*_: object) -> None:
        error = next(outcomes)
        if error is not None:
            raise error

    file = SavedFile(Path("file"), lambda: lambda: b"", Runtime(), fail_or_not)
    for error in errors:
        with nullcontext() if error is None else pytest.raises(type(error)):
            await file.save()

    text = "file not written, it stays as it was and is tried again: path=file error="
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("ERROR", f"{text}full"),
        ("ERROR", "file not written: path=file"),
        ("WARNING", "file written again: path=file"),
        ("ERROR", f"{text}again"),
    ]
    assert [each.exc_info is not None for each in caplog.records] == [False, True, False, False]


async def test_many_changes_while_a_slow_drive_writes_share_one_write_and_hold_nobody_up(
    tmp_path: Path,
) -> None:
    its = Written(tmp_path)
    goes_on = threading.Event()

    def slow(path: Path, data: bytes) -> None:
        assert goes_on.wait(20)
        replace(path, data)

    its.replace = slow
    first = asyncio.create_task(its.save(b"first"))
    while its.calls == 0:
        await asyncio.sleep(0)
    others = [asyncio.create_task(its.save(b"%d" % number)) for number in range(100)]
    for _ in range(10):
        await asyncio.sleep(0)
    assert not first.done()
    goes_on.set()
    await asyncio.gather(first, *others)
    assert (its.on_drive, its.calls) == (b"99", 2)


async def test_who_asked_may_leave_and_the_write_goes_on(tmp_path: Path) -> None:
    its = Written(tmp_path)
    its.content = b"kept"
    its.file.save()
    await its.file.close()
    assert its.on_drive == b"kept"
