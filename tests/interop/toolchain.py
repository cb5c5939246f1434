"""Where Apache's programs come from: Java, Maven and Go of this machine, and what they resolved.

Invariant: everything resolved or built lies in `.interop/` of the repository, one directory per
state of the sources that it was made from; an unchanged source never runs Maven, Go or pip again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".interop"
JAVA_SOURCES = HERE / "java"
GO_SOURCES = HERE / "go"
JAVA_MAJOR_MIN = 11
BUILD_SECONDS_MAX = 1200


class Version(StrEnum):
    """A release of Apache's programs that `java/pom.xml` knows, by the line it stands for."""

    V4 = "4.9.7"
    V5 = "5.5.0"

    @property
    def profile(self) -> str:
        return "rocketmq-" + self.value[0]


class ToolMissingError(Exception):
    """Java, Maven or Go is not installed: install it, or do without Apache's programs."""


class BuildError(Exception):
    """The tools are there but could not fetch or build Apache's programs; the message ends in their
    output.
    """


def require_java() -> Path:
    """Java with everything resolved for every `Version`, or a skipped test that says what is
    missing.
    """

    def resolve() -> Path:
        for version in Version:
            java_classpath(version)
        return java()

    return _or_skip(resolve)


def require_go() -> Path:
    """The built Go client, or a skipped test that says what is missing."""
    return _or_skip(go_driver)


def _or_skip(resolve: Callable[[], Path]) -> Path:
    import pytest  # Only here: the benchmarks and the capture of golden bytes run without it.

    try:
        return resolve()
    except ToolMissingError as missing:
        pytest.skip(f"NOT JUDGED AGAINST APACHE'S PROGRAMS: {missing}")
    except BuildError as failed:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"NOT JUDGED AGAINST APACHE'S PROGRAMS: {failed}")


@cache
def java() -> Path:
    """The `java` of JAVA_HOME, else of PATH."""
    program = _find("java", os.environ.get("JAVA_HOME"))
    shown = subprocess.run(
        [program, "-XshowSettings:properties", "-version"],
        capture_output=True,
        text=True,
        check=True,
    )
    for line in shown.stderr.splitlines():
        name, _, value = line.strip().partition(" = ")
        if name == "java.specification.version" and (
            value.startswith("1.") or int(value) < JAVA_MAJOR_MIN
        ):
            raise ToolMissingError(
                f"Java {JAVA_MAJOR_MIN} or newer is needed, {program} is {value}"
            )
    return program


@cache
def java_classpath(version: Version) -> str:
    """Our driver and the jars of one release of Apache's programs, as `java -cp` takes them."""
    java()
    built = _once("java", JAVA_SOURCES, ["pom.xml", "src"], _build_java)
    jars = (built / f"{version}.classpath").read_text().strip()
    return f"{built / 'classes'}{os.pathsep}{jars}"


def class_paths(kind: str, sources: Path, profiles: Sequence[str]) -> dict[str, str]:
    """The jars of each profile of the `pom.xml` in `sources`, as `java -cp` takes them; before them
    the classes of `src`, if there are any.
    """
    has_source = (sources / "src").is_dir()

    def build(target: Path) -> None:
        for profile in profiles:
            goals = ["compile"] if has_source else []
            _maven(sources, profile, target, [*goals, *_class_path_goals(target, profile)])

    built = _once(kind, sources, ["pom.xml", *(["src"] if has_source else [])], build)
    classes = [str(built / "classes")] if has_source else []
    return {
        profile: os.pathsep.join([*classes, (built / f"{profile}.classpath").read_text().strip()])
        for profile in profiles
    }


@cache
def go_driver() -> Path:
    """The Go client of `tests/interop/go`, built."""
    return go_program("go", GO_SOURCES)


def go_program(kind: str, sources: Path) -> Path:
    """The program of the module in `sources`."""

    def build(target: Path) -> None:
        program = str(target / "driver")
        _build([str(_find("go")), "build", "-mod=readonly", "-o", program, "."], sources, {})

    return _once(kind, sources, ["go.mod", "go.sum", "main.go"], build) / "driver"


def python_packages(kind: str, sources: Path) -> Path:
    """A folder for PYTHONPATH with the packages of the `requirements.txt` in `sources`, and nothing
    else.
    """

    def build(target: Path) -> None:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        _build([*pip, "--target", str(target), "-r", "requirements.txt"], sources, {})

    return _once(kind, sources, ["requirements.txt"], build)


def _find(program: str, home: str | None = None) -> Path:
    found = shutil.which(program, path=str(Path(home) / "bin")) if home else shutil.which(program)
    if found is None:
        raise ToolMissingError(f"no {program} in {'JAVA_HOME' if home else 'PATH'}")
    return Path(found)


def _build_java(target: Path) -> None:
    for version in Version:
        goals = _class_path_goals(target, version)
        if version is Version.V4:  # Compiled against the older client only; both run the result.
            goals.insert(0, "compile")
        _maven(JAVA_SOURCES, version.profile, target, goals)


def _class_path_goals(target: Path, name: str) -> list[str]:
    return ["dependency:build-classpath", f"-Dmdep.outputFile={target / f'{name}.classpath'}"]


def _maven(sources: Path, profile: str, target: Path, goals: list[str]) -> None:
    _build(
        [str(_find("mvn")), "-q", "-B", f"-P{profile}", f"-Dinterop.build={target}", *goals],
        sources,
        {"JAVA_HOME": os.environ.get("JAVA_HOME") or str(java().resolve().parents[1])},
    )


def _build(command: list[str], directory: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(
        command,
        cwd=directory,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=BUILD_SECONDS_MAX,
        check=False,
    )
    if done.returncode != 0:
        raise BuildError(
            f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout[-2000:]}"
        )


def _once(kind: str, sources: Path, names: list[str], build: Callable[[Path], None]) -> Path:
    """The directory that `build` filled for just these sources; complete, or absent."""
    target = CACHE / f"{kind}-{_fingerprint(sources, names)}"
    with _locked(kind):
        if target.is_dir() and _jars_exist(target):
            return target
        work = CACHE / f"{kind}.building"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        build(work)
        for old in CACHE.glob(f"{kind}-*"):
            shutil.rmtree(old)
        work.rename(target)
    return target


def _fingerprint(sources: Path, names: list[str]) -> str:
    digest = hashlib.sha256()
    for name in names:
        place = sources / name
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file():
                digest.update(f"{file.relative_to(sources)}\0".encode() + file.read_bytes() + b"\0")
    return digest.hexdigest()[:16]


def _jars_exist(target: Path) -> bool:
    """The class paths name files of Maven's own repository, which somebody may have cleaned
    since.
    """
    jars = [
        jar
        for listing in target.glob("*.classpath")
        for jar in listing.read_text().strip().split(os.pathsep)
    ]
    return all(Path(jar).is_file() for jar in jars)


@contextmanager
def _locked(kind: str) -> Iterator[None]:
    CACHE.mkdir(exist_ok=True)
    with open(CACHE / f"{kind}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
