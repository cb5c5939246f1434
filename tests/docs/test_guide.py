"""What the guide shows works: its Python runs, its commands and settings exist, its tables have the
code's defaults.

The Python blocks of a page run in their order, in one namespace: each page against a cluster of its
own, and all pages one after the other against one cluster, as somebody reads them. `await` outside
of a function works, as in `python -m asyncio`. Blocks that begin with the name of a file
(`# conftest.py`) are written to it, and pytest runs them. No Python block is left out.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import click
import pytest

import roquet
from roquet.broker.config.broker import BrokerConfig, read_config
from roquet.cli.main import main
from roquet.common.properties import parse
from roquet.common.settings import read_settings, show_settings
from roquet.dev import Cluster
from roquet.errors import ConfigError
from roquet.nameserver.config import NamesrvConfig
from tests.docs.page_run import ADDRESS, SECONDS_MAX, PageRun
from tests.docs.pages import (
    DOCS,
    EVERY_PAGE,
    GUIDE,
    Block,
    anchors,
    blocks,
    code_in,
    each_alone,
    links,
    name_of,
    rows,
)
from tests.plugin import LOADED

BROKER_PAGE: Final = DOCS / "guide" / "broker.md"
PIPELINES_PAGE: Final = DOCS / "guide" / "pipelines.md"
OBSERVING_PAGE: Final = DOCS / "guide" / "observing.md"
CLIENT_PAGE: Final = DOCS / "guide" / "client.md"
SETTINGS_PAGE: Final = DOCS / "guide" / "client-settings.md"
SECURITY_PAGE: Final = DOCS / "guide" / "security.md"
LANGUAGES: Final = {"", "python", "sh", "properties", "text", "hex", "yaml"}
"""So that no Python hides under another name."""


def needs_spark(page: Path) -> bool:
    return any(map(block_needs_spark, blocks(page, "python")))


def block_needs_spark(block: Block) -> bool:
    return "roquet.spark" in block.text


def with_python() -> list[Any]:
    pages = [page for page in GUIDE if blocks(page, "python")]
    marks = {page: [pytest.mark.spark] if needs_spark(page) else [] for page in pages}
    marks[PIPELINES_PAGE].append(pytest.mark.long)
    has_opentelemetry = find_spec("opentelemetry") is not None
    marks[OBSERVING_PAGE].append(
        pytest.mark.skipif(not has_opentelemetry, reason="the group dev installs opentelemetry")
    )
    return [pytest.param(page, id=name_of(page), marks=marks[page]) for page in pages]


every_page = pytest.mark.parametrize("page", EVERY_PAGE, ids=name_of)
every_page_of_the_guide = pytest.mark.parametrize("page", GUIDE, ids=name_of)


# Python


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody in an empty folder, who has installed roquet."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.usefixtures("user")
@pytest.mark.parametrize("page", with_python())
def test_every_python_block_runs(
    page: Path, cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if needs_spark(page):
        request.getfixturevalue("spark")
    run = PageRun(cluster.name_server, tmp_path)
    run.blocks(blocks(page, "python"))
    if run.files:
        passes_under_pytest(tmp_path)


@pytest.mark.usefixtures("user")
def test_the_pages_run_one_after_the_other(cluster: Cluster, tmp_path: Path) -> None:
    """Up to where each needs Spark, and without the files for pytest, which have their own cluster."""
    for page in in_reading_order():
        these = takewhile(lambda block: not block_needs_spark(block), blocks(page, "python"))
        run_in_a_folder_of_its_own(page, list(these), cluster, tmp_path)


@pytest.mark.usefixtures("user", "spark")
@pytest.mark.spark
@pytest.mark.long
def test_the_pages_with_spark_run_after_the_others(cluster: Cluster, tmp_path: Path) -> None:
    for page in in_reading_order():
        run_in_a_folder_of_its_own(page, blocks(page, "python"), cluster, tmp_path)


@pytest.mark.usefixtures("user")
def test_each_program_of_a_page_runs_alone_and_again(cluster: Cluster, tmp_path: Path) -> None:
    """The last of the guide runs first, so that none can need what an earlier one left at the
    broker.
    """
    programs = [
        block for page in in_reading_order() if each_alone(page) for block in blocks(page, "python")
    ]
    has_opentelemetry = find_spec("opentelemetry") is not None

    for block in 2 * programs[::-1]:
        if has_opentelemetry or "roquet.opentelemetry" not in block.text:
            PageRun(cluster.name_server, tmp_path).blocks([block])


def test_the_reading_order_has_every_page_with_python() -> None:
    order = in_reading_order()

    assert order[0].name == "README.md"
    assert set(order) == {page for page in GUIDE if blocks(page, "python")}


def in_reading_order() -> list[Path]:
    """The pages with Python in the order of docs/README.md; the project's own page comes first."""
    start = DOCS / "README.md"
    pages = dict.fromkeys((start.parent / file).resolve() for file, _ in links(start) if file)
    return [page for page in pages if page in GUIDE and blocks(page, "python")]


def run_in_a_folder_of_its_own(
    page: Path, these: list[Block], cluster: Cluster, folder: Path
) -> None:
    own = folder / page.stem
    own.mkdir()
    with contextlib.chdir(own):
        PageRun(cluster.name_server, own).blocks(these)


def passes_under_pytest(folder: Path) -> None:
    options = (
        "-p",
        "no:cacheprovider",
        "-o",
        "asyncio_default_fixture_loop_scope=function",
        "-W",
        "error",
        *LOADED,
    )
    command = [sys.executable, "-m", "pytest", *options, str(folder)]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout


