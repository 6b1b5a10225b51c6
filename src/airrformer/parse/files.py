"""From bytes to lines: compression by content, encoding, line ends. A file is read once and never held whole."""

from __future__ import annotations

import atexit
import bz2
import gzip
import io
import lzma
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyarrow as pa

from airrformer.errors import UserError

# How a table or a program writes that there is no value. Never residues, although N, O, N and E are letters too.
MISSING = frozenset(
    {"", "none", "nan", "na", "n/a", "null", "<na>", "nd", "unknown", "unresolved", "no data", "partial",
     "region_not_covered", ".", "-"}
)  # fmt: skip
# In capitals, and where CDR1 or CDR2 is asked for, this is no missing value but the CDR2 of some light chains.
ASN_ALA_ASN = "NAN"

STDIN = "-"
_BUFFER = 1 << 16  # bytes
_BLOCK = 1 << 20  # characters; the first block is looked at before a reader is chosen
_LONGEST_LINE = 1 << 26  # characters; a longer line is no table and no FASTA but fills the memory
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive or an Excel workbook; unpack it, or save the sheet as CSV",
    b"PAR1": "a Parquet file; save the table as TSV",
    b"\x89HDF": "an HDF5 file; only AnnData (.h5ad) ones are read, and not from standard input",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"%PDF": "a PDF file",
    b"BZh": "a bzip2 file within a compressed file",
    b"\x1f\x8b": "a gzip file within a compressed file; decompress it once",
}


_MISSING_WORDS = frozenset({"", "none", "nan", "na", "n/a", "null", "<na>"})


def is_missing_word(value: str) -> bool:
    """Whether a label or a group is missing; ``-``, ``unknown`` and the like are classes to some."""
    return value.strip().lower() in _MISSING_WORDS


def is_missing(value: str | None) -> bool:
    return value is None or value.strip().lower() in MISSING


class Source:
    """The lines of one text file, to be read once.

    Plain, gzip, bzip2, xz and Zstandard, told by the first bytes; ``-`` is standard input. UTF-8 with or without a byte
    order mark and UTF-16 with one; a line that is neither is read as Latin-1 with a note, which is safe because
    residues and genes are ASCII. ``\\r\\n`` and a lone ``\\r`` end a line like ``\\n``.

    Attributes:
        path: as the user gave it; ``stdin`` for standard input.
        notes: sentences on how the file was read, complete when all lines are read.
        head: the first lines, to tell what the file holds.

    Raises:
        UserError: on opening or while reading: the file is missing, empty, damaged or no text.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = "stdin" if str(path) == STDIN else shown(path)
        self.notes: list[str] = []
        self._odd_lines = 0
        try:
            self._raw = open(real_path(path), "rb")  # noqa: SIM115, closed with the last line
            self._size = os.fstat(self._raw.fileno()).st_size
            self._text = self._open()
            self._more = self._blocks()
            self.head = next((block for block in self._more if block), [])
        except _DAMAGED as error:
            raise self._failure(error) from None
        if not any(line.strip() for line in self.head):
            self._text.close()
            raise UserError(f"{self.path}: the file is empty")

    def _open(self) -> io.TextIOWrapper:
        data = io.BufferedReader(self._raw, _BUFFER)
        magic = data.peek(4)[:4]
        if magic[:2] == b"\x1f\x8b":
            data = io.BufferedReader(gzip.GzipFile(fileobj=data), _BUFFER)
        elif magic[:3] == b"BZh":
            data = io.BufferedReader(bz2.BZ2File(data), _BUFFER)
        elif magic == b"\xfd7zX":
            data = io.BufferedReader(lzma.LZMAFile(data), _BUFFER)  # noqa: SIM115, as above
        elif magic == b"\x28\xb5\x2f\xfd":
            data = io.BufferedReader(pa.CompressedInputStream(pa.PythonFile(data, "r"), "zstd"), _BUFFER)
        start = data.peek(_BUFFER)
        for bytes_, what in _NO_TEXT.items():
            if start.startswith(bytes_):
                raise UserError(f"{self.path}: no text file but {what}")
        if start[:2] in (b"\xff\xfe", b"\xfe\xff"):
            return io.TextIOWrapper(data, encoding="utf-16", errors="replace", newline=None)
        if b"\0" in start:
            raise UserError(f"{self.path}: no text file; give FASTA, CSV or TSV, plain or compressed")
        return io.TextIOWrapper(data, encoding="utf-8-sig", errors="surrogateescape", newline=None)

    def _blocks(self) -> Iterator[list[str]]:
        """Lines, about a megabyte at a time."""
        rest = ""
        while block := self._text.read(_BLOCK):
            block = rest + block
            lines = block.split("\n")
            rest = lines.pop()
            if len(rest) > _LONGEST_LINE:
                raise UserError(
                    f"{self.path}: a line of more than {_LONGEST_LINE:,} characters; this is no table or FASTA"
                )
            yield lines if block.isascii() else [self._decoded(line) for line in lines]
        if rest:
            yield [self._decoded(rest)]

    def _decoded(self, line: str) -> str:
        try:
            line.encode()
        except UnicodeEncodeError:
            self._odd_lines += 1
            return line.encode("utf-8", "surrogateescape").decode("latin-1")
        return line

    def lines(self) -> Iterator[str]:
        """All lines without their ends; closes the file after the last."""
        try:
            yield from self.head
            for block in self._more:
                yield from block
        except _DAMAGED as error:
            raise self._failure(error) from None
        finally:
            self._text.close()
        if self._odd_lines:
            which = "1 line is" if self._odd_lines == 1 else f"{self._odd_lines:,} lines are"
            self.notes.append(f"{self.path}: {which} not UTF-8 and read as Latin-1")

    def close(self) -> None:
        self._text.close()

    def share_read(self) -> float:
        """How much of the file has been read, 0 to 1."""
        return 1.0 if self._raw.closed else min(1.0, self._raw.tell() / max(1, self._size))

    def _failure(self, error: Exception) -> UserError:
        if isinstance(error, OSError) and error.errno:
            return UserError(f"{self.path}: cannot read the file: {error.strerror}")
        return UserError(f"{self.path}: the compressed file is damaged: {error}")


def shown(path: str | Path) -> str:
    """A path as text that can be written, also where its bytes are none."""
    return os.fsencode(path).decode("utf-8", "replace")


def real_path(path: str | Path) -> str:
    """The path to open: standard input and pipes are copied to a temporary file, to be read more than once."""
    if str(path) == STDIN or Path(path).is_fifo():
        return _copy(str(path))
    return str(path)


@cache
def _copy(path: str) -> str:
    with tempfile.NamedTemporaryFile(prefix="airrformer-", delete=False) as copy:
        atexit.register(lambda: Path(copy.name).unlink(missing_ok=True))
        if path == STDIN and sys.stdin is None:
            raise UserError("standard input is closed; there is nothing to read")
        if path == STDIN:
            shutil.copyfileobj(sys.stdin.buffer, copy)
        else:
            with open(path, "rb") as pipe:
                shutil.copyfileobj(pipe, copy)
    return copy.name
