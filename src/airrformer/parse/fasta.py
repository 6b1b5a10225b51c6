"""FASTA and FASTQ: records with the line that each begins on, and header templates.

Own reader of FASTA, because what it must do (name lines, skip comments before the first header, never glue stray text
to a record) differs between versions of the common libraries; FASTQ is Biopython's.
"""

from __future__ import annotations

import difflib
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from Bio.SeqIO.QualityIO import FastqGeneralIterator

from airrformer.errors import UserError
from airrformer.parse.files import Source

# The fields that a header or a column can hold, AIRR Rearrangement names; a name that starts with "_" is read over.
FIELDS = (
    "receptor_id",
    "cell_id",
    "sequence_id",
    "locus",
    "v_call",
    "j_call",
    "c_call",
    "junction_aa",
    "cdr3_aa",
    "junction",
    "productive",
    "species",
    "umi_count",
    "duplicate_count",
    "consensus_count",
)


_MOST_LETTERS = 50_000  # of a record: more are a genome, or were made to fill the memory
_BEFORE_HEADERS = " \ufeff"  # files that were put together have byte order marks in the middle


class FastaRecord(NamedTuple):
    line: int
    header: str
    sequence: str


def first_word(header: str) -> str:
    """What a header's record is known by."""
    return header if header.isalnum() or not header else header.split(maxsplit=1)[0]


def read_fasta(source: Source) -> Iterator[FastaRecord]:
    """The records of a FASTA file in order; sequence lines are joined, blanks within them taken out.

    Lines that start with ``#`` or ``;`` are comments. Notes are added to ``source.notes``.

    Raises ``UserError`` for other text before the first header, and for a record that is no receptor by its size.
    """
    header, start, pieces, comments, letters = None, 0, [], 0, 0
    for number, line in enumerate(source.lines(), start=1):
        first = line[:1]
        if first and first in _BEFORE_HEADERS:
            line = line.lstrip(_BEFORE_HEADERS)
            first = line[:1]
        if first == ">":
            if header is not None:
                yield FastaRecord(start, header, "".join(pieces))
            header, start, pieces, letters = line[1:].strip(), number, [], 0
        elif first == "#" or first == ";":
            comments += 1
        elif header is not None:
            pieces.append(line if line.isalpha() else "".join(line.split()))
            if ">" in line and "<" not in line:
                raise UserError(
                    f"{source.path}: line {number}: '>' within a line of letters; are two files put together without "
                    "an end of line between them?"
                )
            letters += len(line)
            if letters > _MOST_LETTERS:
                raise UserError(
                    f"{source.path}: line {start}: {first_word(header)[:40]!r} has more than {_MOST_LETTERS:,} "
                    "letters; this is no receptor"
                )
        elif line.strip():
            raise UserError(
                f"{source.path}: line {number}: text before the first header: {line.strip()[:40]!r}; "
                "a record starts with a line '>id'"
            )
    if header is not None:
        yield FastaRecord(start, header, "".join(pieces))
    if comments:
        source.notes.append(f"{source.path}: {comments} comment line{'s' * (comments > 1)} skipped")


def read_fastq(source: Source) -> Iterator[FastaRecord]:
    """The records of a FASTQ file; qualities are read over. Raises ``UserError`` where the file is none throughout."""
    line = 1
    # Counted here: sequences and qualities of old files are wrapped, and the library does not tell where it is.
    lines = _Counted(f"{line}\n" for line in source.lines())
    records = FastqGeneralIterator(lines)
    try:
        for header, sequence, _ in records:
            yield FastaRecord(line, header.strip(), sequence)
            line = lines.number  # the library has read the next header
    except ValueError as error:
        raise UserError(f"{source.path}: line {lines.number}: not a valid FASTQ file: {error}") from None


class _Counted:
    """Lines as the library wants to read them, counted."""

    def __init__(self, lines: Iterator[str]) -> None:
        self._lines, self.number = lines, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        return line

    def readline(self) -> str:
        return next(self, "")

    def read(self, size: int) -> str:
        return ""  # asked for no characters, to see whether they would be text


