"""A settings file is read with the command's options on top; what is odd is said."""

from __future__ import annotations

from pathlib import Path

import pytest

from roquet.cli.configuration import broker_config, configured

Pairs = list[tuple[str, str]]


def as_they_come(pairs: Pairs, name: str) -> tuple[tuple[Pairs, str], list[str]]:
    return (pairs, name), [f"{len(pairs)} settings"]


def test_options_follow_the_pairs_of_the_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c"
    path.write_text("a=1\nb=2\n")

    found = configured(as_they_come, path, [("b", "3")])

    assert found == ([("a", "1"), ("b", "2"), ("b", "3")], str(path))
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "roquet: warning: 3 settings\n")


def test_without_a_file_there_are_only_options() -> None:
    assert configured(as_they_come, None, [("a", "1")]) == ([("a", "1")], "")


def test_a_file_that_is_not_there_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        configured(as_they_come, tmp_path / "none", [])

    assert ended.value.code != 0
    assert str(tmp_path / "none") in capsys.readouterr().err


def test_a_setting_that_cannot_be_used_ends_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c"
    path.write_text("brokerId=many\n")

    with pytest.raises(SystemExit):
        broker_config(path, None)

    assert "brokerId" in capsys.readouterr().err


def test_name_servers_of_the_option_replace_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "c"
    path.write_text("namesrvAddr=10.0.0.1:9876\nbrokerName=x\n")

    of_file, given = broker_config(path, None), broker_config(path, "10.0.0.2:9876")

    assert (of_file.namesrv_addr, of_file.broker_name) == ("10.0.0.1:9876", "x")
    assert (given.namesrv_addr, given.broker_name) == ("10.0.0.2:9876", "x")
    assert of_file.broker_config_path == str(path)
    assert broker_config(None, "10.0.0.2:9876").namesrv_addr == "10.0.0.2:9876"
