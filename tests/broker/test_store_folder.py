"""What a broker says that cannot use its store's folder."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

import pytest

from roquet.broker.server import Broker
from roquet.broker.store_folder import explaining_folder_errors
from roquet.errors import StoreError
from tests.broker.served import config


@pytest.mark.parametrize(
    ("number", "path", "told"),
    [
        (
            errno.EROFS,
            "/x/s/lock",
            "storePathRootDir=/x/s cannot be used: /x/s/lock: .*; mount it writable, or",
        ),
        (
            errno.EACCES,
            "/x/s/lock",
            "storePathRootDir=/x/s cannot be used: .*; let this user read and write it, or",
        ),
        (
            errno.EACCES,
            "/x",
            "storePathRootDir=/x/s cannot be used: /x: .*; let this user read and write it, or",
        ),
        (
            errno.EEXIST,
            "/x/s",
            "storePathRootDir=/x/s cannot be used: .*; a part of its path is a file: move that away",
        ),
        (
            errno.EROFS,
            "/log/0",
            "the store cannot be used: /log/0: .*; mount it writable, or choose another folder",
        ),
    ],
)
def test_a_folder_that_cannot_be_used_is_named_with_what_to_do(
    number: int, path: str, told: str
) -> None:
    with pytest.raises(StoreError, match=f"^{told}"), explaining_folder_errors(Path("/x/s")):
        raise OSError(number, os.strerror(number), path)


@pytest.mark.parametrize(("number", "path"), [(errno.EIO, "/x/s/lock"), (errno.EROFS, None)])
def test_what_else_a_drive_says_stays_as_it_is(number: int, path: str | None) -> None:
    with pytest.raises(OSError, match=os.strerror(number)), explaining_folder_errors(Path("/x/s")):
        raise OSError(number, os.strerror(number), path)


async def test_a_store_path_that_is_a_file_is_told_of(tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(b"")
    settings = config(
        "127.0.0.1", storePathRootDir=tmp_path / "s", bindAddress="127.0.0.1", listenPort=0
    )

    with pytest.raises(
        StoreError, match=re.escape(f"storePathRootDir={tmp_path / 's'} cannot be used: ")
    ):
        await Broker(settings).start()
