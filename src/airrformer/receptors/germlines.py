"""Germline residues of V and J genes, from ``tidytcells``, and V domains rebuilt from V gene, junction and J gene.

A junction has its anchors (C104 ... F118 or W118), a CDR3 has not. Residues of a V gene are those without its leader.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import tidytcells
from rapidfuzz.distance import Levenshtein

from airrformer.receptors.genes import HUMAN, MOUSE, genes_of, standardise

# The J motif, F/W-G-X-G, begins at position 118; a few functional genes have F-A-X-G (TRAJ16) or F-G-A-N (TRAJ61),
# TRAJ35 (in mouse TRAJ47) has a cysteine and TRAJ7 and TRAJ44 of the mouse, which are ORFs, a leucine.
_J_MOTIFS = (re.compile(r"[FW][GA].[GN]"), re.compile(r"CG.G"), re.compile(r"LG.G"))
# A junction that ends with so many residues of a J gene, F/W118 included, is taken to come from it.
_SHORTEST_J_END = 4

# Alleles whose regions tidytcells gives otherwise than IMGT's gapped sequences do: CDR2 is longer or shorter there.
_ODD_REGIONS = {
    HUMAN: {"IGHV4-59*13", "IGLV3-1*02", "TRAV12-3*03", "TRDV3*01"},
    MOUSE: {
        *("TRAV12N-3*01", "TRAV16*03", "TRAV16*04", "TRAV4D-3*04", "TRAV9D-2*01", "TRAV9D-2*02"),
        *("TRDV1*01", "TRDV5*03", "TRDV5*04"),
    },
}

Bounds = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class GermlineV:
    """Residues of a V gene without its leader, up to and including C104, and its regions; ``note``: on where from."""

    allele: str
    sequence: str
    bounds: Bounds
    note: str | None = None


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


_Germline = TypeVar("_Germline", GermlineV, GermlineJ)


def germline_v(v_call: str, species: str = HUMAN) -> GermlineV:
    """Germline residues of a V gene.

    Where the call has no allele, or one without complete residues, those of ``*01``, else of the gene's first allele
    that has them. A tie has residues where those of its genes are the same.

    Raises ``ValueError`` with the reason when there is none.
    """
    found = _germline_v(v_call, species)
    if isinstance(found, str):
        raise ValueError(found)
    return found


def germline_j(j_call: str, species: str = HUMAN) -> GermlineJ:
    """Germline residues of a J gene from F/W118 on; alleles, ties and ``ValueError`` as for V."""
    found = _germline_j(j_call, species)
    if isinstance(found, str):
        raise ValueError(found)
    return found


@lru_cache(maxsize=10_000)
def _germline_v(v_call: str, species: str) -> GermlineV | str:
    return _of_call(v_call, "V", species, _v_of_allele, "complete germline residues")


@lru_cache(maxsize=10_000)
def _germline_j(j_call: str, species: str) -> GermlineJ | str:
    return _of_call(j_call, "J", species, _j_of_allele, "germline residues with an F/W118")


def _of_call(
    call: str, segment: str, species: str, of_allele: Callable[[str, str], _Germline | None], what: str
) -> _Germline | str:
    """What the call's gene has, or the reason why it has nothing."""
    found = standardise(call, None, species)
    if found.symbol is None:
        return found.note or f"no {segment} gene given"
    if species not in (HUMAN, MOUSE):
        return f"no genes of {species} are known"
    germlines = []
    for symbol in found.symbol.split(","):
        gene = symbol.split("*")[0]
        if segment not in gene[3:]:
            return f"{gene} is no {segment} gene"
        candidates = (of_allele(allele, species) for allele in _alleles_to_try(symbol, species))
        germlines.append(next((germline for germline in candidates if germline), None))
    if len({germline and _residues_of(germline) for germline in germlines}) > 1:
        return f"{segment} gene {found.symbol.replace(',', ' or ')} is a tie"
    return germlines[0] or f"{segment} gene {call} has no {what}"


def _residues_of(germline: GermlineV | GermlineJ) -> str:
    return germline.sequence if isinstance(germline, GermlineV) else germline.anchor + germline.tail


def _alleles_to_try(symbol: str, species: str) -> list[str]:
    gene = symbol.split("*")[0]
    try:
        known = sorted(genes_of(gene[:2], species)[gene])
    except (KeyError, ValueError):  # of a species of which no genes are known
        return []
    return list(dict.fromkeys([symbol] * ("*" in symbol) + [f"{gene}*{allele}" for allele in known]))


