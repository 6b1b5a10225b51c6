import pytest
from Bio.Seq import Seq
from hypothesis import given
from hypothesis import strategies as st

from airrformer.parse.nucleotides import Translation, looks_like_nucleotides, translate
from airrformer.parse.residues import Rejected


@given(st.lists(st.sampled_from(["TGT", "GCC", "AGC", "TTC", "CAG"]), min_size=1), st.sampled_from(["", "G", "GT"]))
def test_open_frame_1_is_translated_and_a_cut_codon_dropped(codons, cut):
    expected = str(Seq("".join(codons)).translate())
    translation = translate("".join(codons) + cut)
    assert (translation.sequence, translation.frame) == (expected, 1)


def test_rna_lower_case_gaps_and_ambiguity():
    assert translate("ugu-gcn..agn").sequence == "CAX"


@pytest.mark.parametrize("codon", ["SAR", "RAY", "MTT", "NNN"])
def test_codons_that_leave_a_choice_are_x(codon):
    assert translate(f"TGT{codon}AGC").sequence == "CXS"


def test_stop_at_the_end_is_fine():
    assert translate("TGTGCCTGA").sequence == "CA"


def test_the_frame_that_stays_open_is_taken():
    translation = translate("TTGAACCC")  # frame 1 L N; frame 2 * T ; frame 3 E P
    assert (translation.frame, translation.sequence) == (1, "LN")
    translation = translate("CTGACTGTGCC")  # frame 1 L T V; shifted so that only frame 2 is closed
    assert translation.frame == 1 and [frame for frame, _ in translation.others] == [3, -1, -2, -3]
    assert translate("TTAATGTGCC").frame == 1
    assert translate("TAATGTGCCAGC").frame == 2


def test_the_frame_and_strand_of_the_junction_are_taken():
    chain = "TAATGA" + "TGTGCCAGCAGTATACGGTCTTCTTACGAGCAGTACTTC" + "TGATAG"
    found = translate(f"G{chain}", junction_aa="CASSIRSSYEQYF")
    assert (found.frame, found.sequence) == (2, "CASSIRSSYEQYF")  # what the stops around it leave
    opposite = str(Seq(chain).reverse_complement())
    assert translate(opposite, junction_aa="CASSIRSSYEQYF") == Translation("CASSIRSSYEQYF", -1)
    # AIRR's own example says rev_comp of sequences that run forward
    assert translate(chain, reverse=True, junction_aa="CASSIRSSYEQYF").frame == 1
    assert translate("GCTGGCACA", reverse=True).sequence == "CAS"


def test_a_contig_with_stops_in_every_frame_gives_its_long_open_part():
    domain = "GAA" * 95
    found = translate(f"TAATTAATTAATTAA{domain}TGATTGATTGA")
    assert found.part and any("E" * 95 in protein for _, protein in [(found.frame, found.sequence), *found.others])
    assert not translate(domain).part


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("TAATTAATTAATTAA", "stop codon in every"),
        ("TGTE", "illegal nucleotide 'E' at position 4"),
        ("TG", "fewer"),
        ("nan", "no"),
    ],
)
def test_what_cannot_be_translated_says_why(text, reason):
    with pytest.raises(Rejected, match=reason):
        translate(text)


@pytest.mark.parametrize(
    ("sequences", "answer"),
    [
        (["ACGT" * 20], (True, 80)),
        (["acgu" * 20], (True, 80)),
        (["CATTGAGAT"], (True, 9)),
        (["ACGT" * 20 + "RYK"], (True, 83)),
        (["KSWKSWKSW" * 9], (False, 81)),
        (["CASSF"], (False, 5)),
        ([], (False, 0)),
    ],
)
def test_nucleotides_are_told_by_all_letters_of_a_file(sequences, answer):
    assert looks_like_nucleotides(sequences) == answer
