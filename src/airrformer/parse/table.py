"""CSV and TSV: rows under our names, with the line of each; the separator is found from the header."""

from __future__ import annotations

import csv
import difflib
import io
from collections.abc import Iterator
from dataclasses import dataclass

from airrformer.errors import UserError
from airrformer.parse.fasta import FIELDS
from airrformer.parse.files import Text, first_line, is_missing

# Columns that are read under their AIRR names, or under the names that `columns:` gives.
COLUMNS = (*FIELDS, "sequence_aa", "sequence")


@dataclass(frozen=True)
class TableRow:
    """``values``: our column name -> value, without the missing ones; None where the row is ragged."""

    line: int
    values: dict[str, str] | None
    cells: list[str]


@dataclass(frozen=True)
class Table:
    path: str
    header: list[str]
    rows: list[TableRow]


def read_table(source: Text, columns: dict[str, str] | None = None) -> Table:
    """Read a table; every column stays available under its own name, and ours are added where ``columns`` says so.

    A row with another number of cells than the header has ``values`` None.

    Raises ``UserError`` for a repeated column name, an unknown name in ``columns`` or one that the file lacks.
    """
    line = first_line(source)
    delimiter = max("\t,;", key=line.count)
    # Comment lines before the header are skipped as blank ones, so that line numbers stay true.
    lines = source.text.split("\n")
    for i, text in enumerate(lines):
        if text.strip() and not text.startswith("#"):
            break
        lines[i] = ""
    reader = csv.reader(io.StringIO("\n".join(lines), newline=""), delimiter=delimiter, strict=True)
    rows = _rows(reader, source.path)
    _, header = next(rows)
    header = [name.strip() for name in header]
    named = [name for name in header if name]
    repeated = sorted({name for name in named if named.count(name) > 1})
    if repeated:
        raise UserError(f"{source.path}: column {repeated[0]!r} occurs twice in the header")
    renamed = _check_columns(source.path, header, columns or {})
    read = []
    for number, cells in rows:
        if len(cells) != len(header):
            read.append(TableRow(number, None, cells))
            continue
        by_name = {name: value.strip() for name, value in zip(header, cells) if name and not is_missing(value)}
        ours = {ours: by_name[theirs] for ours, theirs in renamed.items() if theirs in by_name}
        read.append(TableRow(number, {**{k: v for k, v in by_name.items() if k not in renamed}, **ours}, cells))
    return Table(source.path, [*header, *renamed], read)


def _rows(reader, path: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line that each begins on (a quoted cell may hold line ends)."""
    line = 1
    try:
        for cells in reader:
            if cells and any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}: line {line}: not a valid table: {error}; is there a quotation mark without its partner?"
        ) from None


def _check_columns(path: str, header: list[str], columns: dict[str, str]) -> dict[str, str]:
    for ours, theirs in columns.items():
        if ours not in COLUMNS:
            raise UserError(f"columns: unknown name {ours!r}{near(ours, COLUMNS)}")
        if theirs not in header:
            raise UserError(f"{path}: no column {theirs!r} (columns: {ours}){near(theirs, header)}")
    return columns


def near(name: str, names: list[str] | tuple[str, ...]) -> str:
    """A hint at the name that was meant, or at all there are."""
    match = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {match[0]!r}?" if match else f"; there is {', '.join(filter(None, names))}"
