"""`roquet ha`.

May import of `cli`: access, configuration, output.
"""
