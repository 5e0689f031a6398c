"""The errors of a client.

::

    CleanerdError
    └── ClientError           the broker or the client library refused something
        ├── TombstoneError      the call contradicts itself, or the topic's kind of tombstones
        ├── VersionError        the topic's strategy wants a version that is missing, or has no use for the one given
        ├── FlagModeError       confluent-kafka can neither write nor read the bit of KIP-87
        └── IdempotenceError    ``enable.idempotence=required``, and it cannot be had
"""

from __future__ import annotations

from cleanerd.errors import CleanerdError


class ClientError(CleanerdError):
    """The broker or the client library refused something; ``message`` has their reason."""


class TombstoneError(ClientError):
    """The caller's ``tombstone`` argument contradicts the record (R87-7)."""


class VersionError(ClientError):
    """A record lacks the version that its topic's strategy needs, or has one that the topic does not use."""


class FlagModeError(ClientError):
    """``tombstone.mode=flag`` with a client library that has no access to record attributes (U-25)."""


class IdempotenceError(ClientError):
    """Idempotence is required but not supported, or its support is unknown (R192-5)."""
