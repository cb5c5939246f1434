"""How Python's collector of garbage is set in a server: no single look of it holds the event loop for long."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Final

_THRESHOLDS: Final = (700, 10, 5)
"""A look at all that is not frozen comes when some 35,000 objects are new: 1.5 ms of CPU time, and 4 ms with Python's
(700, 10, 10)."""
_WHOLE_S: Final = 86_400.0
"""How often everything is looked at once more, which takes some 0.1 s for each 500,000 objects. Objects of ours that
live long take their cycles apart when they end, so that little is found then."""


def look_at_each_once(clock_s: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Let the collector go through what it has not seen before only: whatever outlives a full look is frozen.

    A broker has tables of a million objects that stay. Python looks through all of them again whenever there are a
    quarter more: 70 ms for 400,000 objects of statistics, in the middle of whatever request was under way. Frozen
    objects go as others do when nobody refers to them any more; only cycles of them wait for the look at everything,
    once a day.

    Gives what sets the collector back to how it was.
    """
    before = gc.get_threshold()
    whole_at = clock_s() + _WHOLE_S

    def looked(phase: str, info: dict[str, int]) -> None:
        nonlocal whole_at
        if phase != "stop" or info["generation"] != 2:
            return
        if clock_s() >= whole_at:
            whole_at = clock_s() + _WHOLE_S
            gc.unfreeze()  # the next look goes through all, and freezes it again
        else:
            gc.freeze()

    def undo() -> None:
        gc.callbacks.remove(looked)
        gc.set_threshold(*before)
        gc.unfreeze()

    gc.callbacks.append(looked)
    gc.set_threshold(*_THRESHOLDS)
    gc.collect()
    return undo
