"""`make fuzz`: each target with bytes that reach code which no bytes before them reached."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

import click

from tests.fuzz.samples import samples
from tests.fuzz.targets import ALLOWED, TARGETS


@click.command()
@click.argument("names", nargs=-1)
@click.option("--seconds", default=60, show_default=True, help="For each target.")
@click.option("--inside", is_flag=True, hidden=True, help="Run one target in this process.")
def main(names: tuple[str, ...], seconds: int, inside: bool) -> None:
    """Fuzz the decoders that NAMES say, or all of them."""
    if inside:
        run(names[0], seconds)
    for name in names or TARGETS:
        click.echo(f"{name}: {seconds} s")
        command = [sys.executable, "-m", "tests.fuzz", name, "--seconds", str(seconds), "--inside"]
        subprocess.run(command, check=True)


def run(name: str, seconds: int) -> NoReturn:
    """Fuzz one target until the time is over; a failure ends the process and leaves its bytes in a
    file.
    """
    import atheris

    atheris.instrument_all()

    def once(data: bytes) -> None:
        try:
            TARGETS[name](data)
        except ALLOWED:
            return

    with tempfile.TemporaryDirectory() as folder:
        for number, sample in enumerate(samples(name)):
            (Path(folder) / str(number)).write_bytes(sample)
        options = [
            f"-max_total_time={seconds}",
            "-timeout=20",
            "-rss_limit_mb=1024",
            "-verbosity=0",
        ]
        atheris.Setup([sys.argv[0], *options, folder], once)
        atheris.Fuzz()
    sys.exit()


if __name__ == "__main__":
    main()
