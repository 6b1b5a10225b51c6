"""Names of columns: AIRR's, and what the field's tools and people call the same.

They are compared without case and marks, so that ``AA. Seq. CDR3`` and ``aaSeqCDR3`` are one, and ``CDR3.alpha.aa`` and
``cdr3_alpha_aa``. For one of our names there may be several columns: the first that holds a value counts, row by row.
"""

from __future__ import annotations

import re

from airrformer.parse.fasta import FIELDS
from airrformer.receptors.tables import CHAIN_LOCI

# What `columns:` may name, for a table with one chain a row; "TRA.junction_aa" and the like where a row has several.
SHORT_CDRS = ("cdr1_aa", "cdr2_aa")
COLUMNS = (*FIELDS, "sequence_aa", "sequence", *SHORT_CDRS)
CHAIN_NAMES = tuple(CHAIN_LOCI)

Names = dict[str, tuple[str, ...]]


def plain(name: str) -> str:
    """A column's name without case and marks.

    >>> plain("AA. Seq. CDR3"), plain("v_call")
    ('aaseqcdr3', 'vcall')
    """
    return re.sub(r"[^a-z0-9]", "", name.lower().replace("α", "alpha").replace("β", "beta"))


# ------------------------------------------------------------------------------------------- one chain a row: names

AIRR: Names = {
    "receptor_id": ("receptorid",),
    "cell_id": ("cellid",),
    "sequence_id": ("sequenceid",),
    "locus": ("locus",),
    "v_call": ("vcall", "vcall10x"),
    "j_call": ("jcall", "jcall10x"),
    "c_call": ("ccall",),
    "junction_aa": ("junctionaa",),
    "cdr3_aa": ("cdr3aa", "cdr3"),
    "cdr1_aa": ("cdr1aa",),  # AIRR's cdr1 and cdr2 are nucleotides
    "cdr2_aa": ("cdr2aa",),
    "junction": ("junction",),
    "sequence_aa": ("sequenceaa", "sequencealignmentaa"),
    "sequence": ("sequence",),
    "aligned": ("sequencealignment",),
    "productive": ("productive",),
    "vj_in_frame": ("vjinframe",),
    "stop_codon": ("stopcodon",),
    "rev_comp": ("revcomp",),
    "species": ("species", "organism"),
    "umi_count": ("umicount",),
    "duplicate_count": ("duplicatecount",),
    "consensus_count": ("consensuscount",),
    "is_cell": ("iscell",),
}
# What the other tools, and people, call the same.
LONG: Names = {
    "receptor_id": (*AIRR["receptor_id"], "tcrid", "antibodyid", "clonotypeid", "therapeutic"),
    "cell_id": (*AIRR["cell_id"], "barcode", "cellbarcode", "cellindex", "tagvaluecell"),
    "sequence_id": (*AIRR["sequence_id"], "contigid", "seqid", "cloneid", "id", "name", "antibodyname"),
    "locus": (*AIRR["locus"], "chain", "chaintype", "topchains", "gene"),
    "v_call": (*AIRR["v_call"], "vgene", "vsegm", "vsegment", "vgenename", "v", "vregion", "trbv"),
    "j_call": (*AIRR["j_call"], "jgene", "jsegm", "jsegment", "jgenename", "j", "jregion", "trbj"),
    "c_call": (*AIRR["c_call"], "cgene", "c"),
    "junction_aa": AIRR["junction_aa"],
    "cdr3_aa": (*AIRR["cdr3_aa"], "cdr3aminoacid", "aminoacid", "cdr3seq", "cdr3sequence", "aaseqcdr3"),
    "cdr1_aa": AIRR["cdr1_aa"],
    "cdr2_aa": AIRR["cdr2_aa"],
    "junction": (*AIRR["junction"], "cdr3nt", "cdr3nucleotide", "cdr3rearrangement"),
    "sequence_aa": (*AIRR["sequence_aa"], "aaseq", "aasequence", "proteinsequence", "aminoacidsequence", "protein"),
    "sequence": (*AIRR["sequence"], "seq", "ntsequence", "dnasequence"),
    "aligned": AIRR["aligned"],
    "productive": (*AIRR["productive"], "functional", "isproductive"),
    "rev_comp": AIRR["rev_comp"],
    "species": AIRR["species"],
    "umi_count": (*AIRR["umi_count"], "umis", "uniquemoleculecount"),
    "duplicate_count": (*AIRR["duplicate_count"], "count", "clonecount", "clones", "templates", "dupcount"),
    "consensus_count": (*AIRR["consensus_count"], "reads", "readcount", "conscount"),
}

