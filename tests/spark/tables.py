"""Tables of both formats for tests, and what a reader of them sees."""

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
    """One table in ``root``, of ``kind`` delta or iceberg."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        self.root = root

    @property
    def target(self) -> Delta | Iceberg:
        return Delta(str(self.root / "table")) if self.kind == "delta" else Iceberg(NAME, CATALOG)

    @property
    def words(self) -> list[str]:
        """As the command line has it."""
        if self.kind == "delta":
            return ["--format", "delta", "--out", str(self.root / "table")]
        return ["--format", "iceberg", "--catalog", CATALOG, "--table", NAME]

    @property
    def environment(self) -> dict[str, str]:
        """Where pyiceberg finds its catalog."""
        of = f"PYICEBERG_CATALOG__{CATALOG.upper()}__"
        warehouse = self.root / "warehouse"
        warehouse.mkdir(exist_ok=True)
        return {
            f"{of}TYPE": "sql",
            f"{of}URI": f"sqlite:///{self.root / 'catalog.db'}",
            f"{of}WAREHOUSE": warehouse.as_uri(),
        }

    @contextmanager
    def known(self) -> Iterator[None]:
        """With the catalog in the environment, which pyiceberg reads when it is imported."""
        of = {key.rpartition("__")[2].lower(): value for key, value in self.environment.items()}
        with patch("cleanerd.spark.tables.iceberg.load_catalog", lambda name: load_catalog(name, **of)):
            yield

    def read(self) -> pa.Table:
        """All rows."""
        if self.kind == "delta":
            return DeltaTable(str(self.root / "table")).to_pyarrow_table()
        return self.iceberg().scan().to_arrow()

    def iceberg(self) -> Any:
        of = {key.rpartition("__")[2].lower(): value for key, value in self.environment.items()}
        return load_catalog(CATALOG, **of).load_table(NAME)

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.read().to_pylist(), key=lambda row: (row["topic"], row["partition"], row["offset"]))

    def state(self) -> dict[bytes, int]:
        """Key -> offset, deleted keys left out; each key once."""
        rows = self.rows()
        assert len({(row["topic"], row["partition"], row["key"]) for row in rows}) == len(rows), "a key twice"
        return {row["key"]: row["offset"] for row in rows if not row["is_tombstone"]}

    def commits(self) -> int:
        if self.kind == "delta":
            return DeltaTable(str(self.root / "table")).version() + 1
        return len(self.iceberg().snapshots())

    def files(self) -> int:
        """Parquet files that lie there, named or not."""
        return sum(1 for path in self.root.rglob("*.parquet") if "_delta_log" not in path.parts)
