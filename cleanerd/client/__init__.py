"""Producers, consumers and a latest-state view that follow a topic's strategy and tombstone mode.

``producer`` and ``consumer`` use confluent-kafka. ``kafka_flag`` uses kafka-python, the only client that can write and
read the tombstone bit of KIP-87 (U-25). ``latest_state`` compares records as the cleaner does.
"""
