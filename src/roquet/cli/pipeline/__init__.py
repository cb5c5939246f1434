"""`roquet pipeline`.

May import of `cli`: access, output, values.
"""
