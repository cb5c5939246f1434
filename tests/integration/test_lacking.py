"""What works without the packages of the extras, without those that only make it faster, and without
what Linux has and other systems have not.

The client's programs run in Pythons that lack these; the broker runs in this one.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
import pytest_asyncio

from roquet.dev import Cluster
from tests.integration import round_trip

pytestmark = pytest.mark.process

HERE: Final = Path(__file__).parent
OPTIONAL: Final = (
    "numpy",
    "uvloop",
    "orjson",
    "lz4",
    "zstandard",
    "pyarrow",
    "rich",
    "opentelemetry",
)
ALL: Final = ",".join((*OPTIONAL, "click", "pandas", "pyspark"))
PROGRAMS: Final = ",".join(OPTIONAL)
"""What the command may lack: all but click."""
NOT_ON_WINDOWS: Final = [
    f"{owner}.{name}".lstrip(".")
    for owner, names in {
        "": "curses fcntl grp posix pty pwd readline resource syslog termios tty",
        "asyncio.SelectorEventLoop": "add_signal_handler remove_signal_handler "
        "create_unix_connection create_unix_server",
        "mmap": "MADV_DONTNEED MADV_RANDOM MAP_ANONYMOUS MAP_PRIVATE",
        "os": "O_CLOEXEC O_DIRECTORY O_DSYNC O_NOFOLLOW O_NONBLOCK O_SYNC SEEK_DATA SEEK_HOLE WNOHANG "
        "chown confstr copy_file_range eventfd fchdir fchmod fchown fdatasync fork forkpty fpathconf "
        "fstatvfs getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid "
        "getuid killpg lchown lockf memfd_create mkfifo mknod nice openpty pathconf pidfd_open pipe2 "
        "posix_fadvise posix_fallocate posix_spawn pread preadv pwrite pwritev readv register_at_fork "
        "sched_getaffinity sched_yield sendfile setgid setpgid setpriority setsid setuid splice "
        "statvfs sync sysconf tcgetpgrp timerfd_create ttyname umask uname wait wait3 wait4 waitid "
        "writev",
        "select": "epoll poll",
        "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 "
        "SIGUSR2 alarm getitimer pause pthread_kill pthread_sigmask setitimer siginterrupt "
        "sigpending sigtimedwait sigwait sigwaitinfo",
        "socket": "AF_NETLINK AF_PACKET CMSG_LEN MSG_DONTWAIT MSG_NOSIGNAL SCM_RIGHTS "
        "SOCK_CLOEXEC SOCK_NONBLOCK SO_BINDTODEVICE SO_PEERCRED SO_REUSEPORT TCP_CORK "
        "TCP_DEFER_ACCEPT TCP_INFO TCP_QUICKACK TCP_USER_TIMEOUT recv_fds send_fds sethostname",
        "time": "CLOCK_BOOTTIME CLOCK_MONOTONIC CLOCK_REALTIME clock_getres clock_gettime "
        "clock_gettime_ns pthread_getcpuclockid tzset",
    }.items()
    for name in names.split()
]
"""Modules, and attributes of modules, that Linux has and Windows has not."""
COARSE_S: Final = 0.0156
HINT: Final = "pip install 'roquet[broker]'"


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as running:
        yield running


async def run(lacking: str, program: str, *arguments: str) -> tuple[int | None, str, str]:
    """Exit code, standard output and standard error of a program in a Python that lacks things."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(HERE / "lacking.py"),
        lacking,
        program,
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await process.communicate()
    return process.returncode, output.decode(), errors.decode()


@pytest.mark.parametrize("lacking", [*OPTIONAL, ALL])
async def test_a_client_needs_no_package_but_its_own(cluster: Cluster, lacking: str) -> None:
    ended = await run(lacking, str(HERE / "round_trip.py"), cluster.name_server, "orders")

    assert ended == (0, "received 10\n", "")


async def test_a_client_needs_nothing_that_windows_lacks(cluster: Cluster) -> None:
    lacking = ",".join([*NOT_ON_WINDOWS, "uvloop", "sys.platform=win32"])

    ended = await run(lacking, str(HERE / "round_trip.py"), cluster.name_server, "orders")

    assert ended == (0, "received 10\n", "")


async def test_json_is_read_and_written_alike_without_orjson() -> None:
    folder = HERE.parent / "protocol"
    tests = [str(folder / "json"), str(folder / "remoting"), str(folder / "bodies")]

    code, output, errors = await run("orjson", "pytest", "-q", "-p", "no:cacheprovider", *tests)

    assert (code, errors) == (0, ""), output


class CoarseLoop(asyncio.SelectorEventLoop):
    """Its clock moves in steps of 15.6 ms, as that of Windows."""

    def time(self) -> float:
        return super().time() // COARSE_S * COARSE_S


def test_a_client_needs_no_clock_finer_than_that_of_windows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def trip() -> None:
        async with Cluster() as running:
            await round_trip.main(running.name_server, "orders")

    coarse_ns = int(COARSE_S * 1e9)
    now_ns = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now_ns() // coarse_ns * coarse_ns)
    with asyncio.Runner(loop_factory=CoarseLoop) as runner:
        runner.run(trip())

    assert capsys.readouterr().out == "received 10\n"


@pytest.mark.parametrize("command", ["", "namesrv", "broker", "dev", "store", "ha", "pipeline"])
async def test_help_needs_nothing_but_click(command: str) -> None:
    code, output, errors = await run(PROGRAMS, "roquet.cli.main", *command.split(), "--help")

    assert (code, errors) == (0, "")
    assert output.startswith("Usage:")


async def test_commands_that_ask_a_cluster_need_no_extra(cluster: Cluster) -> None:
    code, output, errors = await run(
        PROGRAMS, "roquet.cli.main", "ha", "status", "-n", cluster.name_server
    )

    assert (code, errors) == (0, "")
    assert "LOG END" in output


@pytest.mark.parametrize(
    "arguments", [("broker",), ("dev", "--port", "0"), ("store", "check", "nowhere")]
)
async def test_a_command_that_needs_numpy_says_how_to_get_it(arguments: tuple[str, ...]) -> None:
    ended = await run("numpy", "roquet.cli.main", *arguments)

    assert ended == (2, "", f"roquet: this command needs numpy: {HINT}\n")


async def test_a_cluster_in_a_test_says_how_to_get_numpy(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import asyncio, roquet\nasyncio.run(roquet.dev.Cluster().start())\n")

    code, _, errors = await run("numpy", str(program))

    assert code == 1
    assert errors.endswith(f"MissingExtraError: roquet.dev needs numpy: {HINT}\n")


async def test_the_opentelemetry_hook_says_how_to_get_its_package() -> None:
    code, _, errors = await run("opentelemetry", "roquet.opentelemetry")

    assert code == 1
    assert errors.endswith(
        "MissingExtraError: roquet.opentelemetry needs opentelemetry: "
        "pip install 'roquet[opentelemetry]'\n"
    )


async def test_a_name_server_needs_no_extra(tmp_path: Path) -> None:
    config = tmp_path / "namesrv.conf"
    config.write_text("listenPort=0\nbindAddress=127.0.0.1\n")

    code, output, errors = await run(
        PROGRAMS, "roquet.cli.main", "namesrv", "-c", str(config), "-p"
    )

    assert (code, errors) == (0, "")
    assert "bindAddress=127.0.0.1" in output
