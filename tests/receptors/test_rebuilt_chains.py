import csv
import gzip
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from airrformer.receptors.genes import genes_of
from airrformer.receptors.germlines import (
    germline_j,
    germline_j_of_junction,
    germline_v,
    rebuild_chain,
)
from airrformer.receptors.tables import REGIONS

DATA = os.environ.get("AIRRFORMER_DATA")
needs_data = pytest.mark.skipif(not DATA, reason="AIRRFORMER_DATA names no folder of real receptors")


def test_rebuilt_chain_of_the_teaching_example():
    # TRBV19, CASSIRSSYEQYF, TRBJ2-7: germline V from its first residue after the leader
    chain = rebuild_chain("TRBV19", "CASSIRSSYEQYF", "TRBJ2-7*01")
    assert chain.sequence_aa == (
        "DGGITQSPKYLFRKEGQNVTLSCEQNLNHDAMYWYRQDPGQGLRLIYYSQIVNDFQKGDIAEGYSVSREKKESFPLTVTSAQKNPTAFYL"
        "CASSIRSSYEQYFGPGTRLTVT"
    )
    regions = {name: chain.sequence_aa[slice(*chain.bounds[name])] for name in REGIONS}
    assert "".join(regions.values()) == chain.sequence_aa
    assert regions["cdr1"] == "LNHDA" and regions["cdr2"] == "SQIVND" and regions["cdr3"] == "ASSIRSSYEQY"
    assert regions["fwr3"].endswith("C") and regions["fwr4"].startswith("F")
    assert chain.note == "TRBV19 taken as TRBV19*01"


def test_junction_is_never_mended():
    chain = rebuild_chain("TRBV19*01", "VVSSLGF", "TRBJ2-7*01")
    assert "FYLVVSSLGFGPG" in chain.sequence_aa
    assert chain.note == "junction starts with V, not C104"


@pytest.mark.parametrize(
    ("v", "junction", "j", "words"),
    [
        ("TRBV12-1*01", "CASSF", "TRBJ2-7", "TRBV12-1.* no complete germline"),
        ("TRBV12-3,TRBV12-4", "CASSF", "TRBJ2-7", "V gene TRBV12-3 or TRBV12-4 is a tie"),
        ("TRBV19", "CASSF", "TRBJ2-1,TRBJ2-5", "J gene TRBJ2-1 or TRBJ2-5 is a tie"),
        ("TRBV19", "CASSF", "", "no J gene given"),
        ("unresolved", "CASSF", "TRBJ2-7", "no V gene given"),
        ("TRBV99", "CASSF", "TRBJ2-7", "gene TRBV99 is not known"),
        ("TRBJ2-7", "CASSF", "TRBJ2-7", "is no V gene"),
        ("TRBV19", "CF", "TRBJ2-7", "too short"),
    ],
)
def test_what_cannot_be_rebuilt_says_why(v, junction, j, words):
    with pytest.raises(ValueError, match=words):
        rebuild_chain(v, junction, j)


def test_no_germline_of_a_species_without_known_genes():
    with pytest.raises(ValueError, match=r"no genes of rhesus are known"):
        germline_v("TRBV6-1*01", "rhesus")
    with pytest.raises(ValueError, match="no complete germline residues"):
        germline_v("IGHV1-72", "musmusculus")


def test_a_tie_of_genes_with_the_same_residues_is_none():
    chain = rebuild_chain("TRBV6-2*01,TRBV6-3*01", "CASSYF", "TRBJ2-7*01")
    assert chain.sequence_aa == rebuild_chain("TRBV6-3*01", "CASSYF", "TRBJ2-7*01").sequence_aa
    assert chain.note == (
        "TRBV6-2*01,TRBV6-3*01 taken as TRBV6-2*01, whose residues are those of all of TRBV6-2*01,TRBV6-3*01"
    )


@pytest.mark.parametrize(
    ("call", "species", "allele"),
    [
        ("TRBV7-9*07", "homosapiens", "TRBV7-9*01"),  # residues of the given allele end within FWR3
        ("TRBV12-2", "homosapiens", "TRBV12-2*02"),  # *01 is a pseudogene without residues
        ("IGKV1-13", "homosapiens", "IGKV1-13*02"),
        ("IGHV2-70D", "homosapiens", "IGHV2-70D*04"),  # there is no *01
    ],
)
def test_an_allele_without_complete_residues_is_taken_as_the_first_that_has_them(call, species, allele):
    assert germline_v(call, species).allele == allele


