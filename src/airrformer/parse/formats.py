"""Tables of the field's tools as data: how each is told by its header, and which of its columns are ours.

A format is a row of ``FORMATS``. Names of columns are compared without case and marks, so that ``AA. Seq. CDR3`` and
``aaSeqCDR3`` are one, and ``CDR3.alpha.aa`` and ``cdr3_alpha_aa``. For one of our names there may be several columns:
the first that holds a value counts, row by row.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache

from airrformer.errors import UserError
from airrformer.parse.fasta import FIELDS
from airrformer.parse.files import is_missing
from airrformer.parse.table import Table, near

LONG_TABLE, WIDE_TABLE = "table", "table with a column for each chain"
# What `columns:` may name, for a table with one chain a row; "TRA.junction_aa" and the like where a row has several.
COLUMNS = (*FIELDS, "sequence_aa", "sequence")
CHAIN_NAMES = ("TRA", "TRB", "TRG", "TRD", "heavy", "light")

Fields = dict[str, str]
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
    "cdr3_aa": ("cdr3aa",),
    "junction": ("junction",),
    "cdr3": ("cdr3",),
    "sequence_aa": ("sequenceaa", "sequencealignmentaa"),
    "sequence": ("sequence",),
    "aligned": ("sequencealignment",),
    "productive": ("productive",),
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
    "cell_id": (*AIRR["cell_id"], "barcode", "cellbarcode", "cellindex", "tagvaluecell", "cell"),
    "sequence_id": (*AIRR["sequence_id"], "contigid", "seqid", "cloneid", "id", "name", "antibodyname"),
    "locus": (*AIRR["locus"], "chain", "chaintype", "topchains", "gene"),
    "v_call": (*AIRR["v_call"], "vgene", "vsegm", "vsegment", "vgenename", "v", "vregion", "trbv"),
    "j_call": (*AIRR["j_call"], "jgene", "jsegm", "jsegment", "jgenename", "j", "jregion", "trbj"),
    "c_call": (*AIRR["c_call"], "cgene", "c"),
    "junction_aa": AIRR["junction_aa"],
    "cdr3_aa": (*AIRR["cdr3_aa"], "cdr3", "cdr3aminoacid", "aminoacid", "cdr3seq", "cdr3sequence", "aaseqcdr3"),
    "junction": (*AIRR["junction"], "cdr3nt", "cdr3nucleotide", "cdr3rearrangement"),
    "sequence_aa": (*AIRR["sequence_aa"], "aaseq", "aasequence", "proteinsequence", "aminoacidsequence", "protein"),
    "sequence": (*AIRR["sequence"], "seq", "ntsequence", "dnasequence"),
    "aligned": AIRR["aligned"],
    "productive": (*AIRR["productive"], "functional", "isproductive"),
    "rev_comp": AIRR["rev_comp"],
    "species": AIRR["species"],
    "umi_count": (*AIRR["umi_count"], "umis", "umicount", "uniquemoleculecount"),
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
_GENE = ("{t}{s}gene", "{s}{t}gene", "{s}gene{t}", "{s}call{t}", "{t}{s}call", "{s}{t}", "{t}{s}", "{t}{s}call")
_WIDE_PATTERNS: dict[str, tuple[str, ...]] = {
    "v_call": tuple(pattern.replace("{s}", "v") for pattern in _GENE),
    "j_call": tuple(pattern.replace("{s}", "j") for pattern in _GENE),
    "c_call": ("{t}c", "ccall{t}", "{t}ccall"),
    "junction_aa": ("cdr3{t}extended", "junctionaa{t}", "{t}junctionaa"),
    "cdr3_aa": ("cdr3{t}aa", "cdr3{t}", "cdr3aa{t}", "{t}cdr3aa", "{t}cdr3", "cdr{t}3aa", "cdr{t}3", "{t}3"),
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
RESIDUES = ("junction_aa", "cdr3_aa", "sequence_aa", "sequence", "junction", "cdr3", "aligned")


# --------------------------------------------------------------------------------------------- what some tools mean


def _regions(parts: tuple[str, ...]) -> Callable[[Fields], Fields]:
    """The V domain from the columns of its regions, where all are there."""

    def adapt(fields: Fields) -> Fields:
        pieces = [fields.pop(part, None) for part in parts]
        if all(pieces) and "sequence_aa" not in fields:
            fields["sequence_aa"] = "".join(pieces)  # type: ignore[arg-type]
        return fields

    return adapt


_CELL_RANGER = ("_fwr1", "_cdr1", "_fwr2", "_cdr2", "_fwr3", "junction_aa", "_fwr4")


def _cell_ranger(fields: Fields) -> Fields:
    junction = fields.get("junction_aa")
    fields = _regions(_CELL_RANGER)(fields)
    return fields | {"junction_aa": junction} if junction else fields


def _mixcr(fields: Fields) -> Fields:
    """A cell's barcode may stand in three columns, the chain in those of its regions."""
    barcode = [fields.pop(f"_cell{k}") for k in (1, 2, 3) if f"_cell{k}" in fields]
    if barcode:
        fields["cell_id"] = "-".join(barcode)
    junction = fields.get("junction_aa")
    fields = _regions(("_fr1", "_cdr1", "_fr2", "_cdr2", "_fr3", "junction_aa", "_fr4"))(fields)
    return fields | {"junction_aa": junction} if junction else fields


