"""Producers, consumers and a latest-state view that follow a topic's strategy and its kind of tombstones.

``producer`` and ``consumer`` are on confluent-kafka, ``kafka_flag`` is on kafka-python, which alone can write and read
the bit of KIP-87 (U-25); ``latest_state`` compares as the cleaner does, over a broker or on a log directory.
"""
