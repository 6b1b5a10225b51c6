import gzip
import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airrformer.receptors import regions as module
from airrformer.receptors.germlines import germline_v, rebuild_chain
from airrformer.receptors.numbering import number
from airrformer.receptors.regions import (
    bounds_from_genes,
    bounds_from_germlines,
    cut,
    junction_of,
    number_chains,
    outside,
)
from airrformer.receptors.tables import REGIONS

DATA = Path(__file__).parents[2] / "data"

TRB = rebuild_chain("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01").sequence_aa
GENES = ("TRBV19*01", "CASSIRSSYEQYF", "TRBJ2-7*01")
LEADER = "MSNQVLCCVVLCLLGANTV"
# 10E8, with the start of its constant region
HEAVY = (
    "EVQLVESGGGLVKPGGSLRLSCSASGFDFDNAWMTWVRQPPGKGLEWVGRITGPGEGWSVDYAAPVEGRFTISRLNSINFLYLEMNNLRMEDSGLYFCARTGKYYDFWSG"
    "YPPGEEYFQDWGRGTLVTVSSASTKGPSVFPL"
)
# A kappa chain that the rhesus profile wins and shifts by one residue (PGDM1400)
KAPPA = (
    "DFVLTQSPHSLSVTPGESASISCKSSHSLIHGDRNNYLAWYVQKPGRSPQLLIYLASSRASGVPDRFSGSGSDKDFTLKISRVETEDVGTYYCMQGRESPWTFGQGTKVDIK"
)
# CDR3 of 37 residues: the domain that is found ends within it (PCT64-like; the J motif is WGQG)
LONG_CDR3 = (
    "EVLLEQSGGEVKQPGASVKISCKASGFNFNNEDVHWVRQAAGQGLEWMAWSKHDDQNVLYAQEFKDRVTVTRDTAANTVYIQMTGLRFEDTALYYCVKGSKFRLREWADY"
    "NEWGLVSAQHGDYVTQLGIWGQGTAIYVSS"
)


AMINO_ACIDS = "ACDEFGHIKLMNPQRSTVWY"
residues = st.text(AMINO_ACIDS)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch):
    monkeypatch.setenv("AIRRFORMER_CACHE", "off")


def regions(sequence, bounds):
    return {name: sequence[slice(*bounds[name])] for name in REGIONS if name in bounds}


def assert_slices_are_the_sequence(sequence, bounds):
    """Regions in order, with no gap between them, within the sequence: together they are its residues."""
    assert list(bounds) == [name for name in REGIONS if name in bounds]
    start, end = min(a for a, _ in bounds.values()), max(b for _, b in bounds.values())
    assert start >= 0 and end <= len(sequence)
    assert all(a < b for a, b in bounds.values())
    assert "".join(regions(sequence, bounds).values()) == sequence[start:end]


def v_genes():
    return module._germlines().genes


@st.composite
def rebuilt(draw, most_changes):
    """A V domain of any locus within other residues, some of them changed; and its bounds."""
    v = draw(st.sampled_from(v_genes()))
    j = draw(st.sampled_from(module._j_residues()[v.allele[:3]]))
    cdr3 = draw(st.text(AMINO_ACIDS, min_size=3, max_size=25))
    before, after = draw(st.text(AMINO_ACIDS, max_size=40)), draw(st.text(AMINO_ACIDS, max_size=60))
    domain = list(v.sequence + cdr3 + j)
    places = st.integers(0, len(domain) - 1)
    for i in draw(st.lists(places, max_size=most_changes, unique=True)):
        domain[i] = draw(st.sampled_from(AMINO_ACIDS))
    shift, f118 = len(before), len(v.sequence) + len(cdr3)
    bounds = {**v.bounds, "cdr3": (len(v.sequence), f118), "fwr4": (f118, f118 + len(j))}
    sequence = before + "".join(domain) + after
    return sequence, {region: (a + shift, b + shift) for region, (a, b) in bounds.items()}


