"""How like the training receptors a new one is: counted in edits, said in words."""

import pandas as pd
import pytest

from airrformer.classify.novelty import Training, nearest_training


def letters(*rows):
    """(V gene, CDR3) of TRB; CDR1 and CDR2 are those of one gene."""
    return pd.DataFrame(
        [
            {"TRB_cdr1": "SGHDT", "TRB_cdr2": "YYEEEE", "TRB_cdr3": cdr3, "TRB_v": v, "TRB_j": "TRBJ2-7"}
            for v, cdr3 in rows
        ]
    )


@pytest.fixture
def training():
    known = letters(
        ("TRBV9", "ASSIRSSYEQY"), ("TRBV9", "ASSIRSAYEQY"), ("TRBV19", "ASSLGGSYEQY"), ("TRBV19", "ASSLGGTYEQY")
    )
    return Training.of(["a", "b", "c", "d"], ["X", "X", "Y", "Y"], known)


def test_the_nearest_come_first_with_their_labels(training):
    assert training.usual == 1  # each has one a single edit away
    found = nearest_training(["new"], letters(("TRBV9", "ASSIRSSYEQF")), training)
    assert found["training_receptor"].tolist()[:2] == ["a", "b"] and found["labels"].tolist()[:2] == ["X", "X"]
    assert found["edits"].tolist()[:2] == [1, 2] and found["rank"].tolist() == [1, 2, 3]
    assert found["warning"].unique().tolist() == [""]


def test_what_is_unlike_is_said(training):
    new = letters(("TRBV9", "ASSWWWWWWQY"), ("TRBV13-2", "ASSIRSSYEQY"), ("TRBV9", "ASSIRSSSSSSSSYEQY"), ("TRBV9", ""))
    found = nearest_training(["far", "gene", "long", "bare"], new, training)
    warning = found.drop_duplicates("receptor_id").set_index("receptor_id")["warning"]
    assert warning["far"].startswith("the nearest training receptor is 6 edits away; 99% of the training receptors")
    assert warning["gene"] == "TRBV13-2 is the V gene of no training receptor"
    assert "the TRB CDR3 has 17 residues; in training 11 to 11" in warning["long"]


def test_a_receptor_without_any_cdr_is_compared_with_none(training):
    new = letters(("TRBV9", "")).assign(TRB_cdr1="", TRB_cdr2="")
    found = nearest_training(["bare"], new, training)
    assert found["training_receptor"].isna().all() and found["warning"].str.startswith("no CDR is known").all()


def test_saved_and_read_again(training):
    again = Training.from_table(training.table(), training.usual)
    assert again.ids == training.ids and again.labels == training.labels and again.letters.equals(training.letters)


def test_one_training_receptor():
    alone = Training.of(["a"], ["X"], letters(("TRBV9", "ASSIRSSYEQY")))
    found = nearest_training(["new"], letters(("TRBV9", "ASSIRSSYEQY")), alone)
    assert found["edits"].tolist() == [0] and len(found) == 1