class SeenIds:
    """Which ids a FASTA file has had, to name those that repeat."""

    def __init__(self, path: str) -> None:
        self._path = path
        # id -> line and checksum of the header of its first record, in one number: there may be millions
        self._first: dict[str, int] = {}
        self._repeated: dict[str, list[int]] = {}

    def add(self, name: str, line: int, header: str) -> bool:
        """Note the id of a record; whether it is new."""
        this = line << 32 | (zlib.crc32(header.encode()) if len(name) < len(header) else 0)
        first = self._first.setdefault(name, this)
        if first == this or not name:
            return True
        self._repeated.setdefault(name, [first]).append(this)
        return False

    def rename(self, name: str, receptor_id: str) -> str:
        """A new id for the receptor of a record whose ``name`` has been there: id_2, or the next that is free."""
        number = len(self._repeated[name])
        while (new := f"{receptor_id}_{number}") in self._first:
            number += 1
        self._first[new] = 0  # on no line of the file
        return new

    def renamed(self) -> list[str]:
        """A note on the ids that repeat, if there are any."""
        count = len(self._repeated)
        what = f"{self._path}: {count:,} id{'s' * (count > 1)} repeated; later ones are named id_2, id_3, ..."
        return [what] if count else []

    def check(self, whole_header: bool) -> None:
        """Raise ``UserError`` that names repeated ids and their lines, if there are any.

        ``whole_header``: the id is the whole header, not its first word.
        """
        if not self._repeated:
            return
        shown = "; ".join(
            f"{name[:60]!r} on lines {', '.join(str(entry >> 32) for entry in found[:4])}{', ...' * (len(found) > 4)}"
            for name, found in list(self._repeated.items())[:3]
        )
        more = f" and {len(self._repeated) - 3} more" if len(self._repeated) > 3 else ""
        distinct = (len({entry & 0xFFFFFFFF for entry in found}) > 1 for found in self._repeated.values())
        if not whole_header and all(distinct):
            raise UserError(
                f"{self._path}: the headers differ but their first words, which are the ids, repeat: {shown}{more}; "
                "give the header's form, such as id: '{receptor_id}|{locus}', or say repeated_ids: rename (--set "
                "repeated_ids=rename)"
            )
        raise UserError(
            f"{self._path}: repeated ids: {shown}{more}; give every record an id of its own, or say "
            "repeated_ids: rename (--set repeated_ids=rename)"
        )


class HeaderTemplate:
    """A form of header such as ``{receptor_id}|{locus}|{v_call}``; a field never holds the marks beside it.

    >>> HeaderTemplate("{receptor_id}|{locus}").fields_of("cell7|TRB")
    {'receptor_id': 'cell7', 'locus': 'TRB'}
    """

    def __init__(self, template: str) -> None:
        self.template = template
        parts = re.split(r"\{([^{}]*)\}", template)  # literal, field, literal, field, ..., literal
        literals, names = parts[::2], parts[1::2]
        for name in names:
            if not name.startswith("_") and name not in FIELDS:
                near = difflib.get_close_matches(name, FIELDS, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else f"; there is {', '.join(FIELDS)}"
                raise UserError(f"id: {template!r}: unknown field {name!r}{hint}")
        if len(set(names)) < len(names):
            raise UserError(f"id: {template!r}: a field occurs twice")
        if not {"receptor_id", "cell_id"} & set(names):
            raise UserError(f"id: {template!r}: the field {{receptor_id}} is missing")
        if "" in literals[1:-1]:
            raise UserError(f"id: {template!r}: two fields need a mark between them")
        pattern = re.escape(literals[0])
        for i, name in enumerate(names):
            marks = "".join({literal[0] for literal in literals[1:-1]} or set())
            field = f"[^{re.escape(marks)}]*" if marks else ".*"
            group = f"(?P<{name}>{field})" if not name.startswith("_") else field
            pattern += group + re.escape(literals[i + 1])
        self._pattern = re.compile(pattern)

    def fields_of(self, header: str) -> dict[str, str] | None:
        """The fields of a header's first word, or else of the whole header; None where neither has the form."""
        for text in (header.split(maxsplit=1)[0] if header else "", header):
            found = self._pattern.fullmatch(text)
            if found:
                fields = {name: value.strip() for name, value in found.groupdict().items()}
                if fields.get("receptor_id") or fields.get("cell_id"):
                    return fields
        return None