def _v_of_allele(allele: str, species: str) -> GermlineV | None:
    v = _residues(allele, species).get("V-REGION", "")
    own = None if allele in _ODD_REGIONS.get(species, ()) else _bounds_of(allele, species)
    bounds = own or _bounds_of_another(allele, species)
    if not bounds:
        return None
    end = bounds["fwr3"][1]
    if v[end - 1 : end] != "C" or "*" in v[:end]:
        return None
    return _with_first_residues(GermlineV(allele, v[:end], bounds), species)


def _bounds_of(allele: str, species: str) -> Bounds | None:
    """CDR1 and CDR2 are what lies between the frameworks: a few entries lack or shorten the CDR fields themselves."""
    regions = _residues(allele, species)
    v = regions.get("V-REGION", "")
    fwr1, fwr2, fwr3 = (regions.get(f"FR{i}-IMGT", "") for i in (1, 2, 3))
    two = v.find(fwr2, len(fwr1))
    three = v.find(fwr3, two + len(fwr2))
    if not (fwr1 and fwr2 and fwr3.endswith("C") and v.startswith(fwr1) and two > 0 and three > 0):
        return None
    return {
        "fwr1": (0, len(fwr1)),
        "cdr1": (len(fwr1), two),
        "fwr2": (two, two + len(fwr2)),
        "cdr2": (two + len(fwr2), three),
        "fwr3": (three, three + len(fwr3)),
    }


def _bounds_of_another(allele: str, species: str) -> Bounds | None:
    """Of another allele of the gene, as long, for one whose own are odd or (IGLV1-47*01, IGLV7-46*01) not there."""
    length = len(_residues(allele, species).get("V-REGION", ""))
    as_long = (other for other in _others(allele, species) if len(_residues(other, species)["V-REGION"]) == length)
    return next((bounds for other in as_long if (bounds := _bounds_of(other, species))), None)


def _others(allele: str, species: str) -> list[str]:
    """The other alleles of a gene that have regions of their own; in mouse also those of its copies (TRAV12N-3)."""
    gene = allele.split("*")[0]
    plain = re.sub(r"(?<=\d)[DN](?=-|$)", "", gene)
    copies = [re.sub(r"^(TR.V\d+)", rf"\1{copy}", plain) for copy in ("", "D", "N")] if species == MOUSE else []
    alleles = [other for name in dict.fromkeys([gene, *copies]) for other in _alleles_to_try(name, species)]
    odd = _ODD_REGIONS.get(species, ())
    return [other for other in alleles if other != allele and other not in odd and _residues(other, species)]


def _with_first_residues(v: GermlineV, species: str) -> GermlineV:
    """Some alleles are known from within FWR1 on only: what is missing is that of the first other as long after it."""
    fwr1 = v.bounds["fwr1"][1]
    for other in _others(v.allele, species):
        bounds = _bounds_of(other, species)
        missing = bounds["fwr1"][1] - fwr1 if bounds else 0
        if missing <= 0 or bounds["fwr3"][1] - missing != v.bounds["fwr3"][1]:
            continue
        first = _residues(other, species)["V-REGION"][:missing]
        filled = {region: (start + missing, end + missing) for region, (start, end) in v.bounds.items()}
        note = f"the first {missing} residues of {v.allele} are not known and those of {other}"
        return GermlineV(v.allele, first + v.sequence, {**filled, "fwr1": (0, fwr1 + missing)}, note)
    return v


def _j_of_allele(allele: str, species: str) -> GermlineJ | None:
    parts = _j_parts(allele, species)
    return GermlineJ(allele, parts[0][-1], parts[1]) if parts else None


def _j_parts(allele: str, species: str) -> tuple[str, str] | None:
    """Residues of a J gene up to F/W118, and those after it."""
    j = _residues(allele, species).get("J-REGION", "")
    motif = next((found for pattern in _J_MOTIFS if (found := pattern.search(j))), None)
    if motif is None or "*" in j[motif.start() :]:
        return None
    return j[: motif.start() + 1], j[motif.start() + 1 :]


@lru_cache(maxsize=100_000)
def germline_j_of_junction(junction_aa: str, locus: str, species: str = HUMAN) -> GermlineJ | None:
    """The J gene that a junction ends like, where no J gene is given; None where it is not clear what follows.

    The one with most residues in common, counted from F/W118 backwards: at least four, and all genes with as many go
    on with the same residues.

    >>> germline_j_of_junction("CASSIRSSYEQYF", "TRB").tail
    'GPGTRLTVT'
    """
    best, found = _SHORTEST_J_END - 1, []
    for allele, (end, tail) in _j_ends(locus, species):
        common = next((n for n, (a, b) in enumerate(zip(reversed(junction_aa), reversed(end))) if a != b), len(end))
        if common > best:
            best, found = common, []
        if common == best:
            found.append(GermlineJ(allele, end[-1], tail))
    return found[0] if len({germline.tail for germline in found}) == 1 else None


