import pytest
from Bio.Seq import Seq
from hypothesis import given
from hypothesis import strategies as st

from airrformer.parse.nucleotides import looks_like_nucleotides, translate
from airrformer.parse.residues import Rejected


@given(st.lists(st.sampled_from(["TGT", "GCC", "AGC", "TTC", "CAG"]), min_size=1), st.sampled_from(["", "G", "GT"]))
def test_open_frame_1_is_translated_and_a_cut_codon_dropped(codons, cut):
    expected = str(Seq("".join(codons)).translate())
    translation = translate("".join(codons) + cut)
    assert (translation.sequence, translation.frame) == (expected, 1)


def test_rna_lower_case_gaps_and_ambiguity():
    assert translate("ugu-gcn..agn").sequence == "CAX"


def test_stop_at_the_end_is_fine():
    assert translate("TGTGCCTGA").sequence == "CA"


def test_the_frame_that_stays_open_is_taken():
    translation = translate("TTGAACCC")  # frame 1 L N; frame 2 * T ; frame 3 E P
    assert (translation.frame, translation.sequence) == (1, "LN")
    translation = translate("CTGACTGTGCC")  # frame 1 L T V; shifted so that only frame 2 is closed
    assert translation.frame == 1 and [frame for frame, _ in translation.others] == [3]
    assert translate("TTAATGTGCC").frame == 1
    assert translate("TAATGTGCCAGC").frame == 2


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