def _immunoseq(fields: Fields) -> Fields:
    """The frame tells whether it is productive; a gene that is not resolved is told by its ties, else its family."""
    frame = fields.pop("_frame", "").lower()
    fields["productive"] = {"in": "true", "out": "false", "stop": "false"}.get(frame, fields.get("productive", ""))
    for segment in ("v", "j"):
        calls = [fields.pop(f"_{segment}{kind}", "") for kind in ("", "_gene", "_ties", "_family")]
        fields[f"{segment}_call"] = next((call for call in calls if "-" in call), next(filter(None, calls), ""))
    identity = fields.pop("_identity", "").split("+")
    if len(identity) == 3:
        fields = dict(zip(("junction_aa", "v_call", "j_call"), identity)) | {k: v for k, v in fields.items() if v}
    return {name: value for name, value in fields.items() if value}


def _vdjdb(fields: Fields) -> list[Fields]:
    """A row stands for each of its complexes (the slim table lists several); complex 0 is none: no pair."""
    complexes = [name for name in fields.pop("_complex", "").split(",") if name.strip() not in ("", "0")]
    return [{**fields, "receptor_id": name.strip()} for name in complexes] or [fields]


def _cell_ranger_clonotypes(fields: Fields) -> list[Fields]:
    chains = fields.pop("_chains", "")
    found = [part.partition(":") for part in chains.split(";") if ":" in part]
    return [{**fields, "locus": locus, "junction_aa": junction} for locus, _, junction in found] or [fields]


_TRUST4 = ("v_call", "", "j_call", "c_call", "junction", "junction_aa", "consensus_count")


def _trust4_cells(fields: Fields) -> list[Fields]:
    """A chain is ``V,D,J,C,cdr3_nt,cdr3_aa,reads,...``; further ones of a cell are parted by ';'."""
    texts = [text for k in range(4) for text in fields.pop(f"_{k}", "*").split(";") if text.strip() != "*"]
    chains = [{k: v for k, v in zip(_TRUST4, text.split(",")) if k and v.strip() not in ("*", "")} for text in texts]
    return [{**fields, **one} for one in chains] or [fields]


def _semicolons(fields: Fields) -> list[Fields]:
    """Paired tables of immunarch: the chains of a cell stand in one cell of the table, parted by ';'."""
    parts = {name: value.split(";") for name, value in fields.items()}
    count = len(parts.get("junction_aa", [""]))
    if count == 1:
        return [fields]
    columns = {name: values if len(values) == count else [fields[name]] * count for name, values in parts.items()}
    return [{name: value.strip() for name, value in zip(columns, row) if value} for row in zip(*columns.values())]


_TAXA = {"9606": "human", "10090": "mouse", "9544": "rhesus monkey", "10116": "rat", "9913": "cow"}


def _iedb(fields: Fields) -> Fields:
    """The calculated CDR3 is without anchors; a curated one is as its paper wrote it."""
    if "species" in fields:
        taxon = fields["species"].rpartition("_")[2]
        fields["species"] = _TAXA.get(taxon, fields["species"])
    curated = fields.pop("_curated", "").upper()
    if curated and "cdr3_aa" not in fields:
        fields["junction_aa" if re.fullmatch(r"C.+[FW]", curated) else "cdr3_aa"] = curated
    return fields