def test_another_first_allele_is_told():
    note = "TRBV12-2 taken as TRBV12-2*02, the first allele with complete residues"
    assert rebuild_chain("TRBV12-2", "CASSF", "TRBJ2-7*01").note == note
    assert germline_j("TRAJ4", "musmusculus").allele == "TRAJ4*02"


def test_cdrs_are_what_lies_between_the_frameworks():
    # the CDR1 field of this allele lacks its first residue, N
    v = germline_v("TRAV23/DV6*04")
    assert v.sequence[slice(*v.bounds["cdr1"])] == "NTAFDY"


def test_regions_of_an_allele_without_them_are_those_of_another():
    v = germline_v("IGLV1-47")
    assert v.allele == "IGLV1-47*01"
    assert [v.sequence[slice(*v.bounds[region])] for region in ("cdr1", "cdr2")] == ["SSNIGSNY", "RNN"]
    assert v.sequence.endswith("EADYYC")


@pytest.mark.parametrize(
    ("j", "anchor", "tail"),
    [
        ("TRBJ2-7*01", "F", "GPGTRLTVT"),
        ("TRAJ33*01", "W", "GAGTKLIIKP"),
        ("TRAJ16*01", "F", "ARGTMLKVDL"),
        ("TRAJ35*01", "C", "GSGTQVIVLP"),
        ("IGHJ4*02", "W", "GQGTLVTVSS"),
        ("IGKJ1*01", "F", "GQGTKVEIK"),
    ],
)
def test_j_genes_are_cut_at_118(j, anchor, tail):
    found = germline_j(j)
    assert (found.anchor, found.tail) == (anchor, tail)


@pytest.mark.parametrize(
    ("kind", "species", "v_genes", "j_genes"),
    [("TR", "homosapiens", 103, 73), ("TR", "musmusculus", 145, 58), ("IG", "homosapiens", 137, 17)],
)
def test_every_functional_gene_can_be_rebuilt(kind, species, v_genes, j_genes):
    functional = [gene for gene, alleles in genes_of(kind, species).items() if "F" in alleles.values()]
    v = [germline_v(gene, species) for gene in functional if gene[3] == "V"]
    j = [germline_j(gene, species) for gene in functional if gene[3] == "J"]
    assert (len(v), len(j)) == (v_genes, j_genes)
    for germline in v:
        ends = [0, *(germline.bounds[region][1] for region in ("fwr1", "cdr1", "fwr2", "cdr2", "fwr3"))]
        assert [start for start, _ in germline.bounds.values()] == ends[:-1] and ends[-1] == len(germline.sequence)
        assert germline.sequence.endswith("C") and germline.sequence.isalpha()
        assert 19 <= ends[1] <= 27 and 3 <= ends[2] - ends[1] <= 12 and 2 <= ends[4] - ends[3] <= 10, germline
    cysteine_at_118 = {"homosapiens": {"TRAJ35*01"}, "musmusculus": {"TRAJ47*01"}}[species] if kind == "TR" else set()
    assert {germline.allele for germline in j if germline.anchor not in "FW"} == cysteine_at_118


# ------------------------------------------------------------------------------------------------------- real chains


def _rows(path: Path, delimiter: str = "\t"):
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter=delimiter)


def _stitched(rows):
    """Of both chains of each row: whether the rebuilt domain lies between leader and constant region; its note."""
    constant = {"A": "[A-Z]IQNPDPAVYQL", "B": "[A-Z]DL[KN]"}
    for row in rows:
        for x in "AB":
            chain = rebuild_chain(row[f"TR{x}V"], row[f"TR{x}_CDR3"], row[f"TR{x}J"])
            whole = re.match(f"M[A-Z]{{14,28}}{chain.sequence_aa}{constant[x]}", row[f"TR{x}_aa"])
            yield whole is not None, chain.note, row[f"TR{x}_CDR3"]


@needs_data
def test_chains_of_immrep22_are_rebuilt():
    """22,831 of 22,874 are the same (99.8 %); of the alpha chains 11,394 of 11,437, of the beta chains all.

    The other 43 are alpha chains whose junction lacks an anchor: 23 do not begin with C104, 20 end before F118. Such
    a junction is never mended, and its note says so; Stitchr, which made these chains, adds what is missing.
    """
    outcomes = [o for path in sorted(Path(DATA, "immrep22", "train").glob("*.tsv.gz")) for o in _stitched(_rows(path))]
    differ = Counter(note.split(" with ")[0] for same, note, _ in outcomes if not same)
    assert len(outcomes) == 22_874
    assert differ == {"junction starts": 23, "junction ends": 20}


