"""How like the training receptors a new one is: counted in edits, said in words."""

import pandas as pd
import pytest

from airrformer.classify.novelty import Kinds, Training, nearest_training


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
    again = Training.from_table(training.table(), training.usual, training.kinds)
    assert again.ids == training.ids and again.labels == training.labels and again.letters.equals(training.letters)


def pairs(*rows):
    """(CDR3 of TRA, CDR3 of TRB); the CDR1s and CDR2s of all chains are the same, and there are no genes."""
    columns = {}
    for chain, loops in zip(("TRA", "TRB"), zip(*rows)):
        for part, text in {"cdr1": "SGHDT", "cdr2": "YNNE", "cdr3": None, "v": "", "j": ""}.items():
            columns[f"{chain}_{part}"] = [loop if text is None else text if loop else "" for loop in loops]
    return pd.DataFrame(columns)


def test_edits_are_those_over_what_both_have():
    known = pairs(("AVRDSNYQLI", "ASSIRSSYEQY"), ("AVNTGNQFYF", "ASSIRSSYEQY"), ("", "ASSLGGTYEQY"))
    training = Training.of(["a", "b", "c"], ["X", "X", "Y"], known)
    found = nearest_training(["lone"], pairs(("", "ASSIRSAYEQY")), training)
    assert found["training_receptor"].tolist() == ["a", "b", "c"]
    assert found["edits"].tolist() == [1, 1, 4]  # I>L, R>G, S>G, S>T; nothing for the alpha chains
    assert found["compared"].tolist() == ["TRB CDR1,2,3"] * 3
    assert found["warning"][0] == "the TRA chain is not known; in training it was for 67%"
    whole = nearest_training(["whole"], pairs(("AVRDSNYQLI", "ASSIRSAYEQY")), training)
    assert whole["compared"].tolist() == ["TRA CDR1,2,3 TRB CDR1,2,3"] * 2 + ["TRB CDR1,2,3"]
    # c differs by 4 in what is known, b by 8 in all: what c lacks counts 7, the edits between two known alpha chains
    assert whole["training_receptor"].tolist() == ["a", "b", "c"] and whole["edits"].tolist() == [1, 8, 4]


def kinds_of(*rows):
    told = pd.DataFrame(rows, columns=["receptor_id", "chain", "locus", "species", "conflict"], dtype=object)
    return told.assign(granted=[receptor == "bare" for receptor in told["receptor_id"]])


def test_another_species_and_another_locus_are_said_of_each():
    known = pairs(*[("ARDYW", "QQYNS")] * 3).rename(
        columns=lambda name: name.replace("TRA", "heavy").replace("TRB", "light")
    )
    chains = pd.DataFrame({"chain": ["heavy", "light"] * 100, "locus": ["IGH", "IGK"] * 99 + ["IGH", "IGL"]})
    chains["note"] = ["taken as heavy, the dataset's one chain" if i == 0 else None for i in range(200)]
    kinds = Kinds.of(chains, {"human": 199, "mouse": 1})
    assert kinds == Kinds(["human"], {"heavy": ["IGH"], "light": ["IGK", "IGL"]})  # 1 of 200 is rare, 1 of 100 is not
    training = Training.of(["a", "b", "c"], ["X"] * 3, known, Kinds(["human"], {"heavy": ["IGH"], "light": ["IGK"]}))
    told = kinds_of(
        ("like", "heavy", "IGH", "human", None), ("like", "light", "IGK", None, None),
        ("mouse", "heavy", "IGH", "mouse", None), ("mouse", "light", "IGK", "mouse", None),
        ("lambda", "heavy", "IGH", None, None), ("lambda", "light", "IGL", None, None),
        ("odd", "heavy", "IGH", None, "given as IGH, but looks like TRB"), ("odd", "light", None, None, None),
        ("bare", "heavy", "IGH", None, None), ("bare", "light", None, None, None),
    )  # fmt: skip
    found = nearest_training(["like", "mouse", "lambda", "odd", "bare"], pd.concat([known, known[:2]]), training, told)
    warning = found[found["rank"] == 1].set_index("receptor_id")["warning"]
    assert warning.to_dict() == {
        "like": "",
        "mouse": "it is of mouse; the training receptors are of human",
        "lambda": "the light chain is of IGL; those of training are of IGK",
        "odd": "the heavy chain is given as IGH, but looks like TRB",
        "bare": "nothing says that its chain is heavy; of those of training something does; "
        "nothing says that its chain is light; of those of training something does",
    }


def test_where_nothing_is_known_of_training_nothing_is_said():
    training = Training.of(["a"], ["X"], pairs(("AVRD", "ASSI")))
    told = kinds_of(("new", "TRB", "TRB", "mouse", None))
    assert nearest_training(["new"], pairs(("AVRD", "ASSI")), training, told)["warning"].tolist() == [""]


def test_one_training_receptor():
    alone = Training.of(["a"], ["X"], letters(("TRBV9", "ASSIRSSYEQY")))
    found = nearest_training(["new"], letters(("TRBV9", "ASSIRSSYEQY")), alone)
    assert found["edits"].tolist() == [0] and len(found) == 1
