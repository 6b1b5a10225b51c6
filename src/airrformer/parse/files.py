"""From bytes to lines: gzip by content, encoding, line endings, and which kind of file it is."""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from airrformer.errors import UserError

# How a table or a program writes that there is no value. Never residues, although N, O, N and E are letters too.
MISSING = {"", "none", "nan", "na", "n/a", "null", "<na>"}


@dataclass
class Text:
    """The text of one file with ``\\n`` line ends, and what a reader should know about how it was read."""

    path: str
    text: str
    notes: list[str] = field(default_factory=list)


def is_missing(value: str | None) -> bool:
    return value is None or value.strip().lower() in MISSING


def read_text(path: str | Path) -> Text:
    """Read a plain or gzipped text file; the ending of its name does not matter.

    UTF-8 with or without a byte order mark, UTF-16 with one; anything else is read as Latin-1 with a note, which is
    safe because residues and genes are ASCII. ``\\r\\n`` and a lone ``\\r`` end a line like ``\\n``.

    Raises:
        UserError: the file is missing, empty, a damaged gzip file or no text.
    """
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot read the file: {error.strerror}") from None
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error) as error:
            raise UserError(f"{path}: the gzip file is damaged: {error}") from None
    notes = []
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        text = data.decode("utf-16", errors="replace")
    else:
        if b"\0" in data:
            raise UserError(f"{path}: no text file; give FASTA, CSV or TSV, plain or gzipped")
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            notes.append(f"{path}: byte {error.start} is not UTF-8; read as Latin-1")
            text = data.decode("latin-1")
    if not text.strip():
        raise UserError(f"{path}: the file is empty")
    return Text(str(path), text.replace("\r\n", "\n").replace("\r", "\n"), notes)


def kind_of(source: Text) -> Literal["fasta", "table"]:
    """FASTA where any line begins with ``>``, else a table where the first line has several columns.

    Raises ``UserError`` for anything else, such as bare sequences without headers.
    """
    if re.search(r"^>", source.text, re.MULTILINE):
        return "fasta"
    if any(mark in first_line(source) for mark in "\t,;"):
        return "table"
    raise UserError(
        f"{source.path}: no FASTA header (a line that starts with '>') and no table with columns found; "
        f"the file starts with {first_line(source)[:40]!r}"
    )


def first_line(source: Text) -> str:
    """The first line that holds something and is no comment."""
    lines = (line.strip("\n ") for line in source.text.split("\n"))
    return next((line for line in lines if line.strip() and not line.startswith("#")), "")
