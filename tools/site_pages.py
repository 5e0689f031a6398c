"""MkDocs' hook (mkdocs.yml): the pages that lie outside of docs/ become pages of the site, and links follow them.

On the disk ARCHITECTURE.md links to ``docs/where.md`` and docs/where.md to ``../ARCHITECTURE.md``. In the site both lie
side by side, so a link to a page that the site has gets its name there. A link to any other file of the tree - a unit,
an example - cannot be followed in a browser: its text stays, the link goes.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "ARCHITECTURE.md": "architecture",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
    "RELEASING.md": "releasing",
    "examples/README.md": "examples",
}
"""Path in the tree -> name of the page in the site."""

LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"(```.*?```|`[^`\n]*`)", re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of :data:`OUTSIDE`."""
    for source, page in OUTSIDE.items():
        files.append(File.generated(config, f"{page}.md", content=(ROOT / source).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """The page with links that hold within the site."""
    source = {f"{there}.md": here for here, there in OUTSIDE.items()}.get(
        page.file.src_uri, f"docs/{page.file.src_uri}"
    )
    parts = CODE.split(markdown)
    for number in range(0, len(parts), 2):
        parts[number] = LINK.sub(lambda found: _in_the_site(found, source), parts[number])
    return "".join(parts)


def _in_the_site(found: re.Match[str], source: str) -> str:
    marker, text, target, anchor = found[1], found[2], found[3], found[4] or ""
    if not target or "://" in target:
        return found[0]
    path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if path in OUTSIDE or path.startswith("docs/"):
        # Pages from outside of docs/ are at the top of the site.
        page = f"{OUTSIDE[path]}.md" if path in OUTSIDE else path.removeprefix("docs/")
        here = "" if source in OUTSIDE else posixpath.dirname(source).removeprefix("docs").lstrip("/")
        return f"{marker}[{text}]({posixpath.relpath(page, here or '.')}{anchor})"
    if (ROOT / path).exists():
        return text
    return found[0]