@pytest.mark.parametrize("before", ["", LEADER])
@pytest.mark.parametrize("after", ["", "EDLKNVFPPEVAVFE"])
def test_genes_find_the_domain_within_leader_and_constant_region(before, after):
    sequence = before + TRB + after
    found = regions(sequence, bounds_from_genes(sequence, *GENES))
    assert "".join(found.values()) == TRB
    assert found["cdr3"] == "ASSIRSSYEQY"


def test_genes_on_a_chain_that_starts_late_and_stops_early():
    sequence = TRB[10:-4]
    bounds = bounds_from_genes(sequence, *GENES)
    assert "".join(regions(sequence, bounds).values()) == sequence
    assert bounds["fwr1"][0] == 0 and bounds["fwr4"][1] == len(sequence)


@pytest.mark.parametrize(
    "genes",
    [("TRBV20-1*01", *GENES[1:]), (GENES[0], "CASSLF", GENES[2]), ("TRBV99", *GENES[1:]), (*GENES[:2], "TRBJ1-3*01")],
)
def test_genes_that_do_not_fit_give_none(genes):
    assert bounds_from_genes(TRB, *genes) is None


def test_genes_without_a_junction():
    chain = rebuild_chain(*GENES)
    sequence = LEADER + chain.sequence_aa + "EDLKNVFPPEVAVFE"
    expected = bounds_from_genes(sequence, *GENES)
    assert bounds_from_genes(sequence, "TRBV19*01", None, "TRBJ2-7*01") == expected
    assert bounds_from_genes(sequence, "TRBV19", None, "TRBJ2-7") == expected
    assert bounds_from_genes(sequence, "TRBV20-1", None, "TRBJ2-7") is None
    assert bounds_from_genes(sequence, "TRBV19", None, "TRBJ1-3") is None
    assert bounds_from_genes(sequence[: expected["cdr3"][1]], "TRBV19", None, "TRBJ2-7") is None  # J is missing
    assert bounds_from_genes(sequence + sequence, "TRBV19", None, "TRBJ2-7") is None  # which one?


def demo_chains():
    with gzip.open(DATA / "sars2_tcr.fasta.gz", "rt") as handle:
        for header, sequence in zip(handle, handle):
            _, _, v, junction, j = header[1:].strip().split("|")
            yield sequence.strip(), v, junction, j


def test_numbering_agrees_with_the_germline_bounds():
    chains = list(demo_chains())[::60]
    for (sequence, v, junction, j), numbered in zip(chains, number([sequence for sequence, *_ in chains], workers=2)):
        assert numbered.locus == "TRB"
        assert numbered.bounds == bounds_from_genes(sequence, v, junction, j) == bounds_from_genes(sequence, v, None, j)
        assert numbered.bounds == bounds_from_germlines(sequence).bounds
        assert junction_of(sequence, numbered.bounds) == junction


def test_germlines_say_enough_for_all_demo_tcrs():
    for sequence, v, junction, j in demo_chains():
        found = bounds_from_germlines(sequence)
        assert (found.locus, found.by, found.reason) == ("TRB", "germlines", None)
        assert found.bounds == bounds_from_genes(sequence, v, junction, j)


MIDDLES = {"IGH": "ARDYYGSSYFD", "IGK": "QQYNSYPLT", "IGL": "QSYDSSLSGVV", "TRA": "AVRDSNYQLI"}
MIDDLES |= {"TRB": "ASSLGGDTQY", "TRG": "ATWDGYYKKL", "TRD": "ALGTPYTDKLI"}
# Numbering shifts CDR2 there, or leaves out the first residue; IMGT's gapped sequences agree with the germlines.
NUMBERED_OTHERWISE = (
    *("TRAV12-1*", "TRAV12-3*02", "TRAV13", "TRAV30*", "TRAV40*", "TRBV6-8*"),
    *("TRDV1*01", "TRDV1*02", "TRDV3*", "TRGV6*04"),
)


