"""The `roquet` command: arguments, tables and exit codes. Decisions are made in the packages below.

May import: admin, broker, dev, nameserver, spark, storetool.
"""
