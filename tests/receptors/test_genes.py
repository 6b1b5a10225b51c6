import pytest

from airrformer.receptors.genes import germline_j, germline_v, rebuild_chain, standardise
from airrformer.receptors.tables import REGIONS


@pytest.mark.parametrize(
    ("given", "symbol"),
    [
        ("TRBV19", "TRBV19"),
        ("TRBV19*01", "TRBV19*01"),
        ("TCRBV19-01*01", "TRBV19*01"),
        ("TRBJ02-01", "TRBJ2-1"),
        ("TRAV29DV5", "TRAV29/DV5"),
        ("TRAV29-DV5", "TRAV29/DV5"),
        ("TRAV29/DV5*01", "TRAV29/DV5*01"),
        ("TRDV4", "TRAV14/DV4"),
        ("TRBV16*01,TRBV16*02", "TRBV16"),
        ("TRBV6-2*01,TRBV6-3*01", "TRBV6-2*01,TRBV6-3*01"),
        ("TCRBJ02-01,TCRBJ02-05", "TRBJ2-1,TRBJ2-5"),
        ("IGHV1-69*01 or IGHV1-69D*01", "IGHV1-69*01,IGHV1-69D*01"),
    ],
)
def test_spellings_become_one_symbol(given, symbol):
    call = standardise(given)
    assert call.symbol == symbol
    assert call.ambiguous == ("," in symbol)


@pytest.mark.parametrize(
    ("given", "receptor", "words"),
    [
        ("TCRAV7S2", None, "old (Arden) nomenclature"),
        ("Va7.2", "TCR", "old (Arden) nomenclature"),
        ("TRBV13-2*01", None, "no human gene; it is one of the mouse"),
        ("IGHV1-69", "TCR", "antibody gene"),
        ("TRBV19", "antibody", "TCR gene"),
        ("unresolved", None, "not known"),
    ],
)
def test_names_that_are_no_gene_say_why(given, receptor, words):
    call = standardise(given, receptor)
    assert call.symbol is None
    assert given in call.note and words in call.note


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
        ("TRBV6-2,TRBV6-3", "CASSF", "TRBJ2-7", "V gene TRBV6-2 or TRBV6-3 is a tie"),
        ("TRBV19", "CASSF", "", "no J gene given"),
        ("TRBJ2-7", "CASSF", "TRBJ2-7", "is no V gene"),
        ("TRBV19", "CF", "TRBJ2-7", "too short"),
    ],
)
def test_what_cannot_be_rebuilt_says_why(v, junction, j, words):
    with pytest.raises(ValueError, match=words):
        rebuild_chain(v, junction, j)


def test_an_allele_without_complete_residues_is_taken_as_01():
    assert germline_v("TRBV7-9*07").allele == "TRBV7-9*01"


def test_cdrs_are_what_lies_between_the_frameworks():
    # the CDR1 field of this allele lacks its first residue, N
    v = germline_v("TRAV23/DV6*04")
    assert v.sequence[slice(*v.bounds["cdr1"])] == "NTAFDY"


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
