"""Invented receptors, written in the formats of the field with the oddities of real files: for tests and the fuzzer.

A writer turns cells into a ``Written``: the file's bytes and what a reader must find in them. All randomness comes from
one ``random.Random``, which hypothesis gives (and shrinks) in the tests and a seed gives in the fuzzer.
"""

import bz2
import csv
import gzip
import io
import json
import random
from dataclasses import dataclass, field, replace
from functools import cache

import pyarrow as pa

from airrformer.receptors.germlines import germline_j, rebuild_chain

AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
CODONS = dict(
    A="GCT GCC GCA GCG", C="TGT TGC", D="GAT GAC", E="GAA GAG", F="TTT TTC", G="GGT GGC GGA GGG", H="CAT CAC",
    I="ATT ATC ATA", K="AAA AAG", L="CTT CTC CTA CTG TTA TTG", M="ATG", N="AAT AAC", P="CCT CCC CCA CCG", Q="CAA CAG",
    R="CGT CGC CGA CGG AGA AGG", S="TCT TCC TCA TCG AGT AGC", T="ACT ACC ACA ACG", V="GTT GTC GTA GTG", W="TGG",
    Y="TAT TAC",
)  # fmt: skip
# Human genes with germline residues, among them such that tools spell differently.
GENES = {
    "TRA": ("TRAV1-2 TRAV8-3 TRAV12-2 TRAV14/DV4 TRAV21 TRAV29/DV5 TRAV38-2/DV8 TRAV41",
            "TRAJ6 TRAJ20 TRAJ21 TRAJ33 TRAJ39 TRAJ42 TRAJ53", "TRAC"),
    "TRB": ("TRBV2 TRBV4-3 TRBV6-1 TRBV7-9 TRBV12-3 TRBV19 TRBV20-1 TRBV27 TRBV30",
            "TRBJ1-1 TRBJ1-2 TRBJ1-6 TRBJ2-1 TRBJ2-3 TRBJ2-7", "TRBC1"),
    "IGH": ("IGHV1-2 IGHV1-69 IGHV3-23 IGHV3-30 IGHV4-34 IGHV5-51", "IGHJ3 IGHJ4 IGHJ5 IGHJ6", "IGHG1"),
    "IGK": ("IGKV1-5 IGKV1-39 IGKV2-28 IGKV3-20 IGKV4-1", "IGKJ1 IGKJ2 IGKJ3 IGKJ4", "IGKC"),
    "IGL": ("IGLV1-44 IGLV2-14 IGLV3-1 IGLV6-57", "IGLJ1 IGLJ2 IGLJ3", "IGLC2"),
}  # fmt: skip
PAIRS = {"TCR": ("TRA", "TRB"), "antibody": ("heavy", "light")}


@dataclass(frozen=True)
class Chain:
    """One chain: genes without an allele, residues of the V domain, and nucleotides that translate to them."""

    locus: str
    v: str
    j: str
    c: str
    junction: str
    domain: str
    regions: dict[str, str]  # fwr1 ... fwr4 as IMGT cuts them
    junction_nt: str
    domain_nt: str
    umis: int
    reads: int

    @property
    def cdr3(self) -> str:
        return self.junction[1:-1]


@dataclass(frozen=True)
class Cell:
    """``chains``: one of the light kind (TRA, IGK, IGL), then one of the heavy (TRB, IGH); or one of them alone."""

    name: str
    chains: tuple[Chain, ...]

    def of(self, *loci: str) -> Chain | None:
        return next((chain for chain in self.chains if chain.locus in loci), None)


# What must be found of a chain: (locus, v_call, j_call, junction_aa, sequence_aa); None where the file does not say.
Found = tuple[str | None, str | None, str | None, str | None, str]


@dataclass
class Written:
    """One file, and what is in it.

    Attributes:
        receptors: (id or None where the reader makes one, the chains that must come out), in the order of the file.
        rejected: how many records of the file must be rejected.
        options: of the dataset.
    """

    data: bytes
    receptors: list[tuple[str | None, tuple[Found, ...]]]
    rejected: int = 0
    options: dict = field(default_factory=dict)


@cache
def _genes(locus: str) -> tuple[list[str], list[str], str]:
    v, j, c = GENES[locus]
    return v.split(), j.split(), c


def draw_chain(rng: random.Random, locus: str) -> Chain:
    """A chain of germline V and J around a random CDR3, which does not start with C: it would look like a junction."""
    v_genes, j_genes, c = _genes(locus)
    v, j = rng.choice(v_genes), rng.choice(j_genes)
    middle = rng.choice("ADEGKLQRSTV") + "".join(rng.choice(AMINO_ACIDS) for _ in range(rng.randint(3, 18)))
    junction = f"C{middle}{germline_j(j).anchor}"
    rebuilt = rebuild_chain(v, junction, j)
    regions = {name: rebuilt.sequence_aa[slice(*at)] for name, at in rebuilt.bounds.items()}
    domain_nt = back_translated(rng, rebuilt.sequence_aa)
    start = 3 * (rebuilt.bounds["cdr3"][0] - 1)
    junction_nt = domain_nt[start : start + 3 * len(junction)]
    umis = rng.randint(1, 40)
    return Chain(
        locus, v, j, c, junction, rebuilt.sequence_aa, regions, junction_nt, domain_nt, umis, umis * rng.randint(2, 90)
    )


def back_translated(rng: random.Random, residues: str) -> str:
    return "".join(rng.choice(CODONS[letter].split()) for letter in residues)


