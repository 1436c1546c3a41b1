"""Find prose that a senior engineer of this field would not write: a ban list, and the form of docstrings.

    python -m tests.docs.prose [PATH…]     list findings, and markers per 1,000 words

Python files contribute docstrings, comments and string literals that hold several words. Markdown pages
contribute everything outside code. Identifiers are checked against the words that are banned as names.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.docs.pages import ROOT, strip_code

__all__ = ["Finding", "banned_names", "findings", "prose_files", "texts", "word_count"]

MARKERS = re.compile(
    r"\b(somebody|nobody|anybody|everybody|whoever|whomever|of ours|told|tells|telling|lies|lie|lay|lain|anew|so many"
    r"|as far as|can not|beforehand|those who|by and by|at hand|stands|stood|by itself|of itself|all there is"
    r"|takes? heart|whole story|crew|ledger|foresight|childhood|front door|floors?|shelf|shelves|elsewhere"
    r"|pictures?|films?|folders?|wherever|thereby|therein|thereof|hence|nearer|wish|wishes|hopes?|kept for good)\b",
    re.IGNORECASE,
)
OPENINGS = re.compile(r"(What|Where|Whether|How|Which|Who|Whose|As|Those|That|More|Also|Only|Is|Are)\b")
NAME_WORDS = frozenset(
    [
        "anew",
        "anybody",
        "crew",
        "elsewhere",
        "everybody",
        "fate",
        "film",
        "films",
        "on_lookahead",
        "foresight",
        "ledger",
        "nobody",
        "picture",
        "pictures",
        "shelf",
        "shelves",
        "somebody",
        "told",
        "unwatched",
        "whoever",
        "wish",
        "wishes",
    ]
)
_QUOTED = re.compile(r"`[^`\n]*`|\"[^\"\n]*\"|'[^'\n ]+'")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")


@dataclass(frozen=True)
class Finding:
    path: Path
    line: int
    word: str
    text: str

    def __str__(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}: {self.word!r} in: {self.text[:140]}"


@lru_cache(maxsize=1)
def texts(path: Path) -> list[tuple[int, str]]:
    """Return the prose of a file as (line, text)."""
    source = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return list(enumerate(strip_code(source).splitlines(), start=1))
    comments = [
        (token.start[0], token.string.lstrip("# "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type:"))
    ]
    return comments + [
        (node.lineno, node.value)
        for node in _nodes(path)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip()
    ]


def findings(path: Path) -> list[Finding]:
    """Return every banned phrase in the prose of a file, and every docstring that opens badly."""
    out = []
    for line, text in texts(path):
        plain = _QUOTED.sub("``", text)
        out += [Finding(path, line, hit[0], " ".join(plain.split())) for hit in MARKERS.finditer(plain)]
    if path.suffix == ".py":
        out += [Finding(path, line, text.split()[0], text) for line, text in _docstrings(path) if OPENINGS.match(text)]
    return out


def banned_names(path: Path) -> list[Finding]:
    """Return identifiers defined in a Python file that use a banned word."""
    defined: list[tuple[int, str]] = []
    for node in _nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defined.append((node.lineno, node.name))
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.append((node.lineno, node.id))
        elif isinstance(node, ast.arg):
            defined.append((node.lineno, node.arg))
    return [Finding(path, line, name, name) for line, name in defined if NAME_WORDS & set(_words(name))]


def word_count(path: Path) -> int:
    return sum(len(_WORD.findall(text)) for _, text in texts(path))


@lru_cache(maxsize=1)
def _nodes(path: Path) -> list[ast.AST]:
    """Return all nodes of a Python file. The checks of one file come one after the other, so they share the nodes."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def _words(name: str) -> list[str]:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")


def _docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of a file, and the strings that document a constant."""
    for node in _nodes(path):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for child in body:
            is_text = isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            if is_text and isinstance(child.value.value, str):
                yield child.lineno, child.value.value.strip()


def prose_files(names: list[str]) -> Iterator[Path]:
    """Yield the Python files and Markdown pages under the given paths; this check itself quotes what it bans."""
    for name in names:
        path = Path(name).resolve()
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            is_check = file.name in ("prose.py", "test_prose.py")
            is_foreign = any(part.startswith(".") or part == "node_modules" for part in file.relative_to(path).parts)
            if file.suffix in (".py", ".md") and not is_check and not is_foreign:
                yield file


def main(paths: list[str]) -> None:
    paths = paths or ["src", "tests", "benchmarks", "examples", "docs", "README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    found, words, names = 0, 0, 0
    for path in prose_files(paths):
        listed = findings(path)
        named = banned_names(path) if path.suffix == ".py" else []
        for finding in [*listed, *named]:
            print(finding)
        found, words, names = found + len(listed), words + word_count(path), names + len(named)
    print(f"{found} findings in {words} words: {1000 * found / max(words, 1):.2f} per 1,000; {names} banned names")


if __name__ == "__main__":
    main(sys.argv[1:])
