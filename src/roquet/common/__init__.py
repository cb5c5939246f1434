"""Helpers for all packages: settings, atomic files, units, work in steps, rate-limited logs.

May import: nothing.
"""
