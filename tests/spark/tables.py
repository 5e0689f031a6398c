"""Tables of both formats for tests, and the rows that a reader of them sees."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from cleanerd.spark.tables.target import Delta, Iceberg

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

CATALOG = "test"
NAME = "kafka.orders"


class Tables:
    """One table in ``root``, of ``kind`` delta or iceberg; its files are in an object store if there is a ``url``."""

    def __init__(self, kind: str, root: Path, url: str | None = None, endpoint: str = "") -> None:
        self.kind = kind
        self.root = root
        self.url = url
        self.endpoint = endpoint

    @property
    def uri(self) -> str:
        """The URI of the Delta table."""
        return str(self.root / "table") if self.url is None else f"{self.url}/table"

    @property
    def target(self) -> Delta | Iceberg:
        return Delta(self.uri) if self.kind == "delta" else Iceberg(NAME, CATALOG)

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which pyiceberg finds its catalog."""
        of = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
        warehouse = self.root / "warehouse"
        warehouse.mkdir(exist_ok=True)
        return {
            f"{of}TYPE": "sql",
            f"{of}URI": f"sqlite:///{self.root / 'catalog.db'}",
            f"{of}WAREHOUSE": warehouse.as_uri() if self.url is None else f"{self.url}/warehouse",
            **({f"{of}S3__ENDPOINT": self.endpoint} if self.endpoint else {}),
        }

    @property
    def _catalog(self) -> dict[str, str]:
        return {key.split("__", 2)[2].replace("__", ".").lower(): value for key, value in self.environment.items()}

    @contextmanager
    def known(self) -> Iterator[None]:
        """With the catalog in the environment, which pyiceberg reads when it is imported."""
        with patch("cleanerd.spark.tables.iceberg.load_catalog", lambda name: load_catalog(name, **self._catalog)):
            yield

    def read(self) -> pa.Table:
        """All rows."""
        if self.kind == "delta":
            return DeltaTable(self.uri).to_pyarrow_table()
        return self.iceberg().scan().to_arrow()

    def iceberg(self) -> Any:
        return self.iceberg_table(NAME)

    def iceberg_table(self, name: str) -> Any:
        return load_catalog(CATALOG, **self._catalog).load_table(name)

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def state(self) -> dict[bytes, int]:
        """Key -> offset, without deleted keys; asserts that every key is there once."""
        rows = self.rows()
        assert len({(row["topic"], row["partition"], row["key"]) for row in rows}) == len(rows), "a key twice"
        return {row["key"]: row["offset"] for row in rows if not row["is_tombstone"]}

    def commits(self) -> int:
        if self.kind == "delta":
            return DeltaTable(self.uri).version() + 1
        return len(self.iceberg().snapshots())

    def files(self) -> int:
        """The Parquet files on disk, whether or not the table uses them."""
        return sum(1 for path in self.root.rglob("*.parquet") if "_delta_log" not in path.parts)
