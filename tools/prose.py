"""Check the words of the users' pages: ``python -m tools.prose [PAGE...]``; without a page, all of them.

Four rules: a sentence has at most 25 words, the text contains no date, a line of example code or output fits the page,
and no word of docs/glossary.md's last table is used, unless its last column has nothing but names
(``tools/glossary_check.py`` goes through the whole tree by that column). ``tools/prose.toml`` has the exceptions, each
with its reason. An exception that is not needed any more is an error, so the list only shrinks.
"""

from __future__ import annotations

import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.glossary_check import GLOSSARY, Word, forbidden

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
ELSEWHERE = ("README.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")
"""Users' pages outside docs/."""
MOST_WORDS = 25
MOST_COLUMNS = 120
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
DATE = re.compile(rf"\b20\d\d-\d\d-\d\d\b|\b\d{{1,2}} (?:{MONTHS})\b|\b(?:{MONTHS}) 20\d\d\b|\bload (?:of )?\d")
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"*]*\s+(?=[\"(*\[]*(?:[A-Z0-9_]|cleanerd))|(?<=:)\s+")
ITEM = re.compile(r"([*-]|\d+\.) ")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
MARKERS = (
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), ""),
    (re.compile(r"`[^`\n]*`"), "CODE"),
    (re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"[*_]{2}"), ""),
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One place that breaks a rule: ``sentence``, ``word``, ``date`` or ``width``."""

    page: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        """As an editor can follow it."""
        return f"{self.page}:{self.line}: {self.rule}: {self.text}"


def parts_of(page: str) -> Iterator[tuple[int, bool, str]]:
    """(first line, whether it is code, text) of each paragraph, list item, heading, table cell and line of code."""
    fence, in_list = "", False
    start, words = 0, list[str]()
    for number, line in enumerate([*page.split("\n"), ""], 1):
        marker = re.match(r"\s*(```|~~~)", line)
        if line.strip() and not line.startswith(" "):
            in_list = bool(ITEM.match(line))
        is_code = bool(fence) or (line.startswith("    ") and not in_list and not words and bool(line.strip()))
        begins = bool(marker) or is_code or not line.strip() or re.match(r"\s*([*#|-]|\d+\.) ?", line)
        if begins and words:
            yield start, False, " ".join(words)
            words = []
        if marker:
            fence = "" if fence else marker[1]
        elif is_code:
            yield number, True, line
        elif line.startswith("|"):
            yield from ((number, False, cell.strip()) for cell in line.strip("| ").split("|"))
        elif line.strip():
            start = start if words else number
            words.append(re.sub(r"^\s*([*-]|#+|\d+\.) ", "", line).strip())


def findings_of(page: str, text: str, words: list[Word]) -> Iterator[Finding]:
    """All findings in the ``text`` of ``page``."""
    text = COMMENT.sub(lambda found: "\n" * found[0].count("\n"), text)
    for line, is_code, part in parts_of(text):
        if is_code:
            if len(part) > MOST_COLUMNS:
                yield Finding(page, line, "width", f"{len(part)} columns: {part.strip()[:60]}")
            continue
        prose = part
        for marked, plain in MARKERS:
            prose = marked.sub(plain, prose)
        for sentence in SENTENCE_END.split(prose):
            count = sum(1 for word in sentence.split() if re.search(r"\w", word))
            if count > MOST_WORDS:
                yield Finding(page, line, "sentence", f"{count} words: {sentence[:100]}")
        for found in DATE.finditer(prose):
            yield Finding(page, line, "date", found[0])
        for word in words:
            for found in word.pattern.finditer(prose):
                yield Finding(page, line, "word", f"{found[0]!r}: write {word.use}")


def check(pages: dict[str, str], words: list[Word], settings: dict[str, Any]) -> list[str]:
    """The messages for these pages (name -> text): findings without an exception, and exceptions without a finding."""
    exceptions = [each for each in settings.get("exceptions", ()) if each["page"] in pages]
    used = [False] * len(exceptions)
    messages = []
    for page, text in pages.items():
        for finding in findings_of(page, text, words):
            fits = [
                number
                for number, each in enumerate(exceptions)
                if each["page"] == page and finding.rule in each["rules"] and each.get("text", "") in finding.text
            ]
            for number in fits:
                used[number] = True
            if not fits:
                messages.append(str(finding))
    messages += [
        f"{each['page']}: the exception for {', '.join(each['rules'])} is not needed any more ({each['reason']})"
        for number, each in enumerate(exceptions)
        if not used[number]
    ]
    return messages


def main(named: list[str]) -> int:
    """Check the named pages, or all; the exit code."""
    settings = tomllib.loads((ROOT / "tools" / "prose.toml").read_text(encoding="utf-8"))
    left_out = {each["page"] for each in settings["developers"]}
    pages_of_docs = sorted([*ROOT.glob("docs/*.md"), *ROOT.glob("docs/commands/*.md")])
    names = named or [*ELSEWHERE, *(str(page.relative_to(ROOT)) for page in pages_of_docs)]
    pages = {name: (ROOT / name).read_text(encoding="utf-8") for name in names if name not in left_out}
    words = [word for word in forbidden((ROOT / GLOSSARY).read_text(encoding="utf-8")) if word.places != {"names"}]
    messages = check(pages, words, settings)
    sys.stdout.write("\n".join([*messages, f"prose: {len(pages)} pages, {len(messages)} findings", ""]))
    return bool(messages)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
