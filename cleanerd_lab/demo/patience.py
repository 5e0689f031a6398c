"""How long the demonstration waits for events: a broker, an answer, a cleaning."""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 600.0
"""The limit of every wait for an event.

A good run never reaches it. A busy machine takes ten times as long as a quiet one, and a demonstration that gives up
shows nothing.
"""
