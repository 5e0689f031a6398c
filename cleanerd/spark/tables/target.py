"""The table that a user names."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from cleanerd.errors import ConfigError

if TYPE_CHECKING:
    import pyarrow as pa

    from cleanerd.spark.tables.opened import OpenTable

_UNDECODED_SUFFIX: Final = "_undecoded"
_INSTALL: Final = "pip install '/path/to/cleanerd-VERSION.whl[spark,tables]'"


@dataclass(frozen=True, slots=True)
class Delta:
    """A Delta table by its path or URL."""

    uri: str

    def require_installed(self) -> None:
        """Check that its packages are installed; raises as :meth:`open`."""
        _require("deltalake")

    def open(self, columns: pa.Schema | None = None) -> OpenTable:
        """Open it. ``columns``: those to write, None: a snapshot's without decoding.

        Raises:
            ConfigError: ``cleanerd[tables]`` is not installed, or the path cannot have a table.
            CleanerdError: it cannot be read.
        """
        self.require_installed()
        from cleanerd.spark.tables.delta import DeltaOpen  # noqa: PLC0415
        from cleanerd.spark.tables.files import ROWS  # noqa: PLC0415 - an extra

        return DeltaOpen.at(self.uri, ROWS if columns is None else columns)

    @property
    def where(self) -> str:
        return self.uri

    def undecoded(self) -> Delta:
        return Delta(f"{self.uri.rstrip('/')}{_UNDECODED_SUFFIX}")


@dataclass(frozen=True, slots=True)
class Iceberg:
    """An Iceberg table by its name, ``NAMESPACE.NAME``, in a catalog from pyiceberg's configuration."""

    name: str
    catalog: str = "default"

    def require_installed(self) -> None:
        """Check that its packages are installed; raises as :meth:`open`."""
        _require("pyiceberg")

    def open(self, columns: pa.Schema | None = None) -> OpenTable:
        """Open it. ``columns``: those to write, None: a snapshot's without decoding.

        Raises:
            ConfigError: ``cleanerd[tables]`` is not installed, or the catalog or the name is invalid.
            CleanerdError: it cannot be read.
        """
        self.require_installed()
        from cleanerd.spark.tables.files import ROWS  # noqa: PLC0415 - an extra
        from cleanerd.spark.tables.iceberg import IcebergOpen  # noqa: PLC0415

        return IcebergOpen.named(self.name, self.catalog, ROWS if columns is None else columns)

    @property
    def where(self) -> str:
        return self.name

    def undecoded(self) -> Iceberg:
        return Iceberg(f"{self.name}{_UNDECODED_SUFFIX}", self.catalog)


def _require(package: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise ConfigError(f"not installed: {package}", hint=_INSTALL)
