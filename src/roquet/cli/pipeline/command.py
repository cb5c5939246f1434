"""`roquet pipeline`: the group of its subcommands."""

from __future__ import annotations

import click

from roquet.cli.pipeline.archive import archive
from roquet.cli.pipeline.audit import audit
from roquet.cli.pipeline.lag import lag
from roquet.cli.pipeline.send import redrive, replay, restore


@click.group()
def pipeline() -> None:
    """Spark jobs on topics. They run on this machine, or with --master on a Spark cluster.

    They need pip install 'roquet[spark]'.
    """


for command in (archive, restore, audit, lag, replay, redrive):
    pipeline.add_command(command)
