"""`roquet pipeline`: Spark jobs on topics.

May import of `cli`: access, output, values.
"""