@lru_cache(maxsize=10_000)
def cdr3_ends(v_call: str | None, j_call: str | None, species: str = HUMAN) -> tuple[str, str]:
    """What the V gene brings to a CDR3 after C104, and the J gene before F/W118; "" for a gene that is not known.

    >>> cdr3_ends("TRBV6-1", "TRBJ2-7")
    ('ASSE', 'SYEQY')
    """
    v, j = _germline_v(v_call or "", species), _germline_j(j_call or "", species)
    v_end, j_start = "", ""
    if isinstance(v, GermlineV):
        whole, last = _residues(v.allele, species)["V-REGION"], v.sequence[-10:]
        v_end = whole[whole.index(last) + len(last) :].partition("*")[0]
    if isinstance(j, GermlineJ):
        j_start = _j_parts(j.allele, species)[0][:-1].rpartition("*")[2]
    return v_end, j_start


@lru_cache(maxsize=100)
def _j_ends(locus: str, species: str) -> list[tuple[str, tuple[str, str]]]:
    try:
        genes = genes_of(locus[:2], species)
    except ValueError:  # a species of which no genes are known
        return []
    alleles = [f"{gene}*{allele}" for gene, known in genes.items() if gene.startswith(f"{locus}J") for allele in known]
    return [(allele, parts) for allele in alleles if (parts := _j_parts(allele, species))]


def _residues(allele: str, species: str) -> dict[str, str]:
    family = tidytcells.ig if allele.startswith("IG") else tidytcells.tr
    try:
        return family.get_aa_sequence(symbol=allele, species=species)
    except ValueError:
        return {}


def rebuild_chain(v_call: str, junction_aa: str, j_call: str, species: str = HUMAN) -> RebuiltChain:
    """The V domain of a TCR or antibody chain: germline V up to C104, the junction, germline J after F/W118.

    Args:
        v_call, j_call: gene symbols; without an allele ``*01`` is taken, or the first allele that has residues. Where
            no J gene is given (an empty text), the one that the junction ends like is taken.
        junction_aa: CDR3 with its anchors. It is never mended: where an anchor differs, the note says so.

    Raises:
        ValueError: with the reason, when a gene has no germline residues or the junction is too short.

    >>> chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01")
    >>> chain.sequence_aa[slice(*chain.bounds["cdr3"])]
    'ASSIRSSYEQY'
    """
    if len(junction_aa) < 3:
        raise ValueError(f"junction {junction_aa!r} is too short to be one")
    v, j, taken_as = _germlines(v_call, j_call or _j_like(junction_aa, v_call, species), species)
    if not j_call:
        taken_as = [*taken_as, f"no J gene given, the junction ends like {j.allele}"]
    before = v.sequence[:-1]  # C104 comes with the junction
    sequence = f"{before}{junction_aa}{j.tail}"
    start, end = len(before) + 1, len(before) + len(junction_aa) - 1
    bounds = {**v.bounds, "cdr3": (start, end), "fwr4": (end, len(sequence))}
    return RebuiltChain(sequence, bounds, "; ".join([*taken_as, *anchor_notes(junction_aa)]) or None)


