import gzip
from pathlib import Path

import pytest

from airrformer.receptors.genes import rebuild_chain
from airrformer.receptors.regions import bounds_from_genes, junction_of, number_chains
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


def regions(sequence, bounds):
    return {name: sequence[slice(*bounds[name])] for name in REGIONS if name in bounds}


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


def test_numbering_agrees_with_the_germline_bounds():
    chains = []
    with gzip.open(DATA / "sars2_tcr.fasta.gz", "rt") as handle:
        for header, sequence in zip(handle, handle):
            _, _, v, junction, j = header[1:].strip().split("|")
            chains.append((sequence.strip(), v, junction, j))
    chains = chains[::60]
    numbered = number_chains([sequence for sequence, *_ in chains], workers=2)
    for (sequence, v, junction, j), numbering in zip(chains, numbered):
        assert numbering.locus == "TRB"
        assert numbering.bounds == bounds_from_genes(sequence, v, junction, j)
        assert junction_of(sequence, numbering.bounds) == junction


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


def test_what_is_no_domain_gives_none_and_the_rest_goes_on():
    found = number_chains(["A" * 200, TRB, "CASSIRSSYEQYF", "A" * 200_000, TRB])
    assert [numbering is None for numbering in found] == [True, False, True, True, False]
    assert found[1] == found[4]


def test_no_sequences_give_no_numbering():
    assert number_chains([]) == []