@pytest.mark.parametrize("locus", MIDDLES)
def test_every_fifth_germline_is_numbered_as_it_is_laid(locus):
    j = next(j for j in module._j_residues()[locus] if j.startswith(("FG", "WG")))
    genes = [v for v in v_genes() if v.allele.startswith(locus)][::5]
    chains = [v.sequence + MIDDLES[locus] + j for v in genes]
    for v, chain, numbered in zip(genes, chains, number(chains, workers=2)):
        laid = bounds_from_germlines(chain)
        if laid is None:  # a few have no Y, F or L two residues before C104
            assert v.sequence[-3] not in "YFL"
            continue
        assert laid.locus == locus and junction_of(chain, laid.bounds) == f"C{MIDDLES[locus]}{j[0]}"
        assert numbered.bounds["cdr3"] == laid.bounds["cdr3"], v.allele
        if not v.allele.startswith(NUMBERED_OTHERWISE):
            assert numbered.bounds == laid.bounds, v.allele


def test_a_v_gene_of_alpha_and_delta_is_of_the_locus_of_its_j_gene():
    v = germline_v("TRAV29/DV5*01").sequence
    assert bounds_from_germlines(v + "AASGGYQKV" + "FGTGTKLQVIP").locus == "TRA"
    assert bounds_from_germlines(v + "AASGGYTDKLI" + "FGKGTRVTVEP").locus == "TRD"


@pytest.mark.parametrize(
    "sequence",
    [
        TRB + "GGGGSGGGGSGGGGS" + TRB,  # two domains
        HEAVY,  # mutated
        TRB[:30] + "A" + TRB[30:],  # an insertion
        TRB[30:],
        TRB[:-9],
        "A" * 70 + TRB,
        "AAAAAAAA" + TRB[8:],  # which residue is the first of FWR1?
        TRB[:-1].replace("C", "S"),
        "ACDEFGHIKLMNPQRSTVWY" * 10,
        "",
    ],
)
def test_what_is_not_clear_is_left_to_numbering(sequence):
    assert bounds_from_germlines(sequence) is None


@settings(max_examples=300, deadline=None)
@given(rebuilt(most_changes=0))
def test_rebuilt_chains_within_other_residues_get_their_own_bounds(chain):
    sequence, bounds = chain
    found = bounds_from_germlines(sequence)
    if found:  # CDR3 or what lies around it may look like a J motif or another domain
        assert found.bounds == bounds
        assert_slices_are_the_sequence(sequence, found.bounds)


@settings(max_examples=300, deadline=None)
@given(rebuilt(most_changes=25))
def test_slices_of_laid_chains_are_their_residues(chain):
    sequence, _ = chain
    found = bounds_from_germlines(sequence)
    if found:
        assert_slices_are_the_sequence(sequence, found.bounds)
        assert_slices_are_the_sequence(*cut(sequence, found.bounds))
        assert outside(sequence, found.bounds).before + cut(sequence, found.bounds)[0] in sequence


def test_slices_of_numbered_chains_are_their_residues():
    random.seed(7)
    sequences = []
    for v in random.sample(v_genes(), 60):
        j = random.choice(module._j_residues()[v.allele[:3]])
        parts = [
            "".join(random.choices(AMINO_ACIDS, k=random.randint(low, high)))
            for low, high in ((0, 40), (3, 40), (0, 60))
        ]
        chain = list(parts[0] + v.sequence + parts[1] + j + parts[2])
        for i in random.sample(range(len(chain)), random.randint(0, 25)):
            chain[i] = random.choice([*AMINO_ACIDS, "X", "", "GS"])
        sequences.append("".join(chain))
    numbered = number(sequences, workers=2)
    assert sum(one.reason is None for one in numbered) > 50
    for sequence, one in zip(sequences, numbered):
        assert bool(one.bounds) is (one.reason is None)
        if one.bounds:
            assert_slices_are_the_sequence(sequence, one.bounds)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(AMINO_ACIDS + "X", max_size=400))
def test_any_residues_have_bounds_or_a_reason(sequence):
    (found,) = number_chains([sequence])
    assert bool(found.bounds) is (found.reason is None)
    assert bounds_from_genes(sequence, "TRBV19", None, "TRBJ2-7") is None
    if found.bounds:
        assert_slices_are_the_sequence(sequence, found.bounds)
        assert outside(sequence, found.bounds, found.locus)


