"""CSV and TSV: the header, and rows with the line that each begins on; the separator is found from the header."""

from __future__ import annotations

import csv
import difflib
import itertools
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from airrformer.errors import UserError
from airrformer.parse.files import Source, is_missing, is_missing_word

csv.field_size_limit(1 << 26)

SEPARATORS = "\t,;"
_BLANK = f" {SEPARATORS}"  # a line of nothing else has no cell with anything in it


@dataclass
class Table:
    """``rows`` yields (line, cells) in order, once, blank rows left out; a row may have more or fewer cells.

    Attributes:
        header: names as in the file, those of two header lines joined by " - ".
        metadata: what a JSON line before the header says (data units of OAS).
    """

    path: str
    header: list[str]
    rows: Iterator[tuple[int, list[str]]]
    metadata: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def dicts(self, words: Sequence[str] = ()) -> Iterator[tuple[int, dict[str, str] | None, list[str]]]:
        """(line, column -> value without the missing ones, cells); None for the values of a ragged row.

        ``words``: columns that hold words of any kind, such as labels: ``-`` is one of them.
        """
        for line, cells in self.rows:
            if len(cells) != len(self.header):
                yield line, None, cells
            else:
                named = zip(self.header, cells)
                values = {
                    name: value.strip()
                    for name, value in named
                    if name and not (is_missing_word(value) if name in words else is_missing(value))
                }
                yield line, values, cells


def read_table(source: Source) -> Table:
    """Open a table; the first line that is neither blank nor a comment is its header.

    Raises ``UserError`` for a repeated column name, and while rows are read for quotation marks that do not match.
    """
    skipped, metadata = 0, {}
    for line in source.head:
        if found := _metadata(line):
            metadata = found
        elif line.strip(_BLANK) and not _is_comment(line):
            break
        skipped += 1
    else:
        raise UserError(f"{source.path}: no header is found; the file has nothing but comments and blank lines")
    separator = max(SEPARATORS, key=line.count)
    lines = itertools.chain(itertools.repeat("", skipped), _bare(itertools.islice(source.lines(), skipped, None)))
    rows = _tab_rows(lines) if separator == "\t" else _quoted_rows(lines, separator, source.path)
    _, header = next(rows, (0, []))
    if not any(name.strip() for name in header):
        raise UserError(f"{source.path}: no header is found; the file has nothing but blank cells")
    header = [" ".join(name.split()) for name in header]
    first = next(rows, None)
    if first and "Chain 1" in header and len(first[1]) == len(header):
        # IEDB: the first line of two has the groups of columns
        header = [f"{group} - {name.strip()}" for group, name in zip(header, first[1])]
        first = next(rows, None)
    start = [first] if first else []
    start += itertools.islice(rows, 4)
    notes = []
    longer = len(start) > 1 and all(len(cells) == len(header) + 1 and cells[-1].strip() for _, cells in start)
    if longer and separator == ",":
        # R writes row names without a header for them, but a decimal comma makes one cell more too
        raise UserError(
            f"{source.path}: line {start[0][0]}: rows have one cell more than the header; is there a comma in a "
            "number, or a name missing in the header?"
        )
    if longer:
        notes.append(f"{source.path}: rows have one cell more than the header; the first is taken as the row's name")
        header.insert(0, "")
    repeated = sorted(name for name, count in Counter(header).items() if name and count > 1)
    if repeated:
        raise UserError(f"{source.path}: column {repeated[0]!r} occurs twice in the header")
    rows = _trimmed(itertools.chain(start, rows), len(header))
    return Table(source.path, header, rows, metadata, notes)


def _is_comment(line: str) -> bool:
    # VDJtools and TRUST4 write their header with a "#" before the first name.
    return line.startswith("#") and not line.lower().startswith(("#count\t", "#cell_id\t", "#barcode\t"))


def _metadata(line: str) -> dict[str, str]:
    """What a line of JSON says; empty where it is none."""
    if not line.startswith(("{", '"{')):
        return {}
    try:
        found = json.loads(next(csv.reader([line]))[0] if line.startswith('"') else line)
    except (ValueError, csv.Error, RecursionError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}


def _bare(lines: Iterator[str]) -> Iterator[str]:
    header = next(lines)
    yield header.removeprefix("#")
    yield from lines


def _tab_rows(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Rows of a TSV, where a quotation mark is a character as others: base qualities and JSON hold single ones.

    A row that has too many cells like this is read with quotes: pandas puts them around a tab.
    """
    width = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = line.split("\t")
        if '"' in line:
            quoted = next(csv.reader([line], delimiter="\t")) if 0 < width < len(cells) else []
            cells = quoted if len(quoted) == width > 0 else [_unquoted(cell) for cell in cells]
        width = width or len(cells)
        yield number, cells


def _unquoted(cell: str) -> str:
    return cell[1:-1].replace('""', '"') if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell


def _quoted_rows(lines: Iterator[str], separator: str, path: str) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the line that each begins on (a quoted cell may hold line ends)."""
    reader = csv.reader((f"{line}\n" for line in lines), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            if any(cells) and any(cell.strip() for cell in cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        raise UserError(
            f"{path}: line {line}: not a valid table: {error}; is there a quotation mark without its partner?"
        ) from None


def _trimmed(rows: Iterator[tuple[int, list[str]]], width: int) -> Iterator[tuple[int, list[str]]]:
    """A separator at the end of a line makes no cell."""
    for line, cells in rows:
        while len(cells) > width and not cells[-1].strip():
            cells.pop()
        yield line, cells


def near(name: str, names: list[str] | tuple[str, ...]) -> str:
    """A hint at the name that was meant, or at all there are."""
    match = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {match[0]!r}?" if match else f"; there is {', '.join(filter(None, names))}"
