"""`python -m roquet` is the command `roquet`."""

from roquet.cli.main import main

main()
