"""Where the IMGT regions of a V domain lie: from its genes and junction where that is exact, else by numbering.

Bounds count residues of the given sequence from 0, half open: ``sequence[start:end]`` is the region, residue for
residue. FWR3 ends with C104, CDR3 has no anchors, FWR4 starts with F118 or W118. A leader before the domain and a
constant region after it belong to no region.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import anarcism

from airrformer.receptors.genes import Bounds, GermlineJ, GermlineV, germline_j, germline_v
from airrformer.receptors.tables import REGIONS

log = logging.getLogger(__name__)

_CHUNK = 2000  # sequences between two lines of progress
_LOCUS = {"H": "IGH", "K": "IGK", "L": "IGL", "A": "TRA", "B": "TRB", "G": "TRG", "D": "TRD"}
_REGION = {"FR1": "fwr1", "CDR1": "cdr1", "FR2": "fwr2", "CDR2": "cdr2", "FR3": "fwr3", "CDR3": "cdr3", "FR4": "fwr4"}
assert tuple(_REGION.values()) == REGIONS

# The profiles of these two species are tried first: that of rhesus kappa chains is shifted by one residue (its C104
# lands on 105), and wins on some human chains by a hair. The other species follow where these find no domain.
_SPECIES = ["human", "mouse"]
# Within a CDR3 of about 30 residues or more the domain that is found may end; the J motif then says where FWR4 begins.
_J_MOTIF = re.compile(r"[FW]G.G")
_SHORTEST_FWR4 = 6
_FWR4_LENGTH = {"H": 11}  # positions 118 to 128; 118 to 127 in all other chains

# How far residues may be from germline and still be that gene, without an insertion: alleles and single errors.
# What differs more (antibodies with many mutations) is numbered instead.
_V_MISMATCHES = 5
_J_MISMATCHES = 2


@dataclass(frozen=True)
class Numbering:
    """The first V domain of a sequence. Regions that the sequence lacks are not in ``bounds``."""

    locus: str
    bounds: Bounds
    domains: int = 1


def number_chains(sequences: Sequence[str], workers: int = 1) -> list[Numbering | None]:
    """Number V domains of any locus with ``anarcism`` (IMGT); None where there is no domain with a CDR3.

    About 20 to 40 chains a second and worker; a sequence that occurs several times is numbered once.

    Args:
        sequences: residues in upper case, the twenty letters and X.
        workers: native threads.
    """
    unique = list(dict.fromkeys(sequences))
    found: dict[str, Numbering | None] = {}
    for start in range(0, len(unique), _CHUNK):
        chunk = unique[start : start + _CHUNK]
        found.update(zip(chunk, _number(chunk, workers, _SPECIES)))
        if len(unique) > _CHUNK:
            log.info("numbered %d of %d chains", len(found), len(unique))
    left = [sequence for sequence in unique if found[sequence] is None]
    found.update(zip(left, _number(left, workers, None)))
    return [found[sequence] for sequence in sequences]


def _number(sequences: list[str], workers: int, species: list[str] | None) -> Iterable[Numbering | None]:
    named = [(str(i), sequence) for i, sequence in enumerate(sequences)]
    try:
        results = anarcism.number_sequences(named, workers=max(1, workers), allowed_species=species)
    except anarcism.AnarcismError:
        # One sequence that it refuses (too long, an odd letter) must not take the others with it.
        results = [_number_alone(sequence, species) for sequence in sequences]
    return map(_first_domain, sequences, results)


def _number_alone(sequence: str, species: list[str] | None) -> anarcism.SequenceResult | None:
    try:
        return anarcism.number_sequence(sequence, allowed_species=species)
    except anarcism.AnarcismError:
        return None


def _first_domain(sequence: str, result: anarcism.SequenceResult | None) -> Numbering | None:
    if result is None or not result.domains:
        return None
    domain = result.domains[0]
    bounds: Bounds = {}
    for residue in domain.numbering:
        region, i = _REGION[residue.region], residue.sequence_index
        bounds[region] = (bounds.get(region, (i, i))[0], i + 1)
    if "cdr3" not in bounds:
        return None
    start, stop = bounds["cdr3"][0], max(end for _, end in bounds.values())
    first, last = bounds.get("fwr4", (stop, stop))
    cut_short = last - first < _SHORTEST_FWR4 and stop < len(sequence)
    if cut_short and (motif := _J_MOTIF.search(sequence, start)):
        end = motif.start()
        bounds["cdr3"] = (start, end)
        bounds["fwr4"] = (end, min(end + _FWR4_LENGTH.get(domain.chain_type, 10), len(sequence)))
    return Numbering(_LOCUS[domain.chain_type], bounds, len(result.domains))


def bounds_from_genes(
    sequence_aa: str, v_call: str, junction_aa: str, j_call: str, species: str = "homosapiens"
) -> Bounds | None:
    """Bounds by laying germline V and J against the residues on both sides of the junction; exact and fast.

    Returns None where the junction does not occur, a gene has no germline residues, or the residues differ from the
    germline by more than single changes: number the sequence then. Residues before the V gene (a leader) or after
    the J gene (a constant region) are in no region; a sequence that starts within FWR1 or stops within FWR4 is fine.

    >>> from airrformer.receptors.genes import rebuild_chain
    >>> chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01")
    >>> bounds_from_genes(chain.sequence_aa, "TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01") == chain.bounds
    True
    """
    if len(junction_aa) < 3:
        return None
    try:
        v, j = germline_v(v_call, species), germline_j(j_call, species)
    except ValueError:
        return None
    at = sequence_aa.find(junction_aa)
    while at >= 0:
        bounds = _lay(sequence_aa, at, at + len(junction_aa), v, j)
        if bounds:
            return bounds
        at = sequence_aa.find(junction_aa, at + 1)
    return None


def _lay(sequence: str, start: int, end: int, v: GermlineV, j: GermlineJ) -> Bounds | None:
    """Bounds if germline fits with the junction at ``start:end``; V is compared up to the residue before C104."""
    v_start = start + 1 - len(v.sequence)  # where the V gene begins in the sequence; below 0: cut within the gene
    if -v_start >= v.bounds["fwr1"][1]:
        return None
    before, germline = sequence[max(v_start, 0) : start], v.sequence[max(-v_start, 0) : -1]
    after = sequence[end : end + len(j.tail)]
    if _mismatches(before, germline) > _V_MISMATCHES or _mismatches(after, j.tail) > _J_MISMATCHES:
        return None
    bounds = {region: (max(v_start + a, 0), v_start + b) for region, (a, b) in v.bounds.items()}
    return {**bounds, "cdr3": (start + 1, end - 1), "fwr4": (end - 1, end + len(after))}


def _mismatches(residues: str, germline: str) -> int:
    return sum(a != b for a, b in zip(residues, germline))


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
