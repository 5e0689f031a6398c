"""Converts an operator's text to a key: splits ``topics.NAME.KEY``, and finds the nearest key of a typo."""

from __future__ import annotations

import difflib
import functools
from collections.abc import Iterable
from typing import Final

from cleanerd.config.kafka_names import broker_names, topic_names
from cleanerd.config.keys import DAEMON_FIELDS, TOPIC_FIELDS
from cleanerd.config.topic_keys import TOPIC_RULES

TOPICS: Final = "topics"
"""The table of topic settings, and the first part of their dotted names."""


def cut_topic_name(name: str) -> tuple[str, str] | None:
    """``topics.NAME.KEY`` without ``topics.`` -> (NAME, KEY): the longest topic key is cut from the end.

    ``orders.delete.retention.ms`` is ``delete.retention.ms`` of ``orders``, not ``retention.ms`` of ``orders.delete``.
    Kafka's keys that cleanerd ignores count as well. NAME is never empty: ``delete.retention.ms`` alone is
    ``retention.ms`` of the topic ``delete``. None: no known key.
    """
    for key in _topic_keys_by_length():
        topic = name.removesuffix(f".{key}")
        if topic and topic != name:
            return topic, key
    return None


@functools.cache
def _topic_keys_by_length() -> tuple[str, ...]:
    return tuple(sorted(topic_names().union(TOPIC_FIELDS), key=len, reverse=True))


def daemon_key_advice(key: str) -> str:
    """A suggestion for an unknown broker-level key."""
    if key in TOPIC_FIELDS:
        broker_keys = [synonym.name for synonym in TOPIC_RULES[key].synonyms if synonym.name in DAEMON_FIELDS]
        of_all = f", or {', '.join(broker_keys)} for all topics" if broker_keys else ""
        return f"set {TOPICS}.NAME.{key}{of_all}"
    return _nearest(key, DAEMON_FIELDS, broker_names())


def topic_key_advice(key: str) -> str:
    """A suggestion for an unknown key in a topic's table."""
    for topic_key in TOPIC_FIELDS:
        if key in {synonym.name for synonym in TOPIC_RULES[topic_key].synonyms}:
            return f"did you mean {topic_key}?"
    cut = cut_topic_name(key)
    if cut is not None:
        return f'did you mean {cut[1]}? A topic name with dots is written in quotes: [{TOPICS}."orders.v1"]'
    return _nearest(key, TOPIC_FIELDS, topic_names())


def dotted_topic_advice(name: str) -> str:
    """A suggestion for ``NAME.KEY``, where it is unknown which part is the topic."""
    words = name.split(".")
    best, best_ratio = None, 0.6
    for key in TOPIC_FIELDS:
        tail = ".".join(words[-(key.count(".") + 1) :])
        ratio = difflib.SequenceMatcher(None, tail, key).ratio()
        if tail != name and ratio > best_ratio:
            best, best_ratio = f"{TOPICS}.{name.removesuffix(tail)}{key}", ratio
    return f"did you mean {best}?" if best else f"topic keys: {', '.join(TOPIC_FIELDS)}"


def _nearest(key: str, ours: Iterable[str], kafkas: Iterable[str]) -> str:
    """The name most similar to ``key``; also one of Kafka's that cleanerd ignores, because it may be meant."""
    near = difflib.get_close_matches(key, [*ours, *kafkas], n=1, cutoff=0.7)
    if near:
        return f"did you mean {near[0]}?"
    nearest = difflib.get_close_matches(key, list(ours), n=1, cutoff=0.0)[0]
    return f"this release has no such key; nearest: {nearest}; 'cleanerd config generate' lists every key"
