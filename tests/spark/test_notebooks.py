"""The notebooks: run from top to bottom in a new kernel, and without outputs in git."""

from __future__ import annotations

import ast
import base64
import importlib
import shutil
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.support.patience import PATIENCE_SECONDS

TOP = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((TOP / "examples" / "notebooks").glob("*.ipynb"))


def code_of(path: Path) -> list[str]:
    return [cell.source for cell in nbformat.read(path, 4).cells if cell.cell_type == "code"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_file_in_git(path: Path) -> None:
    """Valid, small, without outputs and counts; each cell is Python; the page of the examples names it."""
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    assert path.stat().st_size < 50_000
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    assert 5 <= len(code_of(path)) <= 12
    for code in code_of(path):
        ast.parse(code)
        assert max(map(len, code.splitlines())) <= 120
    assert f"notebooks/{path.name}" in (TOP / "examples" / "README.md").read_text()


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_imported_names_exist(path: Path) -> None:
    """A notebook runs only in the long tests; a renamed class or function fails here."""
    imports = [node for code in code_of(path) for node in ast.walk(ast.parse(code)) if isinstance(node, ast.ImportFrom)]
    names = [(node.module or "", each.name) for node in imports for each in node.names]
    ours = [(module, name) for module, name in names if module.startswith("cleanerd")]
    assert ours
    assert [name for module, name in ours if not hasattr(importlib.import_module(module), name)] == []


@pytest.mark.long
def test_log_to_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a new kernel: a table with the latest state, an audit that finds nothing, and a chart."""
    for name, value in {"IPYTHONDIR": tmp_path, "TMPDIR": tmp_path, "SPARK_LOCAL_IP": "127.0.0.1"}.items():
        monkeypatch.setenv(name, str(value))
    shutil.copy(TOP / "examples" / "notebooks" / "log_to_table.ipynb", tmp_path)
    notebook = nbformat.read(tmp_path / "log_to_table.ipynb", 4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=PATIENCE_SECONDS, kernel_name="python3", resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    shown = "".join(output.text for output in outputs if output.get("name") == "stdout")
    assert "keys up to offset 59580; then 0 rows written, 0 removed" in shown
    assert "0 findings" in shown
    (picture,) = [output.data["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    assert base64.b64decode(picture).startswith(b"\x89PNG")
    (work,) = tmp_path.glob("cleanerd-notebook-*")
    assert (work / "table" / "_delta_log").is_dir()
    assert list((work / "cleaned").glob("*.json"))