def test_numbering_of_a_heavy_chain_with_constant_region():
    (numbering,) = number_chains([HEAVY])
    found = regions(HEAVY, numbering.bounds)
    assert numbering.locus == "IGH"
    assert found["cdr3"] == "ARTGKYYDFWSGYPPGEEYFQD" and found["fwr4"] == "WGRGTLVTVSS"
    assert found["fwr3"].endswith("C") and HEAVY.startswith("".join(found.values()))


def test_numbering_is_not_shifted_by_another_species_profile():
    (numbering,) = number_chains([KAPPA])
    found = regions(KAPPA, numbering.bounds)
    assert found["cdr3"] == "MQGRESPWT" and found["fwr2"] == "LAWYVQKPGRSPQLLIY"


def test_a_long_cdr3_ends_at_the_j_motif():
    (numbering,) = number_chains([LONG_CDR3])
    found = regions(LONG_CDR3, numbering.bounds)
    assert found["cdr3"] == "VKGSKFRLREWADYNEWGLVSAQHGDYVTQLGI"
    assert found["fwr4"] == "WGQGTAIYVSS"


def test_what_is_no_domain_says_why_and_the_rest_goes_on():
    found = number_chains(["A" * 200, TRB, "CASSIRSSYEQYF", "A" * 200_000, TRB, HEAVY])
    assert [bool(numbering.bounds) for numbering in found] == [False, True, False, False, True, True]
    assert [numbering.by for numbering in found if numbering.bounds] == ["germlines", "germlines", "numbering"]
    assert found[0].reason == found[2].reason == "no V domain found" and "200000" in found[3].reason
    assert found[1] == found[4]


def test_no_sequences_give_no_numbering():
    assert number_chains([]) == []


@pytest.mark.parametrize(
    ("locus", "gene", "constant"),
    [
        ("TRB", "TRBC", "EDLKNVFPPEVAVFEPSEAEISHTQKATL"),
        ("TRA", "TRAC", "NIQNPDPAVYQLRDSKSSDKSVCLFTDFDS"),
        ("TRA", "TRAC", "XIQNPEPAVYQLKDPRSQDSTL"),
        ("TRA", "TRAC", "N"),  # whose codon is split between J and C
        ("TRB", "TRBC", "E"),
        ("IGH", "IGHG", "ASTKGPSVFPLAPSSKSTSGGTAALGCLV"),
        ("IGH", "IGHM", "GSASAPTLFPLVSCENSPSDTSSVA"),
        ("IGH", "IGKC", "RTVAAPSVFIFPPSDEQ"),  # a chimera
        ("IGK", "IGKC", "RADAAPTVSIFPPSSEQ"),
        (None, "IGLC", "GQPKAAPSVTLFPPSSEE"),
        (None, None, "RT"),
        ("IGH", None, "GGGGSGGGGSGGGGS"),
        ("IGH", None, "HHHHHH"),
        ("IGH", None, ""),
    ],
)
def test_constant_region(locus, gene, constant):
    bounds = bounds_from_germlines(TRB).bounds
    found = outside(TRB + constant, bounds, locus)
    assert (found.before, found.after, found.constant) == ("", constant, gene)
    assert bool(found.notes) is (bool(constant) and gene is None)


@pytest.mark.parametrize(
    ("before", "leader"),
    [(LEADER, True), ("", False), ("M", False), ("MA" * 25, False), ("G" + LEADER, False)],
)
def test_leader(before, leader):
    bounds = bounds_from_germlines(before + TRB).bounds
    found = outside(before + TRB, bounds)
    assert (found.before, found.leader) == (before, leader)
    assert bool(found.notes) is (bool(before) and not leader)


def test_notes_say_what_is_neither():
    sequence = "GSHM" + TRB + "E" + "H" * 20
    assert outside(sequence, bounds_from_germlines(sequence).bounds).notes == [
        "4 residues before FWR1, no leader: GSHM",
        "21 residues after FWR4, of no known region: EHHHHHHHHHHH...",
    ]


def test_cutting_leaves_the_v_domain():
    sequence = LEADER + TRB + "EDLKNVFPPEVAVFE"
    domain, bounds = cut(sequence, bounds_from_germlines(sequence).bounds)
    assert domain == TRB and bounds == bounds_from_germlines(TRB).bounds
