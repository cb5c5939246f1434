"""Shared by several pipelines: message filters, sizes of jobs, reads of ranges, HTML pages."""
