"""`roquet store`.

May import of `cli`: output, values.
"""
