"""How Python's collector of garbage is set in a server: no single look of it holds the event loop for long."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Final

_THRESHOLDS: Final = (700, 10, 2)
"""A look at all that is not frozen comes when some 20,000 objects are new: 1 ms of CPU time, and 4 ms with Python's
(700, 10, 10); three times that on a machine that is busy with other things."""
WHOLE_S: Final = 86_400.0
"""How often everything is to be looked at once more, which takes some 0.1 s for each 500,000 objects. Objects of ours
that live long take their cycles apart when they end, so that little is found then."""


def look_at_each_once() -> Callable[[], None]:
    """Let the collector go through what it has not seen before only: whatever outlives a full look is frozen.

    A broker has tables of a million objects that stay. Python looks through all of them again whenever there are a
    quarter more: 70 ms for 400,000 objects of statistics, in the middle of whatever request was under way. Frozen
    objects go as others do when nobody refers to them any more; only cycles of them wait for `look_at_all`.

    Gives what sets the collector back to how it was.
    """
    before = gc.get_threshold()
    gc.callbacks.append(_freeze)
    gc.set_threshold(*_THRESHOLDS)
    look_at_all()

    def undo() -> None:
        gc.callbacks.remove(_freeze)
        gc.set_threshold(*before)
        gc.unfreeze()

    return undo


def look_at_all() -> None:
    """Find the cycles among all objects, and freeze what is none.

    Python waits with its next full look until there is a quarter more than the last one left over. So a second look
    follows, which finds next to nothing.
    """
    gc.unfreeze()
    gc.collect()
    gc.collect()


def _freeze(phase: str, info: dict[str, int]) -> None:
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()