def draw_cells(rng: random.Random, receptor: str, most: int = 5) -> list[Cell]:
    """One to ``most`` cells with names of their own; a few have one chain only."""
    cells = []
    for i in range(rng.randint(1, most)):
        vj = "TRA" if receptor == "TCR" else rng.choice(["IGK", "IGL"])
        chains = [draw_chain(rng, vj), draw_chain(rng, "TRB" if receptor == "TCR" else "IGH")]
        if rng.random() > 0.85:
            del chains[rng.randrange(2)]
        barcode = "".join(rng.choice("ACGT") for _ in range(8))
        cells.append(Cell(f"{barcode}{i}-1", tuple(chains)))
    return cells


# ------------------------------------------------------------------------------------------------------------- quirks


@dataclass(frozen=True)
class Quirks:
    """What real files do that changes nothing of what they say."""

    newline: str = "\n"
    encoding: str = "utf-8"
    compression: str = ""
    blank_lines: bool = False
    comment: bool = False
    quote_all: bool = False
    shuffle: bool = False
    extra_columns: bool = False
    lower_case: bool = False
    padded: bool = False
    ragged_row: bool = False
    final_newline: bool = True


def draw_quirks(rng: random.Random) -> Quirks:
    def seldom() -> bool:
        return rng.random() > 0.8

    return Quirks(
        newline=rng.choice(["\n", "\n", "\r\n", "\r"]),
        encoding=rng.choice(["utf-8", "utf-8", "utf-8-sig", "utf-16"]),
        compression=rng.choice(["", "", "gz", "bz2", "zst"]),
        blank_lines=seldom(),
        comment=seldom(),
        quote_all=seldom(),
        shuffle=seldom(),
        extra_columns=seldom(),
        lower_case=seldom(),
        padded=seldom(),
        ragged_row=seldom(),
        final_newline=not seldom(),
    )


def packed(text: str, quirks: Quirks) -> bytes:
    """The bytes of a text with ``\\n`` line ends."""
    if not quirks.final_newline:
        text = text.removesuffix("\n")
    data = text.replace("\n", quirks.newline).encode(quirks.encoding)
    if quirks.compression == "gz":
        return gzip.compress(data, mtime=0)
    if quirks.compression == "bz2":
        return bz2.compress(data)
    if quirks.compression == "zst":
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, "zstd") as stream:
            stream.write(data)
        return sink.getvalue().to_pybytes()
    return data


def text_of_table(
    rng: random.Random,
    quirks: Quirks,
    header: list[str],
    rows: list[list[str]],
    separator: str,
    *,
    preamble: str = "",
    named: bool = True,
) -> tuple[str, int]:
    """The text of a table with the quirks, and how many further rows it has that must be rejected.

    ``named``: columns are found by name, so that they may come in any order with others among them.
    """
    header, rows = list(header), [list(row) for row in rows]
    if quirks.extra_columns and named:
        header.append("remark of the lab")
        rows = [[*row, rng.choice(["", "x", "5", "seen twice"])] for row in rows]
    if quirks.shuffle and named:
        order = list(range(len(header)))
        rng.shuffle(order)
        header, rows = [header[i] for i in order], [[row[i] for i in order] for row in rows]
    if quirks.padded:
        rows = [[f" {cell} " if cell and rng.random() > 0.7 else cell for cell in row] for row in rows]
    ragged = quirks.ragged_row and named and len(header) > 3
    if ragged:
        rows.insert(rng.randint(0, len(rows)), ["x"] * rng.choice([1, len(header) + 2]))
    lines = io.StringIO()
    quoting = csv.QUOTE_ALL if quirks.quote_all else csv.QUOTE_MINIMAL
    if separator == "\t":
        for row in [header, *rows] if header else rows:
            lines.write("\t".join(f'"{cell}"' if quirks.quote_all and '"' not in cell else cell for cell in row) + "\n")
            if quirks.blank_lines:
                lines.write("\n")
    else:
        writer = csv.writer(lines, delimiter=separator, quoting=quoting, lineterminator="\n")
        for row in [header, *rows] if header else rows:
            writer.writerow(row)
            if quirks.blank_lines:
                lines.write("\n")
    comment = "# exported from the lab, 2024\n" if quirks.comment and named and not preamble else ""
    return preamble + comment + lines.getvalue(), int(ragged)


class Draft:
    """A file that is being written: rows and, for each receptor, what must be found."""

    def __init__(self, rng: random.Random, quirks: Quirks) -> None:
        self.rng, self.quirks = rng, quirks
        self.rows: list[list[str]] = []
        self.receptors: list[tuple[str | None, tuple[Found, ...]]] = []
        self.rejected = 0

    def residues(self, text: str) -> str:
        return text.lower() if self.quirks.lower_case and self.rng.random() < 0.5 else text

    def done(self, header: list[str], separator: str, *, options: dict | None = None, **keywords) -> Written:
        text, ragged = text_of_table(self.rng, self.quirks, header, self.rows, separator, **keywords)
        return Written(packed(text, self.quirks), self.receptors, self.rejected + ragged, options or {})


def found(chain: Chain, v: str | None = None, j: str | None = None, whole: bool = False) -> Found:
    """What must come out of a chain that is given by genes and junction, or (``whole``) by its domain too.

    TCR chains are rebuilt from germline residues; antibodies, which are mutated, are kept as junctions.
    """
    v, j = v or chain.v, j or chain.j
    rebuilt = whole or chain.locus.startswith("TR")
    return chain.locus, v, j, chain.junction, chain.domain if rebuilt else chain.junction


def _names(text: str, mark: str | None = None) -> list[str]:
    """The names of a header's columns, written over several lines."""
    return [name.strip() for name in text.split(mark)]


def allele(rng: random.Random, gene: str) -> str:
    return rng.choice([gene, f"{gene}*01"])


# ------------------------------------------------------------------------------------------------- FASTA and FASTQ


