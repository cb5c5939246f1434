"""Parses and validates the options of the data sources and of the sink.

May import of `spark`: nothing.
"""
