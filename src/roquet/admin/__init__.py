"""Typed operations on a running cluster, a module per noun: what commands and pages are made of."""
