"""The stacks of this process: what its threads and asyncio tasks do now."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from itertools import islice
from types import FrameType
from typing import Any, Final

TASKS_MAX: Final = 500
"""More tasks are only counted, so that the answer to an administrator stays small."""


def stacks() -> str:
    """The stack of each thread, then of each task of the running loop, in the form of Java's."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    lines: list[str] = []
    for ident, frame in sys._current_frames().items():
        lines += _stack(names.get(ident, "unknown"), ident, "RUNNABLE", _of_thread(frame))
    tasks = asyncio.all_tasks()
    for task in islice(tasks, TASKS_MAX):
        state = "RUNNABLE" if task is asyncio.current_task() else "WAITING"
        lines += _stack(f"task {task.get_name()}", id(task), state, _of_coroutine(task.get_coro()))
    if len(tasks) > TASKS_MAX:
        lines.append(f"{len(tasks) - TASKS_MAX} more tasks")
    return "\n".join(lines) + "\n"


def _stack(name: str, ident: int, state: str, calls: Iterator[str]) -> list[str]:
    return [
        f"{name:<40}TID: {ident} STATE: {state}",
        *(f"{name:<40}{call}" for call in calls),
        "",
    ]


def _of_thread(frame: FrameType) -> Iterator[str]:
    """The calls of a thread, the newest first, as Java shows them."""
    for call in reversed(traceback.extract_stack(frame)):
        yield f"{call.name}({call.filename}:{call.lineno})"


def _of_coroutine(coroutine: Any) -> Iterator[str]:
    """The calls in which a coroutine waits, the newest first."""
    calls: list[str] = []
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            code = frame.f_code
            calls.append(f"{code.co_name}({code.co_filename}:{frame.f_lineno})")
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
    return reversed(calls)
