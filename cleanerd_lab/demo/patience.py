"""How long the demonstration waits for what has to come: a broker, an answer, a cleaning."""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 600.0
"""The limit of every wait that ends as soon as what it waits for is there.

A good run never comes near it. A machine with other work on it takes ten times as long as a quiet one, and a
demonstration that gives up there shows nothing.
"""
