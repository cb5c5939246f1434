"""Reads a settings file, with the command's options on top."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from roquet.cli.output import end, say
from roquet.common.properties import Properties
from roquet.common.settings import read_file
from roquet.errors import ConfigError

if TYPE_CHECKING:
    from roquet.broker.config.broker import BrokerConfig

T = TypeVar("T")


def configured(
    read: Callable[[list[tuple[str, str]], str], tuple[T, list[str]]],
    path: Path | None,
    options: list[tuple[str, str]],
) -> T:
    """Read a configuration; warnings go to standard error, an error ends the command.

    :param read: builds the configuration from (name, value) pairs and the file's name, and returns
        it with warnings.
    :param path: the settings file.
    :param options: pairs that replace those of the file.
    """
    try:
        properties = Properties() if path is None else read_file(path)
        config, warnings = read([*properties.pairs, *options], "" if path is None else str(path))
    except ConfigError as error:
        end(str(error))
    for warning in (*(f"{path}: {warning}" for warning in properties.warnings), *warnings):
        say(f"warning: {warning}")
    return config


def broker_config(path: Path | None, name_servers: str | None) -> BrokerConfig:
    """Read a broker's configuration. It keeps the path, because promotion writes to the file."""
    from roquet.broker.config.broker import read_config

    config = configured(read_config, path, [("namesrvAddr", name_servers)] if name_servers else [])
    return config if path is None else replace(config, broker_config_path=str(path))
