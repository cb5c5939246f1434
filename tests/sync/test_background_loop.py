"""Interrupted calls, forked processes, and the end of the interpreter."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Final

import pytest

from roquet import sync
from roquet.dev import Cluster
from roquet.sync.background_loop import EXIT_S_MAX


class Interrupted(BaseException):
    """Thrown into a thread by another one."""


def test_an_exception_thrown_into_the_waiting_thread_ends_the_call(
    mq: sync.Client, topic: str
) -> None:
    ended: list[str] = []
    waits = threading.Event()
    with mq.consumer("G", topic) as consumer:

        def wait() -> None:
            try:
                waits.set()
                consumer.get()
            except Interrupted:
                ended.append("interrupted")

        thread = threading.Thread(target=wait)
        thread.start()
        assert waits.wait(30)
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident), ctypes.py_object(Interrupted)
        )
        thread.join(30)
        assert ended == ["interrupted"]
        mq.send(topic, b"1")
        assert consumer.get(30_000).body == b"1"


@pytest.fixture
def ctrl_c_interrupts() -> Iterator[None]:
    """A shell starts its background jobs with SIGINT ignored, and Python keeps that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c_interrupts")
def test_ctrl_c_ends_a_call_and_no_message_is_lost(mq: sync.Client, topic: str) -> None:
    with mq.consumer("C", topic, start="earliest") as consumer:
        assert consumer.get_many(1, 1) == []
        timer = threading.Timer(0, os.kill, (os.getpid(), signal.SIGINT))
        with pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the signal comes when it comes
            timer.start()
            consumer.get(60_000)
        mq.send(topic, b"1")
        assert consumer.get(30_000).body == b"1"


def test_an_interrupt_between_the_wait_and_the_result_loses_no_message(
    mq: sync.Client, topic: str
) -> None:
    def interrupt(frame: FrameType, _event: str, _: object) -> None:
        if frame.f_code.co_name == "result" and "background_loop" in frame.f_code.co_filename:
            raise Interrupted

    mq.send(topic, b"1")
    with mq.consumer("R", topic, start="earliest") as consumer:
        before = sys.gettrace()
        sys.settrace(interrupt)
        try:
            with pytest.raises(Interrupted):
                consumer.get(30_000)
        finally:
            sys.settrace(before)
        assert consumer.get(30_000).body == b"1"


PROGRAMS: Final = {
    "an open client does not hold up the end": """
mq = roquet.sync.connect(NAME_SERVER).start()
consumer = mq.consumer("G", "T").start()
mq.send("T", b"1")
print("end")
""",
    "a thread that waits does not hold up the end": """
consumer = roquet.sync.Consumer(NAME_SERVER, "G", "T").start()
threading.Thread(target=consumer.get, daemon=True).start()
print("end")
""",
    "handlers go on when the main thread has ended": """
consumer = roquet.sync.Consumer(NAME_SERVER, "H", "T", start="earliest").start()
def handle(message):
    print("end")
    consumer.stop()
threading.Thread(target=consumer.run, args=(handle,)).start()
threading.Thread(target=send_when_main_has_ended).start()
""",
    "a forked process has clients of its own": """
mq = roquet.sync.connect(NAME_SERVER).start()
mq.send("T", b"1")
child = os.fork()
if child == 0:
    try:
        mq.send("T", b"2")
    except roquet.ClientStateError as error:
        assert "create and start a client after the fork" in str(error), error
    mq.close()
    with roquet.sync.connect(NAME_SERVER) as own:
        own.send("T", b"3")
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
mq.send("T", b"4")
print("end")
""",
}

PRELUDE: Final = """
import os, sys, threading
import roquet.sync
NAME_SERVER = sys.argv[1]
def send_when_main_has_ended():
    threading.main_thread().join()
    with roquet.sync.connect(NAME_SERVER) as mq:
        mq.send("T", b"late")
"""


def noise(errors: str) -> list[str]:
    """What no program should print at its end. Warnings of one line may be due."""
    signs = ("Traceback", "Exception ignored", "was destroyed", "never awaited", "Fatal")
    return [line for line in errors.splitlines() if any(sign in line for sign in signs)]


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_a_program_ends_by_itself_and_without_tracebacks(cluster: Cluster, program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + program, cluster.name_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, done.stdout, noise(done.stderr)) == (0, "end\n", [])


def test_the_end_does_not_wait_for_a_broker_that_stands_still(cluster: Cluster) -> None:
    program = PRELUDE + (
        "mq = roquet.sync.connect(NAME_SERVER).start()\n"
        "mq.send('T', b'1')\n"
        "print('open', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, cluster.name_server],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "open\n"
    with cluster.pause():
        _, errors = child.communicate("go on\n", timeout=60)
    assert (child.returncode, noise(errors)) == (0, [])


def test_the_end_does_not_wait_for_a_handler_that_is_at_work(cluster: Cluster) -> None:
    """It waited twice: for the close, and then for the run that the close had given up."""
    program = """
import atexit, time
# Called last, as it is registered first.
atexit.register(lambda: print(time.monotonic() - ended_s))
""" + (
        PRELUDE
        + """
mq = roquet.sync.connect(NAME_SERVER).start()
consumer = mq.consumer("W", "T", start="earliest").start()
mq.send("T", b"1")
began = threading.Event()
def handle(message):
    began.set()
    threading.Event().wait()
threading.Thread(target=consumer.run, args=(handle,), daemon=True).start()
began.wait()
ended_s = time.monotonic()
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", program, cluster.name_server],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (done.returncode, noise(done.stderr)) == (0, [])
    assert float(done.stdout) < 1.5 * EXIT_S_MAX
