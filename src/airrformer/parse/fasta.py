"""FASTA: records with the line that each begins on, and header templates.

Own reader, because what it must do (name lines, skip comments before the first header, never glue stray text to a
record) differs between versions of the common libraries.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from airrformer.errors import UserError
from airrformer.parse.files import Text

# The fields that a header or a column can hold; a name that starts with "_" is read over.
FIELDS = (
    "receptor_id",
    "cell_id",
    "sequence_id",
    "locus",
    "v_call",
    "j_call",
    "junction_aa",
    "cdr3_aa",
    "productive",
)


@dataclass(frozen=True)
class FastaRecord:
    line: int
    header: str
    sequence: str

    @property
    def first_word(self) -> str:
        return self.header.split(maxsplit=1)[0] if self.header else ""


def read_fasta(source: Text) -> list[FastaRecord]:
    """The records of a FASTA text in order; sequence lines are joined, blanks within them taken out.

    Lines that start with ``#`` or ``;`` are comments. Notes are added to ``source.notes``.

    Raises ``UserError`` for other text before the first header.
    """
    records: list[FastaRecord] = []
    header, start, pieces, comments = None, 0, [], 0

    def finish() -> None:
        if header is not None:
            records.append(FastaRecord(start, header, "".join(pieces)))

    for number, line in enumerate(source.text.split("\n"), start=1):
        if line.startswith(">"):
            finish()
            header, start, pieces = line[1:].strip(), number, []
        elif line.startswith(("#", ";")):
            comments += 1
        elif header is not None:
            pieces.append("".join(line.split()))
        elif line.strip():
            raise UserError(
                f"{source.path}: line {number}: text before the first header: {line.strip()[:40]!r}; "
                "a record starts with a line '>id'"
            )
    finish()
    if comments:
        source.notes.append(f"{source.path}: {comments} comment line{'s' * (comments > 1)} skipped")
    return records


def check_unique(source: Text, records: list[FastaRecord], whole_header: bool) -> None:
    """Raise ``UserError`` that names repeated ids and their lines. ``whole_header``: the id is not the first word."""
    lines: dict[str, list[FastaRecord]] = {}
    for record in records:
        lines.setdefault(record.header if whole_header else record.first_word, []).append(record)
    repeated = {name: found for name, found in lines.items() if len(found) > 1 and name}
    if not repeated:
        return
    shown = "; ".join(
        f"{name!r} on lines {', '.join(str(r.line) for r in found[:4])}{', ...' * (len(found) > 4)}"
        for name, found in list(repeated.items())[:3]
    )
    more = f" and {len(repeated) - 3} more" if len(repeated) > 3 else ""
    if not whole_header and all(len({r.header for r in found}) > 1 for found in repeated.values()):
        raise UserError(
            f"{source.path}: the headers differ but their first words, which are the ids, repeat: {shown}{more}; "
            "give the header's form, such as id: '{receptor_id}|{locus}'"
        )
    raise UserError(f"{source.path}: repeated ids: {shown}{more}; give every record an id of its own")


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
