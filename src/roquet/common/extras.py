"""Packages that only a part of roquet needs: who lacks one is told which extra brings it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

_EXTRAS: Final[Mapping[str, str]] = {
    "numpy": "broker",
    "lz4": "compression",
    "opentelemetry": "opentelemetry",
    "backports": "compression",
}
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
        package = (error.name or "").partition(".")[0]
        extra = _EXTRAS.get(package)
        if extra is None:
            raise
        raise MissingExtraError(
            f"{user} needs {package}: pip install 'roquet[{extra}]'", name=package
        ) from error