# ------------------------------------------------------------------------------------------------------- the formats


@dataclass(frozen=True)
class Format:
    """One kind of table.

    Attributes:
        told_by: plain names of columns; all of one of these sets must be there.
        chains: for each chain that a row holds, our names -> plain names of columns.
        fixed: for each chain, fields that are the same in all rows.
        adapt: fields of a row as the tool means them -> as we do.
        split: fields of a row that holds several chains in one column -> fields of each.
        rows_may_lack_id: a row without the receptor's id is a receptor of its own.
    """

    name: str
    told_by: tuple[frozenset[str], ...]
    chains: tuple[Names, ...]
    fixed: tuple[Fields, ...] = ()
    adapt: Callable[[Fields], Fields] | None = None
    split: Callable[[Fields], list[Fields]] | None = None
    rows_may_lack_id: bool = False


def _all(*names: str) -> frozenset[str]:
    return frozenset(names)


FORMATS: tuple[Format, ...] = (
    Format(
        "10x clonotypes",
        (_all("clonotypeid", "cdr3saa"),),
        ({"receptor_id": ("clonotypeid",), "_chains": ("cdr3saa",)},),
        split=_cell_ranger_clonotypes,
    ),
    Format(
        "10x contig annotations",
        (_all("barcode", "contigid", "cdr3"), _all("clonotypeid", "consensusid", "cdr3")),
        (
            {
                "cell_id": ("barcode",),
                "receptor_id": ("clonotypeid",),
                "sequence_id": ("contigid", "consensusid"),
                "locus": ("chain",),
                "v_call": ("vgene",),
                "j_call": ("jgene",),
                "c_call": ("cgene",),
                "junction_aa": ("cdr3",),
                "junction": ("cdr3nt",),
                "productive": ("productive",),
                "umi_count": ("umis",),
                "consensus_count": ("reads",),
                "is_cell": ("iscell",),
                "high_confidence": ("highconfidence",),
                "_fwr1": ("fwr1",),
                "_cdr1": ("cdr1",),
                "_fwr2": ("fwr2",),
                "_cdr2": ("cdr2",),
                "_fwr3": ("fwr3",),
                "_fwr4": ("fwr4",),
            },
        ),
        adapt=_cell_ranger,
    ),
    Format(
        "VDJdb",
        (_all("complexid", "gene", "cdr3"),),
        (
            {
                "_complex": ("complexid",),
                "locus": ("gene",),
                "junction_aa": ("cdr3",),
                "v_call": ("v", "vsegm"),
                "j_call": ("j", "jsegm"),
                "species": ("species",),
            },
        ),
        split=_vdjdb,
        rows_may_lack_id=True,
    ),
    Format(
        "immunoSEQ",
        (
            _all("aminoacid", "frametype"),
            _all("aminoacid", "vresolved"),
            _all("aminoacid", "sequencestatus"),
            _all("cdr3aminoacid", "frametype"),
            _all("tcrbioidentity"),
        ),
        (
            {
                "sequence_id": ("sequenceid",),
                "junction_aa": ("aminoacid", "cdr3aminoacid"),
                "_v": ("vresolved", "vmaxresolved"),
                "_v_gene": ("vgene", "vgenename"),
                "_v_ties": ("vgeneties", "vgenenameties"),
                "_v_family": ("vfamily", "vfamilyname"),
                "_j": ("jresolved", "jmaxresolved"),
                "_j_gene": ("jgene", "jgenename"),
                "_j_ties": ("jgeneties", "jgenenameties"),
                "_j_family": ("jfamily", "jfamilyname"),
                "locus": ("locus",),
                "duplicate_count": ("templates", "seqreads", "counttemplatesreads", "counttemplates", "count"),
                "consensus_count": ("reads", "countreads"),
                "_frame": ("frametype", "sequencestatus"),
                "_identity": ("bioidentity", "tcrbioidentity"),
            },
        ),
        adapt=_immunoseq,
    ),
    Format(
        "MiXCR",
        tuple(
            _all("aaseqcdr3", hits)
            for hits in ("allvhitswithscore", "allvhits", "bestvhit", "bestvgene", "vhit", "vhits", "vgene")
        ),
        (
            {
                "cell_id": ("tagvaluecell", "cellid"),
                "_cell1": ("tagvaluecell1",),
                "_cell2": ("tagvaluecell2",),
                "_cell3": ("tagvaluecell3",),
                "sequence_id": ("cloneid", "readid"),
                "locus": ("topchains", "chains"),
                "v_call": ("allvhitswithscore", "allvhits", "bestvhit", "bestvgene", "vhit", "vhits", "vgene"),
                "j_call": ("alljhitswithscore", "alljhits", "bestjhit", "bestjgene", "jhit", "jhits", "jgene"),
                "c_call": ("allchitswithscore", "allchits", "bestchit", "bestcgene", "chit"),
                "junction_aa": ("aaseqcdr3",),
                "junction": ("nseqcdr3",),
                "sequence_aa": ("aaseqvdjregion", "aaseqimputedvdjregion"),
                "productive": ("isproductive", "isproductivecdr3"),
                "umi_count": ("uniquemoleculecount", "uniqueumicount", "uniquetagcountmolecule"),
                "duplicate_count": ("clonecount", "readcount"),
                "_fr1": ("aaseqfr1",),
                "_cdr1": ("aaseqcdr1",),
                "_fr2": ("aaseqfr2",),
                "_cdr2": ("aaseqcdr2",),
                "_fr3": ("aaseqfr3",),
                "_fr4": ("aaseqfr4",),
            },
        ),
        adapt=_mixcr,
    ),
    Format(
        "immunarch",
        (_all("cdr3aa", "vname", "jname"),),
        (
            {
                "cell_id": ("barcode",),
                "locus": ("chain",),
                "v_call": ("vname",),
                "j_call": ("jname",),
                "junction_aa": ("cdr3aa",),
                "junction": ("cdr3nt",),
                "duplicate_count": ("clones",),
            },
        ),
        split=_semicolons,
    ),
    Format(
        "TRUST4 report",
        (_all("cdr3aa", "cdr3nt", "v", "j", "cid"),),
        (
            {
                "sequence_id": ("cid",),
                "v_call": ("v",),
                "j_call": ("j",),
                "c_call": ("c",),
                "junction_aa": ("cdr3aa",),
                "duplicate_count": ("count",),
            },
        ),
    ),
    Format(
        "IMGT/HighV-QUEST summary",
        (_all("sequenceid", "vgeneandallele", "aajunction"),),
        (
            {
                "sequence_id": ("sequenceid",),
                "v_call": ("vgeneandallele",),
                "j_call": ("jgeneandallele",),
                "junction_aa": ("aajunction",),
                "sequence": ("sequence",),
                "productive": ("vdomainfunctionality", "functionality"),
            },
        ),
    ),
    Format(
        "VDJtools",
        (_all("cdr3aa", "cdr3nt", "v", "j"),),
        (
            {
                "v_call": ("v",),
                "j_call": ("j",),
                "c_call": ("c",),
                "junction_aa": ("cdr3aa",),
                "junction": ("cdr3nt",),
                "duplicate_count": ("count",),
            },
        ),
    ),
    Format(
        "TRUST4 cells",
        (_all("barcode", "chain1", "chain2", "secondarychain1"),),
        (
            {
                "cell_id": ("barcode",),
                "_0": ("chain1",),
                "_1": ("chain2",),
                "_2": ("secondarychain1",),
                "_3": ("secondarychain2",),
            },
        ),
        split=_trust4_cells,
    ),
    Format(
        "BD Rhapsody, one cell a row",
        (
            _all("cellindex", "tcrbetadeltacdr3translationdominant"),
            _all("cellindex", "bcrheavycdr3translationdominant"),
        ),
        tuple(
            {
                "cell_id": ("cellindex",),
                "v_call": (f"{kind}vgenedominant",),
                "j_call": (f"{kind}jgenedominant",),
                "c_call": (f"{kind}cgenedominant",),
                "cdr3_aa": (f"{kind}cdr3translationdominant",),
                "umi_count": (f"{kind}moleculecount",),
                "consensus_count": (f"{kind}readcount",),
            }
            for kind in ("tcralphagamma", "tcrbetadelta", "bcrheavy", "bcrlight")
        ),
    ),
    Format(
        "BD Rhapsody contigs",
        (_all("cellindex", "chaintype", "cdr3translation"), _all("cellindex", "chaintype", "cdr3translationdominant")),
        (
            {
                "cell_id": ("cellindex",),
                "sequence_id": ("sequenceid", "contigid"),
                "locus": ("chaintype",),
                "v_call": ("vgene", "vgenedominant"),
                "j_call": ("jgene", "jgenedominant"),
                "c_call": ("cgene", "cgenedominant"),
                "cdr3_aa": ("cdr3translation", "cdr3translationdominant"),
                "sequence_aa": ("vdjtranslationtrimmed",),
                "is_cell": ("putative", "putativecell"),
                "productive": ("productive",),
                "umi_count": ("moleculecount",),
                "consensus_count": ("readcount",),
            },
        ),
    ),
    Format(
        "IEDB receptor export",
        (_all("chain1cdr3curated", "chain2cdr3curated"), _all("chain1cdr3calculated", "chain2cdr3calculated")),
        tuple(
            {
                "receptor_id": ("receptoriedbreceptorid", "receptorid", "receptorreceptorid"),
                "locus": (f"chain{k}type",),
                "species": (f"chain{k}organismiri", f"chain{k}species"),
                "v_call": (f"chain{k}calculatedvgene", f"chain{k}curatedvgene", f"calculatedchain{k}vgene",
                           f"curatedchain{k}vgene"),
                "j_call": (f"chain{k}calculatedjgene", f"chain{k}curatedjgene", f"calculatedchain{k}jgene",
                           f"curatedchain{k}jgene"),
                "cdr3_aa": (f"chain{k}cdr3calculated",),
                "_curated": (f"chain{k}cdr3curated",),
                "sequence_aa": (f"chain{k}proteinsequence", f"chain{k}fullsequence"),
            }
            for k in (1, 2)
        ),
        adapt=_iedb,
    ),
    Format(
        "Change-O",
        (_all("sequenceid", "sequenceinput", "vcall"), _all("sequenceid", "sequenceimgt", "functional")),
        (
            {
                **AIRR,
                "cell_id": ("cell",),
                "sequence": ("sequenceinput",),
                "aligned": ("sequenceimgt", "sequencevdj"),
                "productive": ("functional",),
                "rev_comp": ("revcomp",),
                "umi_count": ("umicount",),
                "duplicate_count": ("dupcount",),
                "consensus_count": ("conscount",),
            },
        ),
    ),
    Format(
        "OAS data unit, paired",
        (_all("sequencealignmentaaheavy", "sequencealignmentaalight"),),
        tuple(
            {ours: tuple(f"{name}{chain}" for name in names) for ours, names in AIRR.items() if ours != "sequence"}
            | {"duplicate_count": (f"redundancy{chain}",)}
            for chain in ("heavy", "light")
        ),
    ),
    Format(
        "OAS data unit",
        (_all("sequencealignmentaa", "anarcinumbering"), _all("sequencealignmentaa", "redundancy")),
        ({**{k: v for k, v in AIRR.items() if k != "sequence"}, "duplicate_count": ("redundancy",)},),
    ),
    Format(
        "AIRR Rearrangement",
        (
            _all("vcall", "jcall", "junctionaa"),
            _all("vcall", "jcall", "sequence"),
            _all("vcall", "jcall", "cdr3aa", "sequenceid"),
            _all("sequenceid", "vcall"),
            _all("cellid", "vcall"),
        ),
        ({**AIRR, **{name: LONG[name] for name in ("receptor_id", "cell_id", "sequence_id")}},),
    ),
)  # fmt: skip


