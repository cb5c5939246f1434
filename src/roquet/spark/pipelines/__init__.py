"""Jobs on topics. Each is a function of a SparkSession and of a frozen dataclass that describes the job.

May import of `spark`: _arrow, _options, _read, _write.
"""
