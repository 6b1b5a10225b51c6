"""Where the IMGT regions of a V domain lie: from germline residues where that is exact, else by numbering.

Bounds count residues of the given sequence from 0, half open: ``sequence[start:end]`` is the region, residue for
residue. FWR3 ends with C104, CDR3 has no anchors, FWR4 starts with F118 or W118. A leader before the domain and a
constant region after it belong to no region.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import ne
from typing import TypeVar

import numpy as np
import tidytcells

from airrformer.receptors.germlines import Bounds, GermlineJ, GermlineV, germline_j, germline_v
from airrformer.receptors.numbering import Numbering, number

# How far residues may be from a germline V gene and still be laid on it without a gap. Genes of man and mouse with
# other regions differ in 24 residues or more when laid on each other like this; and in 11,000 antibodies within 15
# residues of a gene (in 3,000 within 22), all CDR3s were those of numbering. What differs more is numbered. Ends that
# were sequenced badly are too: the first residues say where FWR1 begins.
_V_MISMATCHES = 15
_FIRST = 10
_FIRST_MISMATCHES = 2
_MARGIN = 3  # genes that are but so much farther away than the nearest one must agree with it
_J_MISMATCHES = 2

# Whose germline residues tidytcells has: no antibodies of the mouse.
_FAMILIES = {"homosapiens": (tidytcells.tr, tidytcells.ig), "musmusculus": (tidytcells.tr,)}
# C104 has a tyrosine (in some genes F or L) two residues before it, and F118 or W118 begins this motif, in nearly all
# genes; only such places are looked at, as lookaheads: they may overlap.
_C104 = re.compile(r"(?=[YFL].C)")
_J_MOTIF = re.compile(r"(?=[FWC][GA].[GN])")
_SHORTEST_V = 60  # residues to C104
_LONGEST_LEADER = 60
_LONGEST_JUNCTION = 45
_LONGEST_FWR4 = 12
_SHORTEST_TAIL = 3  # residues after the anchor of J
# Before a cysteine that is no C104, more than this share of residues differs from every V gene (85 % mostly, 75 % at
# least); in a V domain of any locus and species that was looked at, about 60 % at most.
_UNLIKE = 0.7
# One domain alone, clearly of one locus: the nearest gene differs in this share of residues at most, and genes of other
# loci by so much more.
_LONGEST_DOMAIN = 150
_SURE = 0.4
_CLOSE = 0.1

_LEADER = (15, 40)  # residues
# The first residues of the constant regions of man and mouse, from UniProt: TRAC P01848 P01849, TRBC P01850 A0A5B9
# P01852, TRGC P0CF51, TRDC B7Z8K6, IGHG P01857 P01859 P01868 P01863 P03987, IGHA P01876 P01877 P01878, IGHM P01871
# P01872, IGHD P01880 P01881, IGHE P01854 P06336, IGKC P01834 P01837, IGLC P0CG04 P0DOY2 P01843 P01844; TRGC and TRDC
# of the mouse as in IMGT. The first residue may be missing or another one: its codon is split between J and C.
_CONSTANT = {
    "TRAC": ("IQNPDPAVYQLRD", "IQNPEPAVYQLKD"),
    "TRBC": ("EDLNKVFPPEVAV", "EDLKNVFPPEVAV", "EDLRNVTPPKVSL"),
    "TRGC": ("DKQLDADVSPKPT", "DKRLDADISPKPT"),
    "TRDC": ("SQPHTKPSVFVMK", "SQPPAKPSVFIMK"),
    "IGHG": ("ASTKGPSVFPLAP", "AKTTPPSVYPLAP", "AKTTAPSVYPLAP", "ATTTAPSVYPLVP"),
    "IGHA": ("ASPTSPKVFPLSL", "ESARNPTIYPLTL"),
    "IGHM": ("GSASAPTLFPLVS", "ESQSFPNVFPLVS"),
    "IGHD": ("APTKAPDVFPIIS", "GDKKEPDMFLLSE"),
    "IGHE": ("ASTQSPSVFPLTR", "ASIRNPQLYPLKP"),
    "IGKC": ("RTVAAPSVFIFPP", "RADAAPTVSIFPP"),
    "IGLC": ("GQPKANPTVTLFP", "GQPKAAPSVTLFP", "GQPKSSPSVTLFP", "GQPKSTPTLTVFP"),
}
_CONSTANT_MISMATCHES = 0.25  # of the residues that are there
_FEW = 5  # fewer residues must agree exactly, but for the first one


def number_chains(sequences: Sequence[str], workers: int = 1) -> list[Numbering]:
    """Regions of V domains of any locus: by germline residues in 0.03 to 0.3 ms, else by numbering in 10 to 40 ms.

    A chain without a V domain, or one that ends before its CDR3, has no bounds and says why. What was numbered is kept
    in a cache on disk.

    Args:
        sequences: residues in upper case, the twenty letters and X.
        workers: native threads of the numbering.
    """
    found = {sequence: bounds_from_germlines(sequence) for sequence in dict.fromkeys(sequences)}
    left = [sequence for sequence, numbering in found.items() if numbering is None]
    found |= zip(left, number(left, workers, [_sure_locus(sequence) for sequence in left]))
    return [found[sequence] for sequence in sequences]


_Germline = TypeVar("_Germline", GermlineV, GermlineJ)


@dataclass(frozen=True)
class _Germlines:
    """V genes side by side, C104 in the last row, so that one comparison lays all of them on a sequence."""

    residues: np.ndarray  # (longest V, genes) bytes, 0 before the first residue
    lengths: np.ndarray  # (genes,)
    genes: list[GermlineV]


@dataclass(frozen=True)
class _NearestV:
    """What the germline V genes say of the residues up to a cysteine, were it C104."""

    unlike: float  # share of the residues that differ from the nearest gene
    bounds: Bounds | None  # of the regions within these residues; None where no gene fits, or near ones disagree
    j_loci: tuple[str, ...]  # whose J genes may follow
    locus: str | None  # where genes of all other loci are clearly less like it


def bounds_from_germlines(sequence_aa: str) -> Numbering | None:
    """Bounds by laying the V and J genes of man and mouse on the sequence, with no gap; None where none fits.

    A few residues may differ from germline. Where genes fit equally well and differ in their regions, where there may
    be another V domain, or where the J gene is not clear, the answer is None: number the sequence then.

    >>> from airrformer.receptors.germlines import rebuild_chain
    >>> chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
    >>> found = bounds_from_germlines("MSNQVLCCVVLCLLGANTV" + chain + "EDLKNVFPPEVAVFE")
    >>> found.locus, found.bounds["cdr1"], found.bounds["cdr3"]
    ('TRB', (45, 50), (110, 121))
    """
    places = _v_like_places(sequence_aa)
    if len(places) != 1:
        return None
    (c104, shift, v), *_ = places
    if v.bounds is None or v.bounds["fwr1"][0] + shift > _LONGEST_LEADER:
        return None
    ends = _j_ends(sequence_aa, c104, v.j_loci)
    if len(ends) != 1:
        return None
    ((f118, end, locus),) = ends
    bounds = {region: (a + shift, b + shift) for region, (a, b) in v.bounds.items()}
    return Numbering(locus, {**bounds, "cdr3": (c104 + 1, f118), "fwr4": (f118, end)}, by="germlines")


def _v_like_places(sequence: str) -> list[tuple[int, int, _NearestV]]:
    """Where V domains may be: C104, where the residues that were looked at begin, and what V genes say of these."""
    longest = len(_germlines().residues)
    places: list[tuple[int, int, _NearestV]] = []
    for found in _C104.finditer(sequence, _SHORTEST_V):
        c104 = found.start() + 2
        first = max(0, c104 + 1 - longest)
        place = (c104, first, _nearest_v(sequence[first : c104 + 1]))
        if place[-1].unlike < _UNLIKE:
            if places and c104 - places[-1][0] < _SHORTEST_V:  # two cysteines of one domain
                place = min(places.pop(), place, key=lambda place: place[-1].unlike)
            places.append(place)
    return places


@lru_cache(maxsize=20_000)
def _nearest_v(residues: str) -> _NearestV:
    """Lay all V genes on residues with C104 last: as many as the longest gene has, or fewer from the chain's start.

    Chains of a repertoire share these residues unless they are mutated, which is why they are kept.
    """
    germlines, c104 = _germlines(), len(residues) - 1
    compared = np.minimum(germlines.lengths, len(residues))
    mismatches = compared - _matches(germlines, residues)
    unlike = mismatches / compared
    if unlike.min() >= _UNLIKE:
        return _NearestV(float(unlike.min()), None, (), None)
    like = [germlines.genes[i] for i in np.flatnonzero(unlike < unlike.min() + _CLOSE)]
    near = [germlines.genes[i] for i in np.flatnonzero(mismatches <= mismatches.min() + _MARGIN)]
    nearest = germlines.genes[mismatches.argmin()]
    bounds = _v_bounds(c104, nearest)
    fits = _is_near(residues, c104, nearest) and all(_v_bounds(c104, v) == bounds for v in near)
    loci = {v.allele[:3] for v in like}
    return _NearestV(
        unlike=float(unlike.min()),
        bounds=bounds if fits else None,
        j_loci=tuple(sorted({locus for v in near for locus in _j_loci(v)})),
        locus=loci.pop() if len(loci) == 1 else None,
    )


def _j_loci(v: GermlineV) -> tuple[str, ...]:
    return ("TRA", "TRD") if "DV" in v.allele else (v.allele[:3],)


def _matches(germlines: _Germlines, residues: str) -> np.ndarray:
    """(genes,) residues that each gene shares with these when both end with C104."""
    window = np.ones((len(germlines.residues), 1), np.uint8)  # 1 is no letter: before the first residue nothing matches
    window[-len(residues) :, 0] = np.frombuffer(residues.encode("ascii", "replace"), np.uint8)
    return (germlines.residues == window).view(np.uint8).sum(axis=0, dtype=np.uint8).astype(int)


def _v_bounds(c104: int, v: GermlineV) -> Bounds | None:
    """Bounds of the regions up to FWR3 when V ends with C104; None where the sequence begins after FWR1."""
    start = c104 + 1 - len(v.sequence)  # below 0: cut within the gene
    if -start >= v.bounds["fwr1"][1]:
        return None
    return {region: (max(start + a, 0), start + b) for region, (a, b) in v.bounds.items()}


def _j_ends(sequence: str, c104: int, loci: tuple[str, ...]) -> set[tuple[int, int, str]]:
    """Where J genes of the loci fit after C104: position 118, the end of FWR4, and the locus."""
    found = set()
    for motif in _J_MOTIF.finditer(sequence, c104 + 2, c104 + _LONGEST_JUNCTION):
        f118 = motif.start()
        after = sequence[f118 : f118 + _LONGEST_FWR4]
        found |= {(f118, f118 + length, locus) for length, locus in _nearest_j(after, loci)}
    return found


@lru_cache(maxsize=20_000)
def _nearest_j(residues: str, loci: tuple[str, ...]) -> set[tuple[int, str]]:
    """How many of the residues are FWR4, by the J genes that fit best, and their locus; empty where none fits."""
    genes = [
        (_mismatches(residues, j), min(len(j), len(residues)), locus) for locus in loci for j in _j_residues()[locus]
    ]
    fewest = min(genes)[0]
    return {(n, locus) for mismatches, n, locus in genes if mismatches == fewest <= _J_MISMATCHES}


@lru_cache(maxsize=1)
def _germlines() -> _Germlines:
    whole = _whole("V", germline_v, lambda v: v.bounds["fwr1"][1])
    genes = list({(v.allele[:3], v.sequence): v for v in whole}.values())  # several alleles have the same residues
    lengths = np.array([len(v.sequence) for v in genes])
    residues = np.zeros((lengths.max(), len(genes)), np.uint8)
    for i, v in enumerate(genes):
        residues[-lengths[i] :, i] = np.frombuffer(v.sequence.encode(), np.uint8)
    return _Germlines(residues, lengths, genes)


@lru_cache(maxsize=1)
def _j_residues() -> dict[str, list[str]]:
    """Residues of the J genes of each locus from position 118 on."""
    residues: dict[str, set[str]] = defaultdict(set)
    for j in _whole("J", germline_j, lambda j: len(j.tail)):
        residues[j.allele[:3]].add(j.anchor + j.tail)
    return {locus: sorted(found) for locus, found in residues.items()}


def _whole(
    segment: str, germline: Callable[[str, str], _Germline], length: Callable[[_Germline], int]
) -> Iterator[_Germline]:
    """Germline residues of all alleles but those of which the first or the last residues are not known."""
    genes: dict[tuple[str, str], list[_Germline]] = defaultdict(list)
    for species, families in _FAMILIES.items():
        for allele in sorted(a for family in families for a in family.query(species=species, precision="allele")):
            if allele[3] == segment:
                try:
                    found = germline(allele, species)
                except ValueError:
                    continue
                if found.allele == allele:  # not those of another allele in its place
                    genes[species, allele.split("*")[0]].append(found)
    for alleles in genes.values():
        longest = max(map(length, alleles))
        yield from (found for found in alleles if length(found) == longest)


def _sure_locus(sequence: str) -> str | None:
    """The locus of a sequence that is surely one V domain of it, and no more; None where this is not sure."""
    places = _v_like_places(sequence)
    if len(places) != 1 or len(sequence) > _LONGEST_DOMAIN:
        return None
    v = places[0][-1]
    return v.locus if v.unlike < _SURE else None


def bounds_from_genes(
    sequence_aa: str, v_call: str, junction_aa: str | None, j_call: str, species: str = "homosapiens"
) -> Bounds | None:
    """Bounds by laying germline V and J on the residues on both sides of the junction, with no gap; exact and fast.

    Without a junction (None) it is what lies between a cysteine where V ends and an F or W where J begins. Returns None
    where there is no such place or more than one, a gene has no germline residues, or the residues differ from the
    germline by more than single changes: number the sequence then. Residues before the V gene (a leader) or after
    the J gene (a constant region) are in no region; a sequence that starts within FWR1 or stops within FWR4 is fine.

    >>> from airrformer.receptors.germlines import rebuild_chain
    >>> chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01")
    >>> bounds_from_genes(chain.sequence_aa, "TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01") == chain.bounds
    True
    >>> bounds_from_genes(chain.sequence_aa, "TRBV19", None, "TRBJ2-7") == chain.bounds
    True
    """
    try:
        v, j = germline_v(v_call, species), germline_j(j_call, species)
    except ValueError:
        return None
    if junction_aa is None:
        junctions = _junctions(sequence_aa, v, j)
    else:
        starts = _occurrences(sequence_aa, junction_aa) if len(junction_aa) >= 3 else []
        junctions = [(at, at + len(junction_aa)) for at in starts if _is_near(sequence_aa, at, v)]
    laid = [bounds for start, end in junctions if (bounds := _lay(sequence_aa, start, end, v, j))]
    return laid[0] if len(laid) == 1 else None


def _junctions(sequence: str, v: GermlineV, j: GermlineJ) -> list[tuple[int, int]]:
    """Where a junction may be: after V and before J, with C104 and the anchor of the J gene."""
    return [
        (start, anchor + 1)
        for start in _occurrences(sequence, "C")
        if _is_near(sequence, start, v)
        for anchor in range(start + 2, min(start + _LONGEST_JUNCTION, len(sequence) - _SHORTEST_TAIL))
        if sequence[anchor] == j.anchor
    ]


def _occurrences(sequence: str, part: str) -> list[int]:
    starts = []
    at = sequence.find(part)
    while at >= 0:
        starts.append(at)
        at = sequence.find(part, at + 1)
    return starts


def _is_near(sequence: str, c104: int, v: GermlineV) -> bool:
    """Whether the residues before C104 are those of V but for some changes, of which few are at the start."""
    start = c104 + 1 - len(v.sequence)  # where the V gene begins in the sequence; below 0: cut within the gene
    residues, germline = sequence[max(start, 0) : c104], v.sequence[max(-start, 0) : -1]
    return (
        _mismatches(residues, germline) <= _V_MISMATCHES
        and _mismatches(residues[:_FIRST], germline) <= _FIRST_MISMATCHES
    )


def _lay(sequence: str, start: int, end: int, v: GermlineV, j: GermlineJ) -> Bounds | None:
    """Bounds with the junction at ``start:end``, or None where the sequence begins after FWR1 or J does not fit."""
    bounds, after = _v_bounds(start, v), sequence[end : end + len(j.tail)]
    if bounds is None or _mismatches(after, j.tail) > _J_MISMATCHES:
        return None
    return {**bounds, "cdr3": (start + 1, end - 1), "fwr4": (end - 1, end + len(after))}


def _mismatches(residues: str, germline: str) -> int:
    """Residues that differ, over the length of the shorter one."""
    return sum(map(ne, residues, germline))


def junction_of(sequence_aa: str, bounds: Bounds) -> str | None:
    """The junction (CDR3 with both anchors) that the bounds give, or None where an anchor is not in the sequence."""
    if not {"fwr3", "cdr3", "fwr4"} <= bounds.keys():
        return None
    start, end = bounds["cdr3"]
    return sequence_aa[start - 1 : end + 1]


def bare_cdr3(sequence_aa: str, anchors: bool) -> Bounds:
    """Bounds of a record that is a junction (``anchors``) or a CDR3 and nothing more.

    Only the CDR3 is given: one residue of FWR3 and one of FWR4 are no regions to pool over.
    """
    return {"cdr3": (1, len(sequence_aa) - 1) if anchors else (0, len(sequence_aa))}


@dataclass(frozen=True)
class Outside:
    """What lies outside the V domain of a sequence.

    Attributes:
        before, after: the residues; empty where there are none.
        leader: whether ``before`` looks like a leader: M first, 15 to 40 residues.
        constant: the constant region that ``after`` begins like, such as ``TRBC`` or ``IGHG``, else None.
    """

    before: str
    after: str
    leader: bool
    constant: str | None

    @property
    def notes(self) -> list[str]:
        """What is neither a leader nor a constant region, for a reader."""
        notes = []
        if self.before and not self.leader:
            notes.append(f"{_counted(self.before)} before FWR1, no leader: {_short(self.before)}")
        if self.after and not self.constant:
            notes.append(f"{_counted(self.after)} after FWR4, of no known region: {_short(self.after)}")
        return notes


def _counted(residues: str) -> str:
    return f"{len(residues)} residue{'s' * (len(residues) != 1)}"


def _short(residues: str) -> str:
    return residues if len(residues) <= 12 else f"{residues[:12]}..."


def outside(sequence_aa: str, bounds: Bounds, locus: str | None = None) -> Outside:
    """What stands before FWR1 and after FWR4, and whether it looks like a leader and a constant region.

    Args:
        locus: of the chain, such as ``TRB``: its constant regions come first, and fewer than five residues can be of no
            other.

    >>> bounds = {"fwr1": (20, 45), "fwr4": (131, 141)}
    >>> found = outside("M" + "L" * 19 + "A" * 121 + "EDLNKVFPPEVAVF", bounds)
    >>> found.leader, found.constant
    (True, 'TRBC')
    """
    start, end = _domain(sequence_aa, bounds)
    before, after = sequence_aa[:start], sequence_aa[end:]
    leader = before.startswith("M") and _LEADER[0] <= len(before) <= _LEADER[1]
    return Outside(before, after, leader, _constant(after, locus))


def _constant(after: str, locus: str | None) -> str | None:
    if not after:
        return None
    own = [gene for gene in _CONSTANT if gene[:3] == locus]
    others = [gene for gene in _CONSTANT if gene[:3] != locus] if len(after) >= _FEW else []
    return next((gene for gene in own + others if any(_begins_like(after, start) for start in _CONSTANT[gene])), None)


def _begins_like(after: str, start: str) -> bool:
    """Whether ``after`` begins like a constant region, which one residue may precede or lack, and some may differ."""
    if len(after) < _FEW:
        return start.startswith((after, after[1:]))
    return any(
        _mismatches(residues, first) <= min(len(residues), len(first)) * _CONSTANT_MISMATCHES
        for residues, first in ((after, start), (after[1:], start), (after, start[1:]))
    )


def cut(sequence_aa: str, bounds: Bounds) -> tuple[str, Bounds]:
    """The V domain alone, and its bounds.

    >>> cut("MKAAACCCF", {"fwr1": (2, 6), "cdr1": (6, 8)})
    ('AAACCCF', {'fwr1': (0, 4), 'cdr1': (4, 6)})
    """
    start, end = _domain(sequence_aa, bounds)
    return sequence_aa[start:end], {region: (a - start, b - start) for region, (a, b) in bounds.items()}


def _domain(sequence_aa: str, bounds: Bounds) -> tuple[int, int]:
    """Where the V domain starts and ends; a sequence that begins or stops within it has nothing on that side."""
    start = bounds["fwr1"][0] if "fwr1" in bounds else 0
    return start, bounds["fwr4"][1] if "fwr4" in bounds else len(sequence_aa)