# ---------------------------------------------------------------------------------------------- without a header

_SHORTEST, _SHORT_WORD = 4, 12  # letters
_LIKE_RESIDUES = re.compile(r"[ACDEFGHIKLMNPQRSTVWYXBZJUO*_.~#\s-]+", re.IGNORECASE)
_GENE_NAME = re.compile(r"(?:TR|IG)[ABGDHKL]([VJ])[\w/.*-]+", re.IGNORECASE)
_NUCLEOTIDES = re.compile(r"[ACGTN]{9,}", re.IGNORECASE)
_JUNCTION = re.compile(r"C[ACDEFGHIKLMNPQRSTVWY]{2,40}[FWC]|C[ACDEFGHIKLMNPQRSTVWY*_]{2,40}")
KNOWN = {name for names in (LONG, *WIDE.values()) for theirs in names.values() for name in theirs}


def with_header(table: Table) -> Table | None:
    """A table whose first line is a record already, as OLGA writes, with the header that it lacks; None for others.

    Its columns (junction, junction_aa, V gene, J gene, some or all) are told by what is in them.
    """
    if any(plain(cell) in KNOWN for cell in table.header):
        return None
    names: list[str] = []
    for cell in table.header:
        gene = _GENE_NAME.fullmatch(cell)
        if gene:
            name = f"{gene.group(1).lower()}_call"
        elif _NUCLEOTIDES.fullmatch(cell):
            name = "junction"
        elif _JUNCTION.fullmatch(cell):
            name = "junction_aa"
        else:
            name = ""
        names.append("" if name in names else name)
    if not {"junction", "junction_aa"} & set(names) or len(list(filter(None, names))) < 2:
        return None
    rows = itertools.chain([(1, table.header)], table.rows)
    note = f"{table.path}: the file has no header; its columns are told by what is in them, as OLGA writes them"
    return Table(table.path, names, rows, table.metadata, [*table.notes, note])


