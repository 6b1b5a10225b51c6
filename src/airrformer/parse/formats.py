"""Tables of the field's tools as data: a row of ``FORMATS`` says how each is told by its header, and what is in it.

Names of columns are as ``columns.plain`` makes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from airrformer.parse.columns import AIRR, LONG, Names

Fields = dict[str, str]  # our name -> value; names that begin with "_" are for the functions below only


# --------------------------------------------------------------------------------------------- what some tools mean


def _with_domain(fields: Fields, before: tuple[str, ...], after: str) -> Fields:
    """The V domain put together from the columns of its regions around the junction, where all are there."""
    pieces = [*(fields.pop(name, "") for name in before), fields.get("junction_aa", ""), fields.pop(after, "")]
    return {"sequence_aa": "".join(pieces), **fields} if all(pieces) else fields


def _cell_ranger(fields: Fields) -> Fields:
    return _with_domain(fields, ("_fwr1", "_cdr1", "_fwr2", "_cdr2", "_fwr3"), "_fwr4")


def _mixcr(fields: Fields) -> Fields:
    """A cell's barcode may stand in three columns, the chain in those of its regions."""
    barcode = [fields.pop(f"_cell{k}") for k in (1, 2, 3) if f"_cell{k}" in fields]
    if barcode:
        fields["cell_id"] = "-".join(barcode)
    return _with_domain(fields, ("_fr1", "_cdr1", "_fr2", "_cdr2", "_fr3"), "_fr4")


def _immunoseq(fields: Fields) -> Fields:
    """A gene that is not resolved is told by its ties, else its family."""
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
    """Paired tables of immunarch: the chains of a clonotype stand in one cell of the table, parted by ';'."""
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
        adapt: fields of a row as the tool means them -> as we do.
        split: fields of a row that holds several chains in one column -> fields of each.
        rows_may_lack_id: a row without the receptor's id is a receptor of its own.
    """

    name: str
    told_by: tuple[frozenset[str], ...]
    chains: tuple[Names, ...]
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
                "productive": ("frametype", "sequencestatus", "productive"),
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
