"""Gene names and germline residues, from ``tidytcells``: symbols made standard, and chains rebuilt from V, CDR3 and J.

Names follow IMGT. A junction has its anchors (C104 ... F118 or W118), a CDR3 has not.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import tidytcells

# A symbol of Arden's nomenclature (1995): TCRAV7S2, BV6S1, Va7.2. Read as a modern name it is another gene.
_ARDEN = re.compile(r"(TCR|TR)?[ABGD]V\d+S\d+.*|V[abgd]\d+(\.\d+)?", re.IGNORECASE)
_SEPARATORS = re.compile(r"\s*(?:,|;|\s+or\s+)\s*")
# The J motif, F/W-G-X-G, begins at position 118; a few functional genes have F-A-X-G (TRAJ16) or F-G-A-N (TRAJ61),
# and TRAJ35 has a cysteine.
_J_MOTIFS = (re.compile(r"[FW][GA].[GN]"), re.compile(r"CG.G"))

Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class GeneCall:
    """A gene call as the tables keep it.

    ``symbol`` is as precise as the call is certain: an allele, a gene, several joined by commas where the call was a
    tie, or None where it is no gene of the species. ``note`` is a reason for a reader, or None.
    """

    symbol: str | None
    note: str | None = None

    @property
    def ambiguous(self) -> bool:
        return self.symbol is not None and "," in self.symbol


@dataclass(frozen=True)
class GermlineV:
    """Residues of a V gene without its leader, up to and including C104, and the starts of its regions."""

    allele: str
    sequence: str
    bounds: Bounds


@dataclass(frozen=True)
class GermlineJ:
    """Residues of a J gene: ``anchor`` is F/W118, ``tail`` what follows it (the rest of FWR4)."""

    allele: str
    anchor: str
    tail: str


@dataclass(frozen=True)
class RebuiltChain:
    """A V domain put together from germline V, junction and germline J; bounds count from 0, half open."""

    sequence_aa: str
    bounds: Bounds
    note: str | None


def standardise(symbol: str, receptor: str | None = None, species: str = "homosapiens") -> GeneCall:
    """The IMGT name of a gene symbol of any of the usual spellings.

    Args:
        symbol: such as ``TRBV19``, ``TCRBV19-01*01``, ``TRAV29DV5`` or a tie such as ``TRBV6-2*01,TRBV6-3*01``.
        receptor: ``TCR``, ``antibody``, or None to go by the symbol.

    >>> standardise("TCRBV19-01*01").symbol
    'TRBV19*01'
    >>> standardise("TRBV16*01,TRBV16*02").symbol
    'TRBV16'
    >>> standardise("TRBV6-2*01,TRBV6-3*01").symbol
    'TRBV6-2*01,TRBV6-3*01'
    """
    return _standardise(str(symbol), receptor, species)


@lru_cache(maxsize=100_000)
def _standardise(symbol: str, receptor: str | None, species: str) -> GeneCall:
    names: list[str] = []
    for part in filter(None, _SEPARATORS.split(symbol.strip())):
        if _ARDEN.fullmatch(part):
            return GeneCall(None, f"gene {part} is a name of the old (Arden) nomenclature; give the IMGT name")
        name = _standard_name(part, receptor, species)
        if name is None:
            return GeneCall(None, _why_unknown(part, receptor, species))
        if name not in names:
            names.append(name)
    if not names:
        return GeneCall(None)
    if len(names) == 1:
        return GeneCall(names[0])
    genes = {name.split("*")[0] for name in names}
    if len(genes) == 1:
        return GeneCall(genes.pop())
    return GeneCall(",".join(names), f"gene {' or '.join(names)} is a tie")


def _standard_name(symbol: str, receptor: str | None, species: str) -> str | None:
    locus = symbol.upper().lstrip()
    antibody = receptor == "antibody" if receptor else locus.startswith("IG")
    family = tidytcells.ig if antibody else tidytcells.tr
    return family.standardize(symbol=symbol, species=species, log_failures=False)


def _why_unknown(symbol: str, receptor: str | None, species: str) -> str:
    other = {"homosapiens": "musmusculus", "musmusculus": "homosapiens"}.get(species)
    plain = {"homosapiens": "human", "musmusculus": "mouse"}
    if other and receptor != "antibody" and _standard_name(symbol, "TCR", other):
        return f"gene {symbol} is no {plain[species]} gene; it is one of the {plain[other]}"
    if receptor == "TCR" and _standard_name(symbol, "antibody", species):
        return f"gene {symbol} is an antibody gene, not one of a TCR"
    if receptor == "antibody" and _standard_name(symbol, "TCR", species):
        return f"gene {symbol} is a TCR gene, not one of an antibody"
    return f"gene {symbol} is not known"


@lru_cache(maxsize=10_000)
def germline_v(v_call: str, species: str = "homosapiens") -> GermlineV:
    """Germline residues of a V gene; ``*01`` where the call has no allele or its allele has no complete residues.

    Raises ``ValueError`` with the reason when there is none.
    """
    for allele in _alleles_to_try(v_call, "V", species):
        regions = _residues(allele, species)
        v = regions.get("V-REGION", "")
        fwr1, fwr2, fwr3 = (regions.get(f"FR{i}-IMGT", "") for i in (1, 2, 3))
        # CDR1 and CDR2 are what lies between the frameworks: a few entries lack or shorten the CDR fields themselves.
        two = v.find(fwr2, len(fwr1))
        three = v.find(fwr3, two + len(fwr2))
        if (
            fwr1
            and fwr2
            and fwr3.endswith("C")
            and v.startswith(fwr1)
            and two > 0
            and three > 0
            and "*" not in v[: three + len(fwr3)]
        ):
            end = three + len(fwr3)
            bounds = {
                "fwr1": (0, len(fwr1)),
                "cdr1": (len(fwr1), two),
                "fwr2": (two, two + len(fwr2)),
                "cdr2": (two + len(fwr2), three),
                "fwr3": (three, end),
            }
            return GermlineV(allele, v[:end], bounds)
    raise ValueError(f"V gene {v_call} has no complete germline residues")


@lru_cache(maxsize=10_000)
def has_germline_v(v_call: str, species: str = "homosapiens") -> bool:
    try:
        return bool(germline_v(v_call, species))
    except ValueError:
        return False


@lru_cache(maxsize=10_000)
def germline_j(j_call: str, species: str = "homosapiens") -> GermlineJ:
    """Germline residues of a J gene from F/W118 on; ``*01`` as for V. Raises ``ValueError`` with the reason."""
    for allele in _alleles_to_try(j_call, "J", species):
        j = _residues(allele, species).get("J-REGION", "")
        motif = next((found for pattern in _J_MOTIFS if (found := pattern.search(j))), None)
        if motif and "*" not in j[motif.start() :]:
            return GermlineJ(allele, j[motif.start()], j[motif.start() + 1 :])
    raise ValueError(f"J gene {j_call} has no germline residues with an F/W118")


def _alleles_to_try(call: str, segment: str, species: str) -> list[str]:
    found = standardise(call, None, species)
    if found.symbol is None:
        raise ValueError(found.note or f"no {segment} gene given")
    if found.ambiguous:
        raise ValueError(f"{segment} {found.note}")
    gene = found.symbol.split("*")[0]
    if segment not in gene[3:]:
        raise ValueError(f"{gene} is no {segment} gene")
    return list(dict.fromkeys([found.symbol, f"{gene}*01"] if "*" in found.symbol else [f"{gene}*01"]))


def _residues(allele: str, species: str) -> dict[str, str]:
    family = tidytcells.ig if allele.startswith("IG") else tidytcells.tr
    try:
        return family.get_aa_sequence(symbol=allele, species=species)
    except ValueError:
        return {}


def rebuild_chain(v_call: str, junction_aa: str, j_call: str, species: str = "homosapiens") -> RebuiltChain:
    """The V domain of a TCR or antibody chain: germline V up to C104, the junction, germline J after F/W118.

    Args:
        v_call, j_call: gene symbols; without an allele ``*01`` is taken.
        junction_aa: CDR3 with its anchors. It is never mended: where an anchor differs, the note says so.

    Raises:
        ValueError: with the reason, when a gene has no germline residues or the junction is too short.

    >>> chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01")
    >>> chain.sequence_aa[slice(*chain.bounds["cdr3"])]
    'ASSIRSSYEQY'
    """
    if len(junction_aa) < 3:
        raise ValueError(f"junction {junction_aa!r} is too short to be one")
    v, j = germline_v(v_call, species), germline_j(j_call, species)
    notes = [
        f"{call} taken as {germline.allele}"
        for call, germline in ((v_call, v), (j_call, j))
        if standardise(call, None, species).symbol != germline.allele
    ]
    notes += anchor_notes(junction_aa)
    before = v.sequence[:-1]  # C104 comes with the junction
    sequence = before + junction_aa + j.tail
    cdr3 = (len(before) + 1, len(before) + len(junction_aa) - 1)
    return RebuiltChain(
        sequence, {**v.bounds, "cdr3": cdr3, "fwr4": (cdr3[1], len(sequence))}, "; ".join(notes) or None
    )


def anchor_notes(junction_aa: str) -> list[str]:
    """What is not canonical about a junction's ends, if anything."""
    notes = []
    if not junction_aa.startswith("C"):
        notes.append(f"junction starts with {junction_aa[0]}, not C104")
    if junction_aa[-1] not in "FW":
        notes.append(f"junction ends with {junction_aa[-1]}, not F/W118")
    return notes