def test_a_block_may_await_outside_of_a_function(tmp_path: Path) -> None:
    run = PageRun("10.0.0.5:1", tmp_path)
    texts = [
        "x = 1",
        f"import asyncio\nawait asyncio.sleep(0)\nx = x + 1\nhere = {ADDRESS!r}",
        "assert x == 3",
    ]

    with pytest.raises(AssertionError):
        run.blocks([Block(CLIENT_PAGE, line, "python", text) for line, text in enumerate(texts)])
    run.blocks([Block(CLIENT_PAGE, 0, "python", "assert (x, here) == (2, '10.0.0.5:1')")])


@every_page
def test_no_block_has_an_unknown_language(page: Path) -> None:
    assert {block.language for block in blocks(page)} <= LANGUAGES


# commands, settings, links


@every_page_of_the_guide
def test_every_roquet_command_is_understood(page: Path) -> None:
    lines = [
        line
        for block in blocks(page, "sh")
        for line in block.text.splitlines()
        if line.startswith("roquet ")
    ]
    for line in lines:
        _, name, *options = [word.strip('"') for word in line.partition("#")[0].split()]
        command = main.get_command(click.Context(main), name)
        assert command is not None, line
        context = command.make_context(name, options)
        if isinstance(command, click.Group):
            subcommand = command.get_command(context, options[0])
            assert subcommand is not None, line
            subcommand.make_context(options[0], options[1:])


@every_page_of_the_guide
def test_every_file_of_settings_is_read_without_a_warning(page: Path) -> None:
    for block in blocks(page, "properties"):
        pairs = parse(block.text).pairs
        if block.title == "namesrv.conf":
            assert read_settings(NamesrvConfig, pairs)[1] == []
        else:
            config, warnings = read_config(pairs)
            assert warnings == []
            assert config.is_slave is (block.title == "slave.conf")


def test_the_broker_s_settings_have_the_defaults_that_the_guide_says() -> None:
    defaults = dict(show_settings(BrokerConfig()))
    for names, default, _ in rows(BROKER_PAGE, "setting"):
        for name in code_in(names):
            assert [defaults[name]] == (code_in(default) or [""]), name


@pytest.mark.parametrize(
    ("of", "page"),
    [
        ("Producer", SETTINGS_PAGE),
        ("Consumer", SETTINGS_PAGE),
        ("PrefetchLimits", SETTINGS_PAGE),
        ("PullConsumer", SETTINGS_PAGE),
        ("ClientConfig", SETTINGS_PAGE),
        ("Tls", SECURITY_PAGE),
    ],
)
def test_the_client_s_settings_and_defaults_are_those_of_the_guide(of: str, page: Path) -> None:
    parameters = inspect.signature(getattr(roquet, of)).parameters.values()
    optional = {
        each.name: each.default
        for each in parameters
        if each.default is not inspect.Parameter.empty
    }
    optional.pop("runtime", None)

    shown = {code_in(name)[0]: code_in(default)[0] for name, default, _ in rows(page, f"`{of}`")}

    assert shown == {name: as_written(default) for name, default in optional.items()}


def as_written(default: object) -> str:
    if isinstance(default, str):
        return f'"{default}"'
    return default.__name__ if inspect.isfunction(default) else repr(default)


def test_the_fields_of_the_metrics_are_those_of_the_guide() -> None:
    for name, _, shown in rows(OBSERVING_PAGE, "class"):
        (of,) = code_in(name)
        fields = {each.name for each in dataclasses.fields(getattr(roquet, of))}
        assert set(code_in(shown)) == fields - {"group"}, of


def test_the_arguments_of_a_send_are_those_of_the_guide() -> None:
    of_send = inspect.signature(roquet.Producer.send).parameters.values()
    own = {each.name for each in of_send if each.kind is inspect.Parameter.KEYWORD_ONLY}
    of_message = inspect.signature(roquet.Message).parameters.keys() - {"topic", "body"}

    assert {code_in(name)[0] for name, *_ in rows(SETTINGS_PAGE, "`send`")} == own | of_message


@pytest.mark.parametrize("method", ["run", "get", "get_many", "batch"])
def test_the_arguments_of_the_consumer_s_methods_are_those_of_the_guide(method: str) -> None:
    parameters = inspect.signature(getattr(roquet.Consumer, method)).parameters.values()
    defaults = {
        each.name: as_written(each.default)
        for each in parameters
        if each.default is not inspect.Parameter.empty
    }

    shown = {
        code_in(name)[0]: code_in(default)[0]
        for of, name, default, _ in rows(SETTINGS_PAGE, "method")
        if method in code_in(of)
    }

    assert shown == defaults


@pytest.mark.parametrize(
    "setting",
    [
        "aclEnable=true",
        "useTLS=true",
        "enableDLegerCommitLog=true",
        "enableLmq=true",
        "enableMultiDispatch=true",
        "messageStorePlugIn=a.Plugin",
        "fetchNamesrvAddrByAddressServer=true",
    ],
)
def test_a_broker_does_not_start_with_what_the_guide_says_is_refused(setting: str) -> None:
    name, _, value = setting.partition("=")
    refused = [
        code_in(what)
        for what, answer in rows(BROKER_PAGE, "refused")
        if answer == "the broker does not start"
    ]
    assert name in refused[0]

    with pytest.raises(ConfigError, match=name):
        read_config([(name, value)])


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [target for target in links(page) if not leads_somewhere(page, *target)] == []


def leads_somewhere(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_an_anchor_is_named_as_github_names_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        '# A send, step by step\n\n## `$ref` & 2\n\n## Frame\n\n## Frame\n\n<a id="trap-1"></a>\n'
    )

    assert anchors(page) == {"a-send-step-by-step", "ref--2", "frame", "frame-1", "trap-1"}
    assert leads_somewhere(page, "", "frame-1")
    assert not leads_somewhere(page, "", "frame-2")
    assert not leads_somewhere(page, "other.md", "")
