"""`python -m roquet` is the `roquet` command."""

from roquet.cli.main import main

main(prog_name="roquet")
