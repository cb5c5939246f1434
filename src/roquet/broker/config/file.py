"""The file of settings that a broker was started with, when the broker's role changes."""

from __future__ import annotations

from pathlib import Path

from roquet.broker.config.broker import BrokerConfig
from roquet.common.files import replace_with_backup
from roquet.common.properties import changed


def save_role(config: BrokerConfig) -> None:
    """Write role and id into the file, where there is one; all else stays as it is, the old text as `.bak`.

    :raises OSError, ValueError: the file cannot be read or written.
    """
    if not config.broker_config_path:
        return
    path = Path(config.broker_config_path)
    text = path.read_text(encoding="utf-8")
    new = {"brokerRole": config.replication.broker_role.name, "brokerId": str(config.broker_id)}
    replace_with_backup(path, changed(text, new).encode())
