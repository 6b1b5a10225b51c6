"""What concerns a whole file: its molecule, its species, and whether its CDR3s have their anchors.

Told by the first records of the file (``records.SAMPLE``), so that a file of any size is read once; what turns up later
and does not agree is rejected record by record, or ends the parse where it would change what the rest means.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

from airrformer.config import Dataset
from airrformer.errors import UserError
from airrformer.parse.nucleotides import MINIMUM_LETTERS, letters_of, looks_like_nucleotides, translate
from airrformer.parse.records import SAMPLE, Input, Record, Rejection
from airrformer.parse.residues import SHORTEST_DOMAIN, Rejected
from airrformer.receptors.genes import HUMAN, MOUSE, species_name, standardise

_LETTERS = ("sequence", "sequence_aa", "junction_aa", "cdr3_aa")
_TOLD = ("v_call", "j_call", "junction_aa", "cdr3_aa")
_LOOKED_AT = 1000  # records whose letters are looked at one by one
Molecule = Literal["protein", "nucleotide"]


@dataclass
class Anchors:
    """How one column writes CDR3s, and whether it keeps to it.

    ``with_anchors``: None where every value is told by itself (``cdr3_anchors: each``). ``declared``: the user says so.
    """

    path: str
    column: str
    with_anchors: bool | None
    note: str | None = None
    declared: bool = False
    counts: Counter[bool] = field(default_factory=Counter)
    first: dict[bool, tuple[int, str]] = field(default_factory=dict)

    def see(self, line: int, value: str) -> bool:
        """Whether this value has its anchors, by the convention of the column."""
        has = value.startswith("C")
        self.counts[has] += 1
        if has not in self.first:
            self.first[has] = (line, value)
        if self.with_anchors or (self.declared and self.with_anchors is False):
            return self.with_anchors
        # Also where the column has none: a CDR3 that runs from C to F or W is a junction among them.
        return _between_anchors(value)

    def check(self) -> None:
        """Raise ``UserError`` where the column mixes junctions and CDR3s: all of the file has then been seen."""
        total = self.counts.total()
        if self.with_anchors is None or self.declared or total < 10 or not 0.2 < self.counts[True] / total < 0.8:
            return
        (line_a, junction), (line_b, cdr3) = self.first[True], self.first[False]
        raise UserError(
            f"{self.path}: column {self.column} mixes junctions with C104 ({junction}, line {line_a}) and CDR3s "
            f"without ({cdr3}, line {line_b}); write all in one way, or say cdr3_anchors: each (--set "
            "cdr3_anchors=each)"
        )


@dataclass
class Facts:
    """What was told about one file.

    Attributes:
        molecules: field -> what its letters are.
        species: key of ``tidytcells``, where a record does not say itself; with ``each`` where its genes do not either.
        anchors: (field, slot) -> convention.
        bare_anchored: whether short sequences are junctions.
        with_junctions: whether junctions or CDR3s are given beside the chains; a short chain is then no CDR3 itself.
        with_genes: whether there are V and J genes, so that chains can be put together.
        with_cdrs: slots in which most chains without a sequence have CDR1, CDR2 and CDR3.
        with_j: slots with a column of J genes.
        each: each chain tells by itself its species, whether its CDR3 has anchors, and what it is made of: in new files
            of a model no row hangs on its neighbours. Of a file remain: its molecule, and whether a column of junctions
            has none.
        present: the molecules that its records are read from.
    """

    molecules: dict[str, Molecule]
    species: str
    anchors: dict[tuple[str, int], Anchors]
    with_junctions: bool
    bare_anchored: bool
    with_genes: bool
    with_cdrs: set[int]
    with_j: set[int]
    each: bool
    present: set[str]
    notes: list[str]

    def is_junction(self, text: str) -> bool:
        """Whether a short sequence is a junction, and no CDR3 without anchors."""
        return _between_anchors(text) if self.each else self.bare_anchored

    def from_genes(self, record: Record) -> bool:
        """Whether a chain without a sequence is put together from its V and J genes."""
        if not self.each:
            return self.with_genes
        return "v_call" in record.fields and ("j_call" in record.fields or record.slot in self.with_j)

    def from_cdrs(self, record: Record) -> bool:
        """Whether a chain without a sequence is known by its three CDRs."""
        return _has_cdrs(record.fields) if self.each else record.slot in self.with_cdrs


def survey(
    opened: Input, dataset: Dataset, each: bool = False, usual: str = HUMAN
) -> tuple[list[Record | Rejection], Facts]:
    """The first records of a file, and what they tell; ``opened.records`` goes on after them.

    ``each``: see ``Facts``; what does not tell its species is then of the ``usual`` one.

    Raises ``UserError`` where the molecule is not what was declared.
    """
    head = list(itertools.islice(opened.records, SAMPLE))
    return head, _facts(opened, [record for record in head if isinstance(record, Record)], dataset, each, usual)


def _facts(opened: Input, sample: list[Record], dataset: Dataset, each: bool, usual: str) -> Facts:
    path, notes = opened.path, []
    molecules = {name: _molecule(path, sample, name, dataset.molecule, notes) for name in _LETTERS}
    columns = opened.columns or [{}]
    anchors = {
        (name, slot): _anchors(
            *(path, sample, name, slot, columns[slot].get(name, name)),
            "each" if each and name == "cdr3_aa" and dataset.cdr3_anchors == "auto" else dataset.cdr3_anchors,
            molecules[name],
        )
        for name in ("junction_aa", "cdr3_aa")
        for slot in range(len(columns))
    }
    notes += [found.note for found in anchors.values() if found.note]
    if each and dataset.species == "auto":
        species = usual
    else:
        species = _species(sample, dataset)
        said = dataset.species != "auto" or any("species" in record.fields for record in sample)
        if species != HUMAN and not said:
            notes.append(f"{path}: the genes are read as those of mouse")
    given = {name for record in sample for name in _TOLD if name in record.fields}
    return Facts(
        molecules=molecules,
        species=species,
        anchors=anchors,
        with_junctions=bool(given & {"junction_aa", "cdr3_aa"}),
        bare_anchored=_bare_anchored(sample, molecules),
        with_genes={"v_call", "j_call"} <= given,
        with_cdrs={slot for slot in range(len(columns)) if _with_cdrs(sample, slot)},
        with_j={slot for slot, names in enumerate(columns) if "j_call" in names},
        each=each,
        present={_source(record, molecules) for record in sample},
        notes=notes,
    )


def _with_cdrs(sample: list[Record], slot: int) -> bool:
    whole = ("sequence_aa", "sequence", "aligned")
    held = [r.fields for r in sample if r.slot == slot and not any(name in r.fields for name in whole)]
    return 2 * sum(_has_cdrs(fields) for fields in held) > len(held)


def _has_cdrs(fields: dict[str, str]) -> bool:
    return "cdr1_aa" in fields and "cdr2_aa" in fields


def _source(record: Record, molecules: dict[str, Molecule]) -> str:
    for name in ("sequence_aa", "sequence"):
        if name in record.fields:
            return molecules[name]
    return "nucleotide" if "aligned" in record.fields else "protein"


def _species(sample: list[Record], dataset: Dataset) -> str:
    """Human, unless clearly more of the V calls have germline residues in mouse: many names (TRBV19) are in both."""
    if dataset.species != "auto":
        return species_name(dataset.species) or dataset.species
    # Antibody genes of the mouse are not known, so they tell nothing.
    calls = Counter(
        call for record in sample if not (call := record.fields.get("v_call", "IG")).upper().startswith("IG")
    )

    def known(species: str) -> int:
        return sum(n for call, n in calls.items() if standardise(call, "TCR", species).symbol)

    return MOUSE if known(MOUSE) > known(HUMAN) + 0.1 * calls.total() else HUMAN


def _anchors(
    path: str, sample: list[Record], name: str, slot: int, column: str, declared: str, molecule: Molecule
) -> Anchors:
    """``junction_aa`` is taken at its word unless it clearly has no anchors (AIRR: with them); ``cdr3_aa`` is without
    them in AIRR, but many programs write junctions there."""
    held = [record for record in sample if record.slot == slot and name in record.fields]
    values = [_as_residues(record.fields[name], molecule) for record in held]
    if declared != "auto":
        return Anchors(path, column, {"with": True, "without": False, "each": None}[declared], declared=True)
    junction = name == "junction_aa"
    if not values:
        return Anchors(path, column, junction)
    with_c = sum(value.startswith("C") for value in values) / len(values)
    ends = sum(value.endswith(("F", "W")) for value in values) / len(values)
    if junction and len(values) >= 10 and with_c <= 0.2:
        return Anchors(path, column, False, f"{path}: {column}: the values have no anchors; taken as CDR3s")
    if not junction and with_c >= 0.8 and ends >= 0.8:
        return Anchors(path, column, True, f"{path}: {column}: the values have their anchors; taken as junctions")
    return Anchors(path, column, junction)


def _bare_anchored(sample: list[Record], molecules: dict[str, Molecule]) -> bool:
    """Whether at least half of the short sequences run from C to F or W."""
    held = [(name, record.fields[name]) for record in sample for name in _LETTERS[:2] if name in record.fields]
    texts = [_as_residues(text, molecules[name]) for name, text in held if len(text) < 3 * SHORTEST_DOMAIN]
    short = [text for text in texts if 0 < len(text) < SHORTEST_DOMAIN]
    return sum(map(_between_anchors, short)) * 2 >= len(short)


def _between_anchors(text: str) -> bool:
    return text.startswith("C") and text.endswith(("F", "W"))


def _as_residues(text: str, molecule: Molecule) -> str:
    """Residues in upper case, of nucleotides in frame 1; empty where there is no translation."""
    if molecule == "protein":
        return text.upper()
    try:
        return translate(text, frames=(1,)).sequence
    except Rejected:
        return ""


def _molecule(path: str, sample: list[Record], name: str, declared: str, notes: list[str]) -> Molecule:
    """What a field holds, by the letters of all its values, or as declared if the letters allow it."""
    held = [record for record in sample if name in record.fields]
    nucleotides, letters = looks_like_nucleotides(record.fields[name] for record in held)
    if not held:
        return "protein"
    if name not in _LETTERS[:2]:  # what is declared is what the chains are
        declared = "auto"
    if declared == "protein":
        if nucleotides and letters >= MINIMUM_LETTERS and name == "sequence":
            raise UserError(
                f"{path}: residues were declared (molecule: protein), but all {letters} letters are nucleotides; "
                "say molecule: nucleotide or auto"
            )
        return "protein"
    if declared == "nucleotide":
        found = [(record, looks_like_nucleotides([record.fields[name]])[0]) for record in held]
        odd = [record for record, fits in found if not fits and letters_of(record.fields[name])]
        if len(odd) * 2 > len(held):
            raise UserError(
                f"{path}: line {odd[0].line}: nucleotides were declared (molecule: nucleotide), but {odd[0].id!r} "
                f"holds {letters_of(odd[0].fields[name])[:20]!r}; say molecule: protein or auto"
            )
        return "nucleotide"
    if nucleotides and letters < MINIMUM_LETTERS and name not in _LETTERS[:2]:
        return "protein"
    if nucleotides and letters < MINIMUM_LETTERS:
        notes.append(
            f"{path}: all letters could be nucleotides, but {letters} are too few to tell: kept as residues; "
            "say molecule: nucleotide if they are not"
        )
        return "protein"
    if nucleotides:
        return "nucleotide"
    # one odd record (a protein among reads, or a typing error) does not change what the file is
    some = held[:_LOOKED_AT]
    fits = sum(looks_like_nucleotides([record.fields[name]])[0] for record in some)
    return "nucleotide" if 2 * fits > len(some) else "protein"
