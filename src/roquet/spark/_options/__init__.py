"""Options of the data sources and of the sink, read and validated.

May import of `spark`: nothing.
"""