# ----------------------------------------------------------------------------------------- a table under our names


@dataclass(frozen=True)
class ChainColumns:
    """Where a row holds one chain: our name -> positions of columns, the first with a value counts."""

    positions: dict[str, tuple[int, ...]]
    fixed: Fields = field(default_factory=dict)
    suffix: str = ""  # of the receptor's id, where a row holds a second receptor


@dataclass(frozen=True)
class Layout:
    """How the rows of one table are read. ``used``: our name (of a chain, where a row has several) -> its columns."""

    name: str
    chains: tuple[ChainColumns, ...]
    used: dict[str, list[str]]
    adapt: Callable[[Fields], Fields] | None = None
    split: Callable[[Fields], list[Fields]] | None = None
    rows_may_lack_id: bool = False


def layout_of(table: Table, columns: dict[str, str] | None = None, name: str = "auto") -> Layout:
    """The layout of a table by its header; ``columns`` (ours -> theirs, a chain's as "TRA.junction_aa") goes first.

    Args:
        name: a format's name where the user says which it is.

    Raises:
        UserError: the format is not known, a column is not there, or no column holds residues.
    """
    if name != "auto":
        chosen = next((format for format in FORMATS if format.name.lower() == name.lower()), None)
        if chosen is None:
            raise UserError(f"format: unknown name {name!r}{near(name, [format.name for format in FORMATS])}")
        return _laid_out(chosen, table)
    if columns:
        return _by_column_map(table, columns)
    names = _plain_columns(tuple(table.header)).keys()
    for format in FORMATS:
        if any(told <= names for told in format.told_by):
            return _laid_out(format, table)
    wide = _wide(table)
    return wide if wide else _laid_out(Format(LONG_TABLE, (), (LONG,)), table)