@needs_data
def test_paired_controls_are_rebuilt():
    """All of 21,090 chains are the same."""
    rows = _rows(Path(DATA, "tcr_controls_paired", "controls_paired.tsv.gz"))
    assert Counter(same for same, _, _ in _stitched(rows)) == {True: 21_090}


@needs_data
def test_chains_of_iedb_are_rebuilt():
    """14,074 of 14,148 are the same (99.5 %): all beta chains, and 6,956 of 7,030 alpha chains.

    These chains end with the first residue of the constant region. Of the 74 that differ

    - 68 have TRAJ35, with C118: anchors were added to CDR3s that had theirs, and the chain has the end of J twice;
    - 5 have TRAV35*02, with D in FWR2 where these chains have the E of TRAV35*01;
    - 1 has a junction that lacks its last two residues (CARNTGNQF, TRAJ49).
    """
    differ, same = Counter(), 0
    for row in _rows(Path(DATA, "iedb_paired_tcr", "immrep_IEDB.filtered.csv.gz"), ","):
        for x in "ab":
            if not row[f"TCR{x}"]:
                continue
            chain = rebuild_chain(row[f"V{x}"], row[f"CDR3{x}_extended"], row[f"J{x}"])
            if row[f"TCR{x}"][:-1] == chain.sequence_aa and row[f"TCR{x}"][-1] in {"a": "NDYH", "b": "E"}[x]:
                same += 1
            elif row["Va"] == "TRAV35*02":
                differ["TRAV35*02"] += 1
            else:
                differ[row[f"J{x}"]] += 1
    assert same == 14_074
    assert differ == {"TRAJ35*01": 68, "TRAV35*02": 5, "TRAJ49*01": 1}


def test_without_a_j_gene_the_end_of_the_junction_tells_it():
    chain = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "")
    assert chain.sequence_aa == rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
    assert chain.note == "no J gene given, the junction ends like TRBJ2-7*01"
    assert germline_j_of_junction("CASSF", "TRB") is None
    assert germline_j_of_junction("CARDYYGSSYFDYW", "IGH").tail == "GQGTLVTVSS"
    assert germline_j_of_junction("CAVSGNSNNRLTL", "TRA", "musmusculus").allele == "TRAJ7*01"


@needs_data
def test_what_follows_the_junction_is_told_by_its_end_in_the_iedb():
    """Of the chains whose J gene is known: FWR4 right, wrong, and not told."""
    with gzip.open(f"{DATA}/iedb_paired_tcr/immrep_IEDB.filtered.csv.gz", "rt") as file:
        rows = list(csv.DictReader(file))
    counts = {}
    for chain, locus in (("a", "TRA"), ("b", "TRB")):
        known = [(row[f"J{chain}"], row[f"CDR3{chain}_extended"]) for row in rows if row[f"J{chain}"] != "unknown"]
        told = [(germline_j(j), germline_j_of_junction(junction, locus)) for j, junction in known]
        right = sum(found is not None and found.tail == given.tail for given, found in told)
        none = sum(found is None for _, found in told)
        counts[locus] = (right, len(told) - right - none, none)
    assert counts == {"TRA": (6274, 80, 700), "TRB": (6519, 171, 429)}


def test_first_residues_that_an_allele_lacks_are_those_of_another():
    partial, whole = germline_v("TRBV29-1*03"), germline_v("TRBV29-1*01")
    assert partial.sequence[:26] == whole.sequence[:26] and len(partial.sequence) == len(whole.sequence)
    assert partial.bounds == whole.bounds and partial.sequence != whole.sequence
    note = rebuild_chain("TRBV29-1*03", "CASSIRSSYEQYF", "TRBJ2-7*01").note
    assert note == "the first 19 residues of TRBV29-1*03 are not known and those of TRBV29-1*01"


@pytest.mark.parametrize(
    ("allele", "species", "cdr2"),
    [
        ("TRDV3*01", "homosapiens", "GDNSR"),
        ("IGHV4-59*13", "homosapiens", "IYYSGST"),
        ("TRDV1*01", "musmusculus", "LQK"),
    ],
)
def test_regions_that_are_not_as_imgt_has_them_are_those_of_another_allele(allele, species, cdr2):
    germline = germline_v(allele, species)
    assert germline.allele == allele and germline.sequence[slice(*germline.bounds["cdr2"])] == cdr2
