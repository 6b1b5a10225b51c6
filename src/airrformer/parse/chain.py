"""A chain on its way from a record to the tables, and what is counted on the way."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from airrformer.parse.records import Record
from airrformer.receptors.germlines import Bounds

LOCUS_CONFLICT = "locus differs from what the chain or its genes say"


@dataclass(slots=True)
class Chain:
    """A chain of a receptor, with the record that it came from. Fields as in ``receptors.tables.CHAIN_COLUMNS``."""

    record: Record
    sequence_aa: str
    loci: list[str]  # declared or told by the genes: one, or two for a light chain, or none
    species: str  # whose genes its own are read as
    told_species: str | None = None  # what the record or its genes say of what it is, not what is taken for granted
    v_call: str | None = None
    j_call: str | None = None
    c_call: str | None = None
    junction_aa: str | None = None
    productive: bool | None = None
    chain: str | None = None
    bounds: Bounds | None = None
    unnumbered: str | None = None  # why there are no bounds
    conflict: str | None = None  # what contradicts the locus that is given
    regions_by: str = "none"  # genes | germlines | numbering | cdrs_only | cdr3_only | none
    notes: list[str] = field(default_factory=list)
    frame: int | None = None  # that it was translated in
    other_frames: tuple[tuple[int, str], ...] = ()
    open_part: bool = False  # every frame has a stop: it is a chain only if the part without one holds a V domain

    @property
    def locus(self) -> str | None:
        return self.loci[0] if len(self.loci) == 1 else None

    def compare_locus(self, locus: str | None, how: str, correct: bool, shared: bool = True) -> bool:
        """Take the locus that is found where none contradicts it; whether the one that was given does.

        A light chain is of either light locus.

        Args:
            how: it was found: "looks like".
            correct: whether what is found goes before what was given.
            shared: alpha and delta chains may both be found so: they share V genes.
        """
        if locus is None or self.loci == [locus]:
            return False
        if not self.loci or locus in self.loci or {locus, *self.loci} == {"IGK", "IGL"}:
            self.loci = [locus]
            return False
        if self.conflict or (shared and {locus, *self.loci} == {"TRA", "TRD"}):
            return False
        self.conflict = f"given as {'/'.join(self.loci)}, but {how} {locus}"
        self.notes.append(self.conflict)
        if correct:
            self.loci = [locus]
        return True


@dataclass
class Account:
    """What is counted over all files: changes (what -> records) and gene names.

    ``genes``: file -> (column, given, kept, why) -> records.
    """

    changes: Counter[str] = field(default_factory=Counter)
    genes: dict[str, Counter[tuple[str, str, str, str]]] = field(default_factory=dict)


def counted(count: int, noun: str) -> str:
    """A number with its noun in the right form."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
