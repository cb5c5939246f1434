"""The `roquet` command: arguments, tables and exit codes. All else is in the packages below.

May import: admin, broker, dev, nameserver, spark, storetool.
"""
