"""The source ``kafka-segments`` beside Spark's own ``kafka``: one session, one topic, in turns."""