def rebuild_from_cdrs(
    cdr1: str,
    cdr2: str,
    junction_aa: str,
    loci: Sequence[str],
    species: str = HUMAN,
    v_call: str | None = None,
    j_call: str | None = None,
) -> RebuiltChain:
    """The V domain of a chain known by its CDRs: they are laid into germline frameworks.

    These are of the V gene that is given, else of the one whose CDR1 and CDR2 are the fewest edits away (an X costs
    nothing), of several the first in the order of their names; after the junction follows the J gene that is given,
    else the one that it ends like, or where that is not clear the locus's first.

    Args:
        loci: those that the chain may be of, such as IGK and IGL.
        junction_aa: CDR3 with its anchors. It is never mended: where an anchor differs, the note says so.

    Raises:
        ValueError: with the reason, where no gene of the loci has germline residues, or none is like the CDRs.

    >>> chain = rebuild_from_cdrs("GFTFSRYA", "ISGSGDST", "CANEENRSQYNGGYW", ["IGH"])
    >>> chain.note
    'framework of IGHV3-23*01, the V gene with the nearest CDR1 and CDR2 (2 edits away)'
    """
    notes = []
    if v_call:
        v = germline_v(v_call, species)
        notes.append(f"framework of {v.allele}")
    else:
        edits, v = _nearest_by_cdrs(cdr1, cdr2, tuple(loci), species)
        if edits > (len(cdr1) + len(cdr2)) / 2:
            raise ValueError(f"no V gene is like its CDR1 and CDR2; the nearest, {v.allele}, is {edits} edits away")
        notes.append(f"framework of {v.allele}, the V gene with the nearest CDR1 and CDR2 ({edits} edits away)")
    locus = v.allele[:3]
    j = germline_j(j_call, species) if j_call else germline_j_of_junction(junction_aa, locus, species)
    if j is None:
        j = _first_j(locus, species)
        notes.append(f"the junction ends like no J gene or like several, {j.allele} is taken")
    sequence, bounds = "", {}
    for region in ("fwr1", "cdr1", "fwr2", "cdr2", "fwr3"):
        residues = {"cdr1": cdr1, "cdr2": cdr2}.get(region, v.sequence[slice(*v.bounds[region])])
        bounds[region] = (len(sequence), len(sequence) + len(residues))
        sequence += residues
    sequence = sequence[:-1] + junction_aa  # C104, the end of FWR3, comes with the junction
    start, end = bounds["fwr3"][1], len(sequence) - 1
    sequence += j.tail
    note = "; ".join([*notes, *anchor_notes(junction_aa)])
    return RebuiltChain(sequence, {**bounds, "cdr3": (start, end), "fwr4": (end, len(sequence))}, note)


@lru_cache(maxsize=100_000)
def _nearest_by_cdrs(cdr1: str, cdr2: str, loci: tuple[str, ...], species: str) -> tuple[int, GermlineV]:
    def edits(v: GermlineV) -> int:
        pairs = (cdr1, "cdr1"), (cdr2, "cdr2")
        found = sum(Levenshtein.distance(given, v.sequence[slice(*v.bounds[name])]) for given, name in pairs)
        return max(0, found - unknown)

    unknown = (cdr1 + cdr2).count("X")
    if 2 * unknown > len(cdr1) + len(cdr2):
        raise ValueError("most residues of its CDR1 and CDR2 are unknown")
    genes = _functional_v(loci, species)
    if not genes:
        raise ValueError(f"no germline residues of {' or '.join(loci)} of {species} are known")
    nearest = min(genes, key=edits)
    return edits(nearest), nearest


@lru_cache(maxsize=100)
def _functional_v(loci: tuple[str, ...], species: str) -> list[GermlineV]:
    found = []
    for kind in dict.fromkeys(locus[:2] for locus in loci):
        try:
            genes = genes_of(kind, species)
        except ValueError:  # a species of which no genes are known
            continue
        for gene, alleles in genes.items():
            if gene.startswith(tuple(f"{locus}V" for locus in loci)):
                read = (_germline_v(f"{gene}*{allele}", species) for allele, state in alleles.items() if state == "F")
                found += [v for v in read if isinstance(v, GermlineV) and "fwr3" in v.bounds]
    return found


def _first_j(locus: str, species: str) -> GermlineJ:
    allele, (end, tail) = _j_ends(locus, species)[0]
    return GermlineJ(allele, end[-1], tail)


def _j_like(junction_aa: str, v_call: str, species: str) -> str:
    locus = germline_v(v_call, species).allele[:3]
    found = germline_j_of_junction(junction_aa, locus, species)
    if found is None:
        raise ValueError("no J gene given, and the junction ends like none or like several")
    return found.allele


@lru_cache(maxsize=100_000)
def _germlines(v_call: str, j_call: str, species: str) -> tuple[GermlineV, GermlineJ, list[str]]:
    """Both germlines, and notes on calls that are taken as another allele."""
    v, j = germline_v(v_call, species), germline_j(j_call, species)
    notes = [_taken_as(v_call, v.allele, species), v.note, _taken_as(j_call, j.allele, species)]
    return v, j, [note for note in notes if note]


def _taken_as(call: str, allele: str, species: str) -> str | None:
    symbol = standardise(call, None, species).symbol
    if symbol == allele:
        return None
    why = "" if allele.endswith("*01") else ", the first allele with complete residues"
    if "," in symbol:
        why = f", whose residues are those of all of {symbol}"
    return f"{call} taken as {allele}{why}"


def anchor_notes(junction_aa: str) -> list[str]:
    """What is not canonical about a junction's ends, if anything."""
    notes = []
    if not junction_aa.startswith("C"):
        notes.append(f"junction starts with {junction_aa[0]}, not C104")
    if junction_aa[-1] not in "FW":
        notes.append(f"junction ends with {junction_aa[-1]}, not F/W118")
    return notes
