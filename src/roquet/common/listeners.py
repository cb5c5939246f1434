"""PURE: tells a fact to parts that the teller does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")

Then = Callable[[OSError | None], None]
"""Called when a change is on disk, or with the error if it could not be written."""


class Listeners(Generic[P]):
    """Functions to call when something happens. Calling this object calls each of them.

    Calls go down and facts go up: a part that is built before those who listen to it has such an
    object, and whoever builds the parts adds the listeners once all of them exist.

    Invariant: listeners are called in the order in which they were added.
    """

    __slots__ = ("_listeners",)

    def __init__(self) -> None:
        self._listeners: tuple[Callable[P, object], ...] = ()

    def add(self, *listeners: Callable[P, object]) -> None:
        """Call these, too, from now on, after those that were added before."""
        self._listeners += listeners

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for listener in self._listeners:
            listener(*args, **kwargs)
