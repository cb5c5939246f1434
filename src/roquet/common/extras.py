"""Packages that only a part of roquet needs: who lacks one is told which extra brings it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_EXTRAS: Final[Mapping[str, str]] = {"numpy": "broker"}
"""Package -> the extra of roquet that installs it."""


class MissingExtraError(ModuleNotFoundError):
    """A package is missing; the text is one line that says what to install."""


@contextmanager
def needed_by(user: str) -> Iterator[None]:
    """Name the extra to install where an import in the block lacks a package.

    :param user: what cannot be used without the package.
    :raises MissingExtraError: an import in the block found no module of such a package.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise MissingExtraError(
            f"{user} needs {error.name}: pip install 'roquet[{extra}]'", name=error.name
        ) from error
