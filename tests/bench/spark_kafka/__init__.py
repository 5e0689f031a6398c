"""The source ``kafka-segments`` compared with Spark's own ``kafka``: one session, one topic, in turns."""
