import pytest
from hypothesis import given
from hypothesis import strategies as st

from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.parse.residues import REPLACED, Rejected, clean_residues


@given(st.text(AMINO_ACIDS + "X", min_size=1).filter(lambda s: s not in ("NAN", "NA")))
def test_standard_residues_are_kept(sequence):
    assert clean_residues(sequence).sequence == sequence
    assert clean_residues(sequence.lower() + "*").sequence == sequence


@pytest.mark.parametrize(
    ("given_text", "sequence", "changes"),
    [
        ("cassLgf", "CASSLGF", {"lower-case letters": 6}),
        ("CASSF*", "CASSF", {"final stops taken off": 1}),
        ("CAS--SF", "CASSF", {"gaps taken out": 2}),
        ("CAS..SF", "CASSF", {"gaps taken out": 2}),
        ("CASXJUF", "CASXXCF", {"J read as X": 1, "U read as C": 1, "unknown residues X": 1}),
        ("CA SSF", "CASSF", {}),
    ],
)
def test_the_table(given_text, sequence, changes):
    cleaned = clean_residues(given_text)
    assert cleaned.sequence == sequence and dict(cleaned.changes) == changes


@pytest.mark.parametrize(
    ("given_text", "reason"),
    [
        ("CAS*SF", "not productive: '*' at position 4"),
        ("CASS_GF", "not productive: '_' at position 5"),
        ("CASS~GF", "not productive"),
        ("CASS#GF", "not productive"),
        ("CAS1GF", "illegal character '1' at position 4"),
        ("CA<pad>F", "illegal character '<' at position 3"),
        ("CASÖF", "illegal character 'Ö' at position 4"),
        ("", "no sequence"),
        ("*", "no sequence"),
        ("---", "no sequence"),
        ("None", "no sequence"),
        ("NONE", "no sequence"),
        ("NaN", "no sequence"),
        ("NA", "no sequence"),
        (None, "no sequence"),
    ],
)
def test_what_is_rejected_says_why(given_text, reason):
    with pytest.raises(Rejected) as error:
        clean_residues(given_text)
    assert reason in error.value.reason


def test_strict_mends_neither_gaps_nor_letters():
    for text in ("CAS-SF", *(f"CA{letter}F" for letter in REPLACED)):
        with pytest.raises(Rejected, match="strict"):
            clean_residues(text, strict=True)
    assert clean_residues("casf*", strict=True).sequence == "CASF"
