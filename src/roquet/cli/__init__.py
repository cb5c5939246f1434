"""The `roquet` command: arguments and tables, no decisions."""
