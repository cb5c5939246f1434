"""Error messages for a store folder that cannot be used."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from roquet.errors import StoreError

_OTHER_FOLDER: Final = "choose another folder"
_NOT_ALLOWED: Final = f"let this user read and write it, or {_OTHER_FOLDER}"
_A_FILE: Final = f"a part of its path is a file: move that away, or {_OTHER_FOLDER}"
_ADVICE: Final = {
    errno.EROFS: f"mount it writable, or {_OTHER_FOLDER}",
    errno.EACCES: _NOT_ALLOWED,
    errno.EPERM: _NOT_ALLOWED,
    errno.ENOTDIR: _A_FILE,
    errno.EEXIST: _A_FILE,
}


@contextmanager
def explaining_folder_errors(folder: Path) -> Iterator[None]:
    """Turn an `OSError` about the store's folder into an error that names the setting and a remedy.

    :param folder: the store's folder (`storePathRootDir`).
    :raises StoreError: instead of an `OSError` for which `_ADVICE` has a remedy; any other error
        is raised unchanged.
    """
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0)
        if advice is None or error.filename is None:
            raise
        path = Path(os.fsdecode(error.filename))
        is_of_folder = any(
            path.is_relative_to(each) or each.is_relative_to(path)
            for each in (folder, folder.resolve())
        )
        # otherwise it is a folder that another setting names
        where = f"storePathRootDir={folder}" if is_of_folder else "the store"
        reason = os.strerror(error.errno or 0)
        raise StoreError(f"{where} cannot be used: {path}: {reason}; {advice}") from error
