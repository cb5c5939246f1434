"""Jobs on topics. Each is a function that takes a SparkSession and a dataclass with its settings.

`svg` draws charts, for reports and notebooks.

May import of `spark`: _arrow, _options, _read, _write.
"""