def _wrapped(text: str, rng: random.Random) -> str:
    width = rng.choice([10_000, 60, 7])
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))


def fasta(rng: random.Random, cells: list[Cell], quirks: Quirks, molecule: str = "protein") -> Written:
    """Headers ``cell|locus|V|J``, with the template that says so."""
    draft, text = Draft(rng, quirks), "# made by a lab\n" if quirks.comment else ""
    for cell in cells:
        for chain in cell.chains:
            sequence = chain.domain if molecule == "protein" else chain.domain_nt
            text += f">{cell.name}|{chain.locus}|{chain.v}|{chain.j}\n{_wrapped(draft.residues(sequence), rng)}\n"
            text += "\n" if quirks.blank_lines else ""
        draft.receptors.append((cell.name, tuple(found(chain, whole=True) for chain in cell.chains)))
    if quirks.ragged_row:
        text += ">\nCASSF\n"
        draft.rejected += 1
    options = {"id": "{receptor_id}|{locus}|{v_call}|{j_call}"}
    return Written(packed(text, quirks), draft.receptors, draft.rejected, options)


def fasta_nucleotides(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    return fasta(rng, cells, quirks, "nucleotide")


def fasta_genes_in_header(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """The first word is the id of a receptor of one chain; V and J genes are in the description."""
    draft, text = Draft(rng, quirks), ""
    for cell in cells:
        for chain in cell.chains:
            name = f"{cell.name}_{chain.locus}"
            text += f">{name} {chain.v}*01 {chain.j}*01\n{_wrapped(draft.residues(chain.domain), rng)}\n"
            draft.receptors.append((name, (found(chain, f"{chain.v}*01", f"{chain.j}*01", whole=True),)))
    return Written(packed(text, quirks), draft.receptors)


def fastq(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    draft, text = Draft(rng, quirks), ""
    for cell in cells:
        for chain in cell.chains:
            name, quality = f"{cell.name}_{chain.locus}", "@" + "I" * (len(chain.domain_nt) - 1)
            text += f"@{name} {chain.v} {chain.j}\n{draft.residues(chain.domain_nt)}\n+\n{quality}\n"
            draft.receptors.append((name, (found(chain, whole=True),)))
    return Written(packed(text, quirks), draft.receptors)


# ----------------------------------------------------------------------------------------------------- AIRR and 10x


def airr(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """AIRR Rearrangement TSV, cells or bulk, schema 1.2 to 1.5, with or without sequences."""
    draft = Draft(rng, quirks)
    locus, single_cell, whole, umis = (rng.random() < 0.6 for _ in range(4))
    header = _names(
        """sequence_id sequence rev_comp productive v_call d_call j_call junction junction_aa
        sequence_alignment germline_alignment v_cigar d_cigar j_cigar"""
    )
    header += ["locus"] if locus else []
    header += ["cell_id"] if single_cell else []
    header += ["sequence_aa"] if whole else []
    header += ["umi_count" if umis else "duplicate_count", "consensus_count"]
    yes = rng.choice(["T", "true", "TRUE", "True", ""])
    for cell in cells:
        chains = []
        for k, chain in enumerate(cell.chains):
            v, j = allele(rng, chain.v), allele(rng, chain.j)
            row = dict.fromkeys(header, "")
            row |= {
                "sequence_id": f"{cell.name}_contig_{k}",
                "rev_comp": "F",
                "productive": yes,
                "v_call": v,
                "j_call": j,
            }
            row |= {"junction": chain.junction_nt, "junction_aa": draft.residues(chain.junction), "locus": chain.locus}
            row |= {"cell_id": cell.name, "umi_count": str(chain.umis), "duplicate_count": f"{chain.umis}.0"}
            row |= {"sequence_aa": chain.domain, "consensus_count": str(chain.reads)}
            draft.rows.append([row[name] for name in header])
            chains.append(found(chain, v, j, whole))
            if not single_cell:
                draft.receptors.append((row["sequence_id"], (chains.pop(),)))
        if single_cell:
            draft.receptors.append((cell.name, tuple(chains)))
    if rng.random() > 0.7:  # an unproductive rearrangement of the first cell
        row = dict.fromkeys(header, "") | {"sequence_id": "bad", "productive": "F", "v_call": cells[0].chains[0].v}
        draft.rows.append([(row | {"cell_id": cells[0].name})[name] for name in header])
        draft.rejected += 1
    return draft.done(header, "\t")


_10X_OLD = _names(
    """barcode,is_cell,contig_id,high_confidence,length,chain,v_gene,d_gene,j_gene,c_gene,
        full_length,productive,cdr3,cdr3_nt,reads,umis,raw_clonotype_id,raw_consensus_id""",
    ",",
)
_10X_NEW = _names(
    """barcode,is_cell,contig_id,high_confidence,length,chain,v_gene,d_gene,j_gene,c_gene,
        full_length,productive,fwr1,fwr1_nt,cdr1,cdr1_nt,fwr2,fwr2_nt,cdr2,cdr2_nt,fwr3,fwr3_nt,
        cdr3,cdr3_nt,fwr4,fwr4_nt,reads,umis,raw_clonotype_id,raw_consensus_id,exact_subclonotype_id""",
    ",",
)


def _10x(rng: random.Random, cells: list[Cell], quirks: Quirks, header: list[str], missing: str, yes: str) -> Written:
    draft, whole = Draft(rng, quirks), "fwr1" in header

    def row(cell: Cell, k: int, values: dict[str, str]) -> list[str]:
        fixed = {"barcode": cell.name, "is_cell": yes, "contig_id": f"{cell.name}_contig_{k}", "high_confidence": yes}
        fixed |= {"length": "520", "full_length": yes, "raw_clonotype_id": "clonotype1"}
        return [(fixed | values).get(name, missing) for name in header]

    for cell in cells:
        for k, chain in enumerate(cell.chains, start=1):
            values = {"chain": chain.locus, "v_gene": chain.v.replace("/", ""), "j_gene": chain.j, "c_gene": chain.c}
            values |= {"productive": yes, "cdr3": chain.junction, "cdr3_nt": chain.junction_nt}
            values |= {"reads": str(chain.reads), "umis": str(chain.umis)}
            if whole:  # the conserved C and F/W are in the "cdr3", not in the frameworks beside it
                values |= {name: chain.regions[name] for name in ("fwr1", "cdr1", "fwr2", "cdr2")}
                values |= {"fwr3": chain.regions["fwr3"].removesuffix("C"), "fwr4": chain.regions["fwr4"][1:]}
            draft.rows.append(row(cell, k, values))
        draft.receptors.append((cell.name, tuple(found(chain, whole=whole) for chain in cell.chains)))
        if rng.random() > 0.7:
            no = {"true": "false", "True": "False", "TRUE": "FALSE"}[yes]
            bad = rng.choice([{"productive": no}, {"is_cell": no}, {"chain": "Multi"}])
            draft.rows.append(row(cell, 9, {"chain": cell.chains[0].locus, "reads": "3", "umis": "1"} | bad))
            draft.rejected += 1
    return draft.done(header, ",")


def tenx_old(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """filtered_contig_annotations.csv of Cell Ranger 2 to 4."""
    return _10x(rng, cells, quirks, _10X_OLD, "None", "True")


def tenx_new(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """The same from Cell Ranger 5 on: regions, and blanks for what is missing."""
    return _10x(rng, cells, quirks, _10X_NEW, "", rng.choice(["true", "True", "TRUE"]))


def tenx_airr(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """airr_rearrangement.tsv of Cell Ranger: no locus; sequence_aa from the leader on."""
    header = _names(
        """cell_id clone_id sequence_id sequence sequence_aa productive rev_comp v_call v_cigar d_call d_cigar
        j_call j_cigar c_call c_cigar sequence_alignment germline_alignment junction junction_aa
        junction_length junction_aa_length consensus_count duplicate_count is_cell"""
    )
    draft, leader = Draft(rng, quirks), "MGSWTLCCVSLCILVAKHT"
    for cell in cells:
        chains = []
        for k, chain in enumerate(cell.chains, start=1):
            values = {
                "cell_id": cell.name,
                "sequence_id": f"{cell.name}_contig_{k}",
                "productive": "true",
                "is_cell": "T",
            }
            values |= {"sequence_aa": leader + chain.domain, "rev_comp": "false", "v_call": chain.v.replace("/", "")}
            values |= {"sequence": back_translated(rng, leader) + chain.domain_nt, "j_call": chain.j, "c_call": chain.c}
            values |= {"junction": chain.junction_nt, "junction_aa": chain.junction, "duplicate_count": str(chain.umis)}
            draft.rows.append([values.get(name, "") for name in header])
            chains.append((*found(chain)[:4], leader + chain.domain))
        draft.receptors.append((cell.name, tuple(chains)))
    return draft.done(header, "\t")


# -------------------------------------------------------------------------------------------------------- databases


def vdjdb_web(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = _names(
        """complex.id|Gene|CDR3|V|J|Species|MHC A|MHC B|MHC class|Epitope|Epitope gene|
        Epitope species|Reference|Method|Meta|CDR3fix|Score""",
        "|",
    )
    draft = Draft(rng, quirks)
    for number, cell in enumerate(cells, start=101):
        paired = len(cell.chains) == 2
        chains = []
        for chain in cell.chains:
            v, j = allele(rng, chain.v), allele(rng, chain.j)
            draft.rows.append(
                [str(number) if paired else "0", chain.locus, draft.residues(chain.junction), v, j, "HomoSapiens",
                 "HLA-A*02:01", "B2M", "MHCI", "GILGFVFTL", "M", "InfluenzaA", "PMID:1", '{"frequency": "1/2"}',
                 json.dumps({"subject.id": "a \"b\""}), "{}", "2"]
            )  # fmt: skip
            chains.append(found(chain, v, j))
        draft.receptors.append((str(number) if paired else None, tuple(chains)))
    return draft.done(header, "\t")


def vdjdb_slim(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """One row stands for the chain of every complex that is listed."""
    header = _names(
        """gene cdr3 species antigen.epitope antigen.gene antigen.species complex.id v.segm j.segm v.end
        j.start mhc.a mhc.b mhc.class reference.id vdjdb.score"""
    )
    draft = Draft(rng, quirks)
    for number, cell in enumerate(cells):
        first = str(1000 + number)
        also = [str(2000 + number)] if len(cell.chains) == 2 and rng.random() > 0.7 else []
        chains = []
        for k, chain in enumerate(cell.chains):
            complexes = [first, *(also if k == 0 else [])] if len(cell.chains) == 2 else ["0"]
            draft.rows.append(
                [chain.locus, chain.junction, "HomoSapiens", "GILGFVFTL", "M", "InfluenzaA", ",".join(complexes),
                 chain.v, chain.j, "3", "8", "HLA-A*02", "B2M", "MHCI", "PMID:1,PMID:2", "1"]
            )  # fmt: skip
            chains.append(found(chain))
        draft.receptors.append((first if len(cell.chains) == 2 else None, tuple(chains)))
        draft.receptors += [(name, (chains[0],)) for name in also]
    return draft.done(header, "\t")


def vdjdb_full(rng: random.Random, cells: list[Cell], quirks: Quirks, chunk: bool = False) -> Written:
    """One receptor a row: the full table, or a submission chunk."""
    header = _names(
        """cdr3.alpha v.alpha j.alpha cdr3.beta v.beta d.beta j.beta species mhc.a mhc.b mhc.class
        antigen.epitope antigen.gene antigen.species reference.id method.identification meta.subject.id"""
    )
    header += [] if chunk else ["cdr3fix.alpha", "cdr3fix.beta", "vdjdb.score"]
    draft = Draft(rng, quirks)
    for cell in cells:
        values = {
            "species": "HomoSapiens",
            "antigen.epitope": "NLVPMVATV",
            "reference.id": "PMID:3",
            "vdjdb.score": "1",
        }
        for chain in cell.chains:
            arm = {"TRA": "alpha", "TRB": "beta"}[chain.locus]
            values |= {f"cdr3.{arm}": chain.junction, f"v.{arm}": f"{chain.v}*01", f"j.{arm}": f"{chain.j}*01"}
        draft.rows.append([values.get(name, "") for name in header])
        draft.receptors.append((None, tuple(found(c, f"{c.v}*01", f"{c.j}*01") for c in cell.chains)))
    return draft.done(header, "\t")


def vdjdb_chunk(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    return vdjdb_full(rng, cells, quirks, chunk=True)


_IEDB_CHAIN = _names(
    """Type|Organism IRI|Nucleotide Sequence|Curated V Gene|Calculated V Gene|Curated D Gene|
        Calculated D Gene|Curated J Gene|Calculated J Gene|Protein Sequence|Protein IRI|CDR3 Curated|
        CDR3 Calculated|CDR3 Start Curated|CDR3 End Curated|CDR3 Start Calculated|CDR3 End Calculated""",
    "|",
)
_IEDB_WORDS = {"TRA": "alpha", "TRB": "beta", "IGH": "heavy", "IGK": "light", "IGL": "light"}


def iedb(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """Two header lines, as the bulk export has, or one with dashes, as the web export has."""
    columns = [("Receptor", "Group IRI"), ("Receptor", "IEDB Receptor ID"), ("Receptor", "Type"), ("Epitope", "Name")]
    columns += [(f"Chain {k}", name) for k in (1, 2) for name in _IEDB_CHAIN]
    draft, two_lines = Draft(rng, quirks), rng.random() < 0.5
    for number, cell in enumerate(cells, start=57):
        values = {("Receptor", "IEDB Receptor ID"): str(number), ("Epitope", "Name"): "KLVALGINAV, mutated"}
        chains = []
        for k, chain in enumerate(cell.chains, start=1):
            own = {
                "Type": _IEDB_WORDS[chain.locus],
                "Calculated V Gene": f"{chain.v}*01",
                "CDR3 Curated": chain.junction,
            }
            own |= {
                "Organism IRI": "http://purl.obolibrary.org/obo/NCBITaxon_9606",
                "Calculated J Gene": f"{chain.j}*01",
            }
            own |= {"CDR3 Calculated": chain.cdr3 if rng.random() < 0.7 else ""}
            whole = rng.random() < 0.5
            own |= {"Protein Sequence": chain.domain if whole else ""}
            values |= {(f"Chain {k}", name): value for name, value in own.items()}
            chains.append(found(chain, f"{chain.v}*01", f"{chain.j}*01", whole))
        draft.rows.append([values.get(column, "") for column in columns])
        draft.receptors.append((str(number), tuple(chains)))
    separator = rng.choice([",", "\t"])
    if not two_lines:
        return draft.done([" - ".join(column) for column in columns], separator)
    draft.rows.insert(0, [name for _, name in columns])
    draft.quirks = replace(quirks, shuffle=False, extra_columns=False, ragged_row=False, padded=False)
    return draft.done([group for group, _ in columns], separator)


def mcpas(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """McPAS-TCR.csv: Latin-1, NA, one receptor a row and no id."""
    header = _names(
        """CDR3.alpha.aa CDR3.beta.aa Species Category Pathology Pathology.Mesh.ID Additional.study.details
        Antigen.identification.method NGS Antigen.protein Protein.ID Epitope.peptide Epitope.ID MHC Tissue
        T.Cell.Type T.cell.characteristics CDR3.alpha.nt TRAV TRAJ TRBV TRBD TRBJ Reconstructed.J.annotation
        CDR3.beta.nt Mouse.strain PubMed.ID Remarks"""
    )
    draft = Draft(rng, replace(quirks, encoding="latin-1"))
    for cell in cells:
        values = {"Species": "Human", "Pathology": "Ménière", "MHC": "HLA-A*02:01", "Epitope.peptide": "LPRRSGAAGA"}
        for chain in cell.chains:
            values |= {f"CDR3.{ {'TRA': 'alpha', 'TRB': 'beta'}[chain.locus] }.aa": chain.junction}
            values |= {chain.locus + "V": chain.v, chain.locus + "J": chain.j}
        draft.rows.append([values.get(name, "NA") for name in header])
        draft.receptors.append((None, tuple(found(chain) for chain in cell.chains)))
    return draft.done(header, ",")


# ------------------------------------------------------------------------------------------------- bulk repertoires


def _singles(cells: list[Cell], *loci: str) -> list[Chain]:
    return [chain for cell in cells for chain in cell.chains if not loci or chain.locus in loci]


def _adaptive(gene: str) -> str:
    """TRBV6-1 as immunoSEQ writes it: TCRBV06-01; a gene alone in its family has a -01 too."""
    family, _, number = gene[4:].partition("-")
    return f"TC{gene[1:4]}{int(family):02}-{int(number or 1):02}"


def _read_of(rng: random.Random, chain: Chain) -> str:
    return ("".join(rng.choice("ACGT") for _ in range(87)) + chain.junction_nt)[-87:]


def immunoseq_v2(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = _names(
        """nucleotide|aminoAcid|count (templates/reads)|frequencyCount (%)|cdr3Length|vMaxResolved|
        vFamilyName|vGeneName|vGeneAllele|vFamilyTies|vGeneNameTies|dMaxResolved|jMaxResolved|
        jFamilyName|jGeneName|jGeneAllele|vIndex|sequenceStatus""",
        "|",
    )
    draft = Draft(rng, quirks)
    for chain in _singles(cells, "TRB"):
        v, j = _adaptive(chain.v), _adaptive(chain.j)
        values = {
            "nucleotide": _read_of(rng, chain),
            "aminoAcid": chain.junction,
            "count (templates/reads)": str(chain.umis),
        }
        values |= {"vMaxResolved": f"{v}*01", "vFamilyName": v[:7], "vGeneName": v, "vGeneAllele": "1", "jGeneName": j}
        values |= {"jMaxResolved": f"{j}*01", "sequenceStatus": "In", "cdr3Length": str(3 * len(chain.junction))}
        draft.rows.append([values.get(name, "") for name in header])
        draft.receptors.append((None, (found(chain, f"{chain.v}*01", f"{chain.j}*01"),)))
        if rng.random() > 0.7:
            draft.rows.append([(values | {"aminoAcid": "", "sequenceStatus": "Out"}).get(name, "") for name in header])
            draft.rejected += 1
    return draft.done(header, "\t", options={"chains": ["TRB"]})


def immunoseq_v3(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = _names(
        """rearrangement amino_acid frame_type rearrangement_type templates reads frequency
        productive_frequency cdr3_length v_family v_gene v_allele d_family d_gene d_allele j_family j_gene
        j_allele v_index v_family_ties v_gene_ties sample_name species locus"""
    )
    draft = Draft(rng, quirks)
    for chain in _singles(cells, "TRB"):
        v, j = _adaptive(chain.v), _adaptive(chain.j)
        values = {
            "rearrangement": _read_of(rng, chain),
            "amino_acid": chain.junction,
            "frame_type": "In",
            "locus": "TCRB",
        }
        values |= {"templates": str(chain.umis), "reads": str(chain.reads), "v_gene": v, "j_gene": j, "v_family": v[:7]}
        values |= {"rearrangement_type": "VDJ", "species": rng.choice(["Human", "null", "NA"])}
        draft.rows.append([values.get(name, "null") for name in header])
        draft.receptors.append((None, (found(chain),)))
        if rng.random() > 0.7:
            stop = {"amino_acid": "CASS*QYF", "frame_type": "Stop"}
            draft.rows.append([(values | stop).get(name, "null") for name in header])
            draft.rejected += 1
    return draft.done(header, "\t", options={"chains": ["TRB"]})


_MIXCR_VERBOSE = {
    "cloneId": "Clone ID", "cloneCount": "Clone count", "cloneFraction": "Clone fraction",
    "targetSequences": "Clonal sequence(s)", "targetQualities": "Clonal sequence quality(s)",
    "allVHitsWithScore": "All V hits", "allDHitsWithScore": "All D hits", "allJHitsWithScore": "All J hits",
    "allCHitsWithScore": "All C hits", "nSeqCDR3": "N. Seq. CDR3", "minQualCDR3": "Min. qual. CDR3",
    "aaSeqCDR3": "AA. Seq. CDR3", "refPoints": "Ref. points",
}  # fmt: skip


def mixcr(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """exportClones of version 2 (verbose or not), 3 or 4; of 4 with cells too."""
    version = rng.choice(["2 verbose", "3", "4", "4 cells"])
    header = list(_MIXCR_VERBOSE)
    if version.startswith("4"):
        header[1:3] = ["readCount", "readFraction", "uniqueMoleculeCount"]
    if version == "4 cells":
        header.insert(1, "tagValueCELL")
    draft = Draft(rng, quirks)
    number = 0
    for cell in cells:
        chains = []
        for chain in cell.chains:
            v, score = chain.v.replace("/", ""), rng.randint(100, 2000)
            values = {"cloneId": str(number), "cloneCount": f"{chain.reads}.0", "readCount": str(chain.reads)}
            values |= {
                "targetSequences": chain.junction_nt,
                "targetQualities": '"' + "I" * (len(chain.junction_nt) - 1),
            }
            values |= {"allVHitsWithScore": f"{v}*00({score})", "allJHitsWithScore": f"{chain.j}*00(241.5)"}
            values |= {"nSeqCDR3": chain.junction_nt, "aaSeqCDR3": chain.junction, "tagValueCELL": cell.name}
            values |= {"refPoints": ":::::::::0:1:::::", "uniqueMoleculeCount": str(chain.umis)}
            draft.rows.append([values.get(name, "") for name in header])
            chains.append(found(chain))
            if version != "4 cells":
                draft.receptors.append((str(number), (chains.pop(),)))
            number += 1
        if version == "4 cells":
            draft.receptors.append((cell.name, tuple(chains)))
    if rng.random() > 0.7:  # out of frame
        values |= {"cloneId": str(number), "aaSeqCDR3": "CASS_GYTF", "nSeqCDR3": "TGTGCC"}
        draft.rows.append([values.get(name, "") for name in header])
        draft.rejected += 1
    return draft.done([_MIXCR_VERBOSE[name] for name in header] if version == "2 verbose" else header, "\t")


def vdjtools(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = _names("count freq cdr3nt cdr3aa v d j VEnd DStart DEnd JStart")
    draft = Draft(rng, quirks)
    for chain in _singles(cells):
        j = chain.j
        draft.rows.append(
            [str(chain.umis), "0.01", chain.junction_nt, chain.junction, chain.v, ".", j, "9", ".", ".", "20"]
        )
        draft.receptors.append((None, (found(chain),)))
    if rng.random() > 0.7:
        draft.rows.append(["1", "0.1", "TGTGC", "CA_F", draft.rows[0][4], ".", draft.rows[0][6], "1", ".", ".", "2"])
        draft.rejected += 1
    if rng.random() > 0.7 and not (quirks.shuffle or quirks.quote_all):
        header[0] = "#count"
    return draft.done(header, "\t")


def immunarch(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = _names(
        """Clones Proportion CDR3.nt CDR3.aa V.name D.name J.name V.end D.start D.end J.start VJ.ins VD.ins
        DJ.ins Sequence"""
    )
    draft = Draft(rng, quirks)
    for chain in _singles(cells):
        values = {
            "Clones": str(chain.umis),
            "Proportion": "0.1",
            "CDR3.nt": chain.junction_nt,
            "CDR3.aa": chain.junction,
        }
        values |= {"V.name": chain.v, "J.name": chain.j}
        draft.rows.append([values.get(name, "NA") for name in header])
        draft.receptors.append((None, (found(chain),)))
    preamble = "# Exported from immunarch 0.5.6 https://immunarch.com\n" if rng.random() < 0.7 else ""
    return draft.done(header, "\t", preamble=preamble)


def immunarch_paired(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    header = ["Clones", "Proportion", "CDR3.nt", "CDR3.aa", "V.name", "D.name", "J.name", "chain", "Barcode"]
    draft = Draft(rng, quirks)
    for cell in cells:
        texts = zip(*((c.junction_nt, c.junction, c.v, "NA", c.j, c.locus) for c in cell.chains))
        clones = rng.randint(1, 3)  # cells of the clonotype, as many barcodes
        barcodes = ";".join(f"{cell.name}_{i}" for i in range(clones))
        draft.rows.append([str(clones), "0.1", *(";".join(values) for values in texts), barcodes])
        draft.receptors.append((None, tuple(found(chain) for chain in cell.chains)))
    return draft.done(header, "\t")


def olga(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """olga-generate_sequences of one locus: no header."""
    draft = Draft(rng, replace(quirks, padded=False))
    nucleotides, locus = rng.random() < 0.7, _singles(cells)[-1].locus
    for chain in _singles(cells, locus):
        draft.rows.append([*([chain.junction_nt] if nucleotides else []), chain.junction, chain.v, chain.j])
        draft.receptors.append((None, (found(chain),)))
    name = {"TRA": "TRA", "TRB": "TRB", "IGH": "heavy"}.get(locus, "light")
    return draft.done([], rng.choice(["\t", ","]), named=False, options={"chains": [name]})


# -------------------------------------------------------------------------------------------------- single cells, OAS

_BD = {"TRA": "TCR_Alpha_Gamma", "TRB": "TCR_Beta_Delta", "IGH": "BCR_Heavy", "IGK": "BCR_Light", "IGL": "BCR_Light"}


def bd_per_cell(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """BD Rhapsody's _VDJ_perCell.csv: comment lines, bare CDR3s, every kind of chain beside the others."""
    fields = ("V_gene_Dominant", "D_gene_Dominant", "J_gene_Dominant", "C_gene_Dominant", "CDR3_Nucleotide_Dominant",
              "CDR3_Translation_Dominant", "Read_Count", "Molecule_Count")  # fmt: skip
    header = ["Cell_Index", "Total_VDJ_Read_Count", "Total_VDJ_Molecule_Count"]
    header += [f"{kind}_{field}" for kind in dict.fromkeys(_BD.values()) for field in fields] + ["TCR_Paired_Chains"]
    draft = Draft(rng, quirks)
    for number, cell in enumerate(cells, start=5):
        values = {"Cell_Index": str(number), "TCR_Paired_Chains": "False"}
        for chain in cell.chains:
            own = (
                f"{chain.v}*01",
                "",
                f"{chain.j}*01",
                chain.c,
                chain.junction_nt[3:-3],
                chain.cdr3,
                chain.reads,
                chain.umis,
            )
            values |= {f"{_BD[chain.locus]}_{field}": str(value) for field, value in zip(fields, own)}
        draft.rows.append([values.get(name, "0" if name.endswith("_Count") else "") for name in header])
        draft.receptors.append((str(number), tuple(found(c, f"{c.v}*01", f"{c.j}*01") for c in cell.chains)))
    preamble = "".join(
        f"## {line}\n" for line in ("#####", "BD Rhapsody", "Run: x", "Reference: y", "Bioproduct: z", "#####")
    )
    return draft.done(header, ",", preamble=preamble)


def _oas_values(chain: Chain) -> dict[str, str]:
    values = {
        "sequence": chain.domain_nt,
        "locus": chain.locus[2],
        "stop_codon": "F",
        "vj_in_frame": "T",
        "productive": "T",
    }
    values |= {
        "v_call": f"{chain.v}*01",
        "j_call": f"{chain.j}*01",
        "sequence_alignment": chain.domain_nt,
        "rev_comp": "F",
    }
    values |= {"sequence_alignment_aa": chain.domain, "cdr3_aa": chain.cdr3, "junction_aa": chain.junction}
    return values | {"ANARCI_numbering": "{'fwh1': {'1 ': 'Q', '2 ': 'V'}}", "Redundancy": str(chain.umis)}


_OAS = _names(
    """sequence locus stop_codon vj_in_frame productive rev_comp v_call d_call j_call sequence_alignment
        sequence_alignment_aa cdr3_aa junction_aa ANARCI_numbering ANARCI_status Redundancy"""
)
_OAS_METADATA = {"Run": "SRR1", "Author": "A et al., 2020", "Species": "human", "Chain": "Heavy", "Unique sequences": 3}


def _oas_preamble() -> str:
    text = json.dumps(_OAS_METADATA).replace('"', '""')
    return f'"{text}"\n'


def oas(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    draft = Draft(rng, quirks)
    for chain in _singles(cells):
        draft.rows.append([_oas_values(chain).get(name, "") for name in _OAS])
        draft.receptors.append((None, (found(chain, f"{chain.v}*01", f"{chain.j}*01", whole=True),)))
    return draft.done(_OAS, ",", preamble=_oas_preamble())


def oas_paired(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    cells = [cell for cell in cells if len(cell.chains) == 2]
    header = [f"{name}_{arm}" for arm in ("heavy", "light") for name in ("sequence_id", *_OAS)]
    draft = Draft(rng, quirks)
    for cell in cells:
        row = []
        for k, chain in enumerate((cell.of("IGH"), cell.of("IGK", "IGL"))):
            values = _oas_values(chain) | {"sequence_id": f"{cell.name}_contig_{k + 1}"}
            row += [
                values.get(name.rpartition("_")[0], "") for name in header[k * len(header) // 2 :][: len(header) // 2]
            ]
        draft.rows.append(row)
        chains = tuple(found(chain, f"{chain.v}*01", f"{chain.j}*01", whole=True) for chain in cell.chains)
        draft.receptors.append((None, chains))
    return draft.done(header, ",", preamble=_oas_preamble())


# ------------------------------------------------------------------------------------------------------ any table


def mapped(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """Any table with a chain a row and a column map."""
    missing = rng.choice(["", "NA", "None", "nan", "NULL", "N/A", "<NA>", "NaN"])
    names = {
        "receptor_id": "who",
        "locus": "which",
        "v_call": "V",
        "j_call": "J",
        "junction_aa": "loop",
        "sequence_aa": "all",
    }
    draft, whole = Draft(rng, quirks), rng.random() < 0.5
    for cell in cells:
        for chain in cell.chains:
            domain = draft.residues(chain.domain) if whole else missing
            draft.rows.append([cell.name, chain.locus, chain.v, chain.j, draft.residues(chain.junction), domain])
        draft.receptors.append((cell.name, tuple(found(chain, whole=whole) for chain in cell.chains)))
    return draft.done(list(names.values()), rng.choice(",;\t"), options={"columns": names})


def mapped_wide(rng: random.Random, cells: list[Cell], quirks: Quirks) -> Written:
    """A row a receptor; the column map names each chain's own columns."""
    kinds = PAIRS["TCR" if cells[0].chains[0].locus.startswith("TR") else "antibody"]
    loci = {"heavy": ("IGH",), "light": ("IGK", "IGL")}
    fields = {"v_call": "V gene", "j_call": "J gene", "junction_aa": "loop"}
    columns = {f"{kind}.{ours}": f"{theirs} of {kind}" for kind in kinds for ours, theirs in fields.items()}
    draft, missing = Draft(rng, quirks), rng.choice(["", "NA", "None"])
    for cell in cells:
        row = [cell.name]
        for kind in kinds:
            chain = cell.of(*loci.get(kind, (kind,)))
            row += [chain.v, chain.j, chain.junction] if chain else [missing] * 3
        draft.rows.append(row)
        draft.receptors.append((cell.name, tuple(found(chain) for chain in cell.chains)))
    header = ["name of it", *columns.values()]
    return draft.done(header, rng.choice(",;\t"), options={"columns": {"receptor_id": "name of it", **columns}})


BOTH, TCR, ANTIBODY = ("TCR", "antibody"), ("TCR",), ("antibody",)
# A format -> what writes it, and the kinds of receptor that it can hold.
WRITERS = {
    "FASTA": (fasta, BOTH),
    "FASTA nucleotides": (fasta_nucleotides, BOTH),
    "FASTA genes in header": (fasta_genes_in_header, BOTH),
    "FASTQ": (fastq, BOTH),
    "AIRR": (airr, BOTH),
    "10x old": (tenx_old, BOTH),
    "10x new": (tenx_new, BOTH),
    "10x AIRR": (tenx_airr, BOTH),
    "VDJdb web": (vdjdb_web, TCR),
    "VDJdb slim": (vdjdb_slim, TCR),
    "VDJdb full": (vdjdb_full, TCR),
    "VDJdb chunk": (vdjdb_chunk, TCR),
    "IEDB": (iedb, BOTH),
    "McPAS": (mcpas, TCR),
    "immunoSEQ v2": (immunoseq_v2, TCR),
    "immunoSEQ v3": (immunoseq_v3, TCR),
    "MiXCR": (mixcr, BOTH),
    "VDJtools": (vdjtools, BOTH),
    "immunarch": (immunarch, BOTH),
    "immunarch paired": (immunarch_paired, BOTH),
    "OLGA": (olga, BOTH),
    "BD perCell": (bd_per_cell, BOTH),
    "OAS": (oas, ANTIBODY),
    "OAS paired": (oas_paired, ANTIBODY),
    "column map": (mapped, BOTH),
    "column map, wide": (mapped_wide, BOTH),
}


def write(rng: random.Random, name: str, quirks: Quirks | None = None, most: int = 5) -> tuple[Written, str]:
    """A file of the named format with random cells, and the kind of receptor in it.

    ``quirks``: drawn where none are given. A file that would have no receptor is drawn again.
    """
    writer, kinds = WRITERS[name]
    receptor = rng.choice(kinds)
    while True:
        written = writer(rng, draw_cells(rng, receptor, most), quirks or draw_quirks(rng))
        if written.receptors:
            return written, receptor