def _laid_out(format: Format, table: Table) -> Layout:
    chains = tuple(ChainColumns(_positions(names, table)) for names in format.chains)
    layout = Layout(format.name, chains, _used(chains, table), format.adapt, format.split, format.rows_may_lack_id)
    if not any(name in chain.positions for chain in chains for name in (*RESIDUES, "_chains", "_identity", "_0")):
        raise UserError(
            f"{table.path}: no column sequence_aa, sequence, junction_aa or cdr3_aa, or another name of these, is "
            f"found; name it under columns (--columns junction_aa=NAME); there is {_listed(table)}"
        )
    return layout


def _listed(table: Table) -> str:
    return ", ".join(filter(None, table.header))[:400]


def with_residues(layout: Layout, table: Table, sample: list[list[str]]) -> Layout:
    """A layout that was told by common names only, without columns that hold no residues (``light_chain``: yes, no).

    Raises ``UserError`` where none is left.
    """
    if layout.name not in (LONG_TABLE, WIDE_TABLE):
        return layout
    kept, odd = [], ""
    for columns in layout.chains:
        found = [i for name in RESIDUES for i in columns.positions.get(name, ())]
        cells = [row[i].strip() for row in sample for i in found if i < len(row)]
        values = [value for value in cells if not is_missing(value)]
        certain = any(plain(table.header[i]) in _CERTAIN for i in found)
        if certain or not values or _hold_residues(values):
            kept.append(columns)
        else:
            odd = odd or f"{table.header[found[0]]!r} has {', '.join(list(dict.fromkeys(values))[:3])[:80]}"
    if not kept:
        raise UserError(
            f"{table.path}: no column of residues is found ({odd}); name it under columns (--columns junction_aa=NAME)"
        )
    return replace(layout, chains=tuple(kept))


