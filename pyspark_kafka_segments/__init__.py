"""Where Spark looks for data sources: any top-level module ``pyspark_*`` with a ``DefaultSource``.

So ``spark.read.format("kafka-segments")`` works wherever cleanerd is installed, without registering anything.
"""

from cleanerd.spark.source.data_source import KafkaSegments

DefaultSource = KafkaSegments