# ------------------------------------------------------------------------------------- several chains a row: names

_TOKENS: dict[str, tuple[str, ...]] = {
    "TRA": ("a", "alpha", "tra", "tcra", "tcralpha"),
    "TRB": ("b", "beta", "trb", "tcrb", "tcrbeta"),
    "TRG": ("g", "gamma", "trg", "tcrg", "tcrgamma"),
    "TRD": ("d", "delta", "trd", "tcrd", "tcrdelta"),
    "heavy": ("h", "heavy", "vh", "igh", "hc", "heavychain"),
    "light": ("l", "light", "vl", "lc", "lightchain"),
}
_GENE = ("{t}{s}gene", "{s}{t}gene", "{s}gene{t}", "{s}call{t}", "{t}{s}call", "{s}{t}", "{t}{s}")
_WIDE_PATTERNS: dict[str, tuple[str, ...]] = {
    "v_call": tuple(pattern.replace("{s}", "v") for pattern in _GENE),
    "j_call": tuple(pattern.replace("{s}", "j") for pattern in _GENE),
    "c_call": ("{t}c", "ccall{t}", "{t}ccall"),
    "junction_aa": ("cdr3{t}extended", "junctionaa{t}", "{t}junctionaa"),
    "cdr3_aa": ("cdr3{t}aa", "cdr3{t}", "cdr3aa{t}", "{t}cdr3aa", "{t}cdr3", "cdr{t}3aa", "cdr{t}3", "{t}3"),
    "cdr1_aa": ("cdr1{t}aa", "cdr1aa{t}", "{t}cdr1aa", "cdr{t}1aa"),
    "cdr2_aa": ("cdr2{t}aa", "cdr2aa{t}", "{t}cdr2aa", "cdr{t}2aa"),
    "sequence_aa": ("sequencealignmentaa{t}", "sequenceaa{t}", "{t}sequenceaa", "{t}aaseq", "{t}proteinsequence",
                    "{t}aa", "{t}sequence", "sequence{t}", "{t}seq", "{t}domain", "{t}"),
    "sequence_id": ("sequenceid{t}",),
    "locus": ("locus{t}",),
    "productive": ("productive{t}",),
    "umi_count": ("umicount{t}",),
    "duplicate_count": ("duplicatecount{t}", "redundancy{t}"),
}  # fmt: skip


def _wide_names(chain: str) -> Names:
    names: dict[str, list[str]] = {}
    for ours, patterns in _WIDE_PATTERNS.items():
        for pattern in patterns:
            for token in _TOKENS[chain]:
                # "a" alone is no column of residues, and "vh" is the heavy chain, not the V gene of "h"
                alone = pattern.replace("{t}", "") in ("", "aa", "sequence", "seq", "domain")
                if len(token) == 1 and (alone or (chain in ("heavy", "light") and pattern in ("v{t}", "{t}v", "{t}c"))):
                    continue
                names.setdefault(ours, []).append(pattern.replace("{t}", token))
    names["sequence_aa"] += ["vhorvhh"] * (chain == "heavy")  # CoV-AbDab
    return {ours: tuple(found) for ours, found in names.items()}


WIDE: dict[str, Names] = {chain: _wide_names(chain) for chain in CHAIN_NAMES}
RESIDUES = ("junction_aa", "cdr3_aa", "sequence_aa", "sequence", "junction", "aligned")
# All names that say what a column holds.
KNOWN = {name for names in (LONG, *WIDE.values()) for theirs in names.values() for name in theirs}