_CERTAIN = {"junctionaa", "cdr3aa", "sequenceaa", "sequence"}  # AIRR's own names


def _hold_residues(values: list[str]) -> bool:
    """Whether most look like residues, and are not a few words over and over."""
    likely = [value for value in values if len(value) >= _SHORTEST and _LIKE_RESIDUES.fullmatch(value)]
    words = len(values) > 4 and len(set(likely)) <= 2 and max(map(len, likely), default=0) < _SHORT_WORD
    return len(likely) * 2 >= len(values) and not words


def _wide(table: Table) -> Layout | None:
    """A table with the chains of a receptor side by side, or None where no chain is named in the columns."""
    chains: list[ChainColumns] = []
    labels: list[str] = []
    for chain in CHAIN_NAMES:
        positions = _positions(WIDE[chain], table)
        if set(positions) & set(RESIDUES):
            fixed = {"locus": chain} if "locus" not in positions else {}
            chains.append(ChainColumns(positions, fixed))
            labels.append(chain)
        again = _positions({ours: tuple(f"{n}ifbispec" for n in names) for ours, names in WIDE[chain].items()}, table)
        if "sequence_aa" in again:
            chains.append(ChainColumns(again, {"locus": chain}, "_2"))
            labels.append(f"second {chain}")
    long = _positions(LONG, table)
    if not chains or {"sequence_aa", "junction_aa", "cdr3_aa", "sequence"} & set(long):
        return None
    shared = {ours: at for ours, at in long.items() if ours in ("receptor_id", "cell_id", "sequence_id", "species")}
    chains = [ChainColumns({**shared, **c.positions}, c.fixed, c.suffix) for c in chains]
    return Layout(WIDE_TABLE, tuple(chains), _used(chains, table, labels))


def _by_column_map(table: Table, columns: dict[str, str]) -> Layout:
    """AIRR names as they are, and ours where ``columns`` says so."""
    at = {name: i for i, name in enumerate(table.header)}
    shared = {ours: (at[ours],) for ours in (*COLUMNS, "rev_comp") if ours in at}
    of_chain: dict[str, dict[str, tuple[int, ...]]] = {}
    for ours, theirs in columns.items():
        chain, _, name = ours.rpartition(".")
        if name not in COLUMNS or (chain and chain not in CHAIN_NAMES):
            known = COLUMNS if not chain else tuple(f"{c}.{n}" for c in CHAIN_NAMES for n in COLUMNS)
            raise UserError(f"columns: unknown name {ours!r}{near(ours, known)}")
        if theirs not in at:
            raise UserError(f"{table.path}: no column {theirs!r} (columns: {ours}){near(theirs, table.header)}")
        (of_chain.setdefault(chain, {}) if chain else shared)[name] = (at[theirs],)
    chains = [ChainColumns({**shared, **own}, {"locus": chain}) for chain, own in of_chain.items()]
    chains = chains or [ChainColumns(shared)]
    if not any(name in chain.positions for chain in chains for name in RESIDUES):
        raise UserError(
            f"{table.path}: no column sequence_aa, sequence, junction_aa or cdr3_aa; name it under columns; "
            f"there is {_listed(table)}"
        )
    return Layout("table with a column map", tuple(chains), _used(chains, table, list(of_chain)))


def _positions(names: Names, table: Table) -> dict[str, tuple[int, ...]]:
    at = _plain_columns(tuple(table.header))
    found = {ours: tuple(dict.fromkeys(at[name] for name in theirs if name in at)) for ours, theirs in names.items()}
    return {ours: positions for ours, positions in found.items() if positions}


@lru_cache(maxsize=8)
def _plain_columns(header: tuple[str, ...]) -> dict[str, int]:
    at: dict[str, int] = {}
    for i, column in enumerate(header):
        at.setdefault(plain(column), i)
    return at


def _used(chains, table: Table, labels: list[str] | None = None) -> dict[str, list[str]]:
    labels = labels or [f"chain {k}" for k in range(1, len(chains) + 1)]
    return {
        (f"{label}.{ours}" if len(chains) > 1 else ours): [table.header[i] for i in positions]
        for label, chain in zip(labels, chains)
        for ours, positions in chain.positions.items()
        if not ours.startswith("_")
    }
