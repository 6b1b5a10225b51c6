"""Receptors as pairs and as loops: what is read, what comes out, and that each residue keeps its place."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
import torch

from airrformer.config import Dataset
from airrformer.config.encoders import LoopsPooling, MaxPooling, MeanPooling, MiniEncoder
from airrformer.core.config import FAMILIES, ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.core.weights import save
from airrformer.embed.encoders import Blosum62, TransformerEncoder, residue_count
from airrformer.embed.extractor import FeatureExtractor
from airrformer.embed.features import dataset_features
from airrformer.embed.stage import embed_file
from airrformer.errors import UserError
from airrformer.parse import parse_input
from airrformer.receptors.forms import bounds_of, written_chains

ALPHA = (
    "GNSVTQMEGPVTLSEEAFLTINCTYTATGYPSLFWYVQYPGEGLQLLLKATKADDKGSNKGFEATYRKETTSFHLEKGSVQVSDSAVYFCALSDSGGSNYKLTFGKGTLLTVNP"
)
BETA = (
    "NAGVTQTPKFQVLKTGQSMTLQCAQDMNHEYMSWYRQDPGMGLRLIHYSVGAGITDQGEVPNGYNVSRSTTEDFPLRLLSAAPSQTSVYFCASSYSGQGNEQYFGPGTRLTVT"
)
LOOPS = "ATGYPS|ATKADDK|ALSDSGGSNYKLT", "MNHEY|SVGAGI|ASSYSGQGNEQY"


@pytest.fixture(scope="module")
def encoder() -> TransformerEncoder:
    model = Transformer(FAMILIES["airrformer-mini"])
    initialise(model, torch.Generator().manual_seed(0))
    return TransformerEncoder(model, "tiny", "cpu")


@pytest.fixture(scope="module")
def parsed(tmp_path_factory):
    path = tmp_path_factory.mktemp("pairs") / "receptors.csv"
    rows = [("one", ALPHA, BETA), ("two", ALPHA, ""), ("three", ALPHA, BETA.replace("SYSGQ", "SWSGQ"))]
    pd.DataFrame(rows, columns=["receptor_id", "a", "b"]).to_csv(path, index=False)
    columns = {"TRA.sequence_aa": "a", "TRB.sequence_aa": "b"}
    dataset = Dataset(sequences=str(path), receptor="TCR", chains=["TRA", "TRB"], missing_chain="zero", columns=columns)
    return dataset, parse_input(path, dataset)


def test_a_pair_has_a_vector_a_residue_and_the_chains_see_each_other(encoder):
    (together,) = encoder.embed_residues([(ALPHA, BETA)])
    alone = encoder.embed_residues([ALPHA, BETA])
    assert together.shape == (len(ALPHA) + len(BETA), encoder.width)
    assert not np.allclose(together[: len(ALPHA)], alone[0], atol=1e-3)
    (swapped,) = encoder.embed_residues([(BETA, ALPHA)])
    assert not np.allclose(together[: len(ALPHA)], swapped[len(BETA) :], atol=1e-3)


def test_batch_mates_do_not_matter(encoder):
    several = [(ALPHA, BETA), BETA, LOOPS, LOOPS[1], (LOOPS[0], BETA)]
    together = encoder.embed(several)
    for i, sequence in enumerate(several):
        assert together[i] == pytest.approx(encoder.embed([sequence])[0], abs=1e-5)


def test_loops_are_read_between_separators_and_not_counted_as_residues(encoder):
    (residues,) = encoder.embed_residues([LOOPS])
    assert len(residues) == residue_count(LOOPS) == sum(len(text) - 2 for text in LOOPS)
    (whole,) = encoder.embed([LOOPS[1]])
    (rows,) = encoder.embed_residues([LOOPS[1]])
    assert whole == pytest.approx(rows.mean(0), abs=1e-5)


def test_pooling_loops_is_the_means_of_length_one_side_by_side(encoder):
    for sequence in (LOOPS, (ALPHA, BETA)):
        (found,) = encoder.embed([sequence], pooling="loops")
        (residues,) = encoder.embed_residues([sequence])
        start, parts = 0, []
        for chain, text in zip(sequence, LOOPS):
            for loop in text.split("|"):
                at = start + (0 if "|" in chain else chain.index(loop))
                mean = residues[at : at + len(loop)].mean(0)
                parts.append(mean / np.linalg.norm(mean))
                start += len(loop) if "|" in chain else 0
            start += 0 if "|" in chain else len(chain)
        assert found == pytest.approx(np.concatenate(parts), abs=1e-5)


def test_loci_are_told_and_make_a_difference(encoder):
    named, unnamed = encoder.embed([LOOPS, LOOPS], loci=[("TRA", "TRB"), None])
    assert not np.allclose(named, unnamed, atol=1e-4)
    assert unnamed == pytest.approx(encoder.embed([LOOPS])[0], abs=1e-6)


@pytest.mark.parametrize(
    ("sequence", "pooling", "message"),
    [
        ((ALPHA, BETA, ALPHA), "mean", "3 chains together; tiny reads 2"),
        ((ALPHA, ""), "mean", "a string of residues was expected"),
        ((ALPHA, BETA), "cdr3", "of pairs take loops"),
        ("ATG1|A|C", "mean", "'1' at position 3"),
    ],
)
def test_what_cannot_be_read_is_said(encoder, sequence, pooling, message):
    with pytest.raises(UserError, match=message):
        encoder.embed([sequence], pooling=pooling)


@pytest.mark.parametrize(
    ("sequence", "locus", "message"),
    [
        (BETA, "beta", r"loci\[0\]: 'beta' is no locus; use one of TRA"),
        (LOOPS, ("TRA", 5), "5 is no locus"),
        (LOOPS, "TRA", "names 1 of 2 chains"),
        (BETA, ("TRA", "TRB"), "2"),
    ],
)
def test_loci_that_are_none_are_said(encoder, sequence, locus, message):
    with pytest.raises(UserError, match=message):
        encoder.embed([sequence], loci=[locus])


def test_loci_may_be_lists_and_a_chain_has_three_loops(encoder):
    listed, named = (encoder.embed([LOOPS], loci=[loci])[0] for loci in (["TRA", "TRB"], ("TRA", "TRB")))
    assert np.array_equal(listed, named)
    with pytest.raises(UserError, match=r"'CAF\|A' has 2 parts"):
        encoder.embed(["CAF|A"])


def test_the_window_of_a_pair_is_its_own(encoder):
    most = encoder.config.max_length - len(encoder.config.before) - encoder.config.tags
    most -= 2 * (len(encoder.config.after) + encoder.config.tags)
    assert encoder.embed([("A" * (most - 5), "C" * 5)]).shape == (1, encoder.width)
    with pytest.raises(UserError, match=f"has {most + 1} residues; the window of tiny is {most}"):
        encoder.embed([("A" * (most - 4), "C" * 5)])


def test_encoders_that_read_no_pairs_and_no_loops_say_so():
    for sequence, message in (((ALPHA, BETA), "2 chains together"), (LOOPS[0], "reads no loops")):
        with pytest.raises(UserError, match=message):
            Blosum62().embed([sequence])
    pairs_of_others = Transformer(ModelConfig(segments=2, layers=1, width=16, heads=2, feed_forward=16))
    with pytest.raises(UserError, match="2 chains together; other reads 1"):
        TransformerEncoder(pairs_of_others, "other", "cpu").embed([(ALPHA, BETA)])


def test_a_dataset_of_pairs_each_chain_from_the_reading_of_both(encoder, parsed):
    dataset, found = parsed
    poolings = {"mean": MeanPooling(kind="mean"), "cdr3": MeanPooling(kind="mean", region="cdr3")}
    poolings |= {"max": MaxPooling(kind="max"), "loops": LoopsPooling(kind="loops")}
    made = dataset_features(
        found.chains, found.receptor_ids, dataset, MiniEncoder(kind="mini", sequence="cdrs"), poolings, encoder
    )
    loci = ("TRA", "TRB")
    (both,) = encoder.embed_residues([LOOPS], loci=[loci])
    (alone,) = encoder.embed_residues([LOOPS[0]], loci=["TRA"])
    first = residue_count(LOOPS[0])
    mean = made["mean"].matrix
    assert mean[0, :96] == pytest.approx(both[:first].mean(0), abs=1e-5)
    assert mean[0, 97:193] == pytest.approx(both[first:].mean(0), abs=1e-5)
    assert mean[1, :96] == pytest.approx(alone.mean(0), abs=1e-5)  # it has no beta chain
    assert not mean[1, 97:].any() and mean[0, 193] == 1
    cdr3 = len(LOOPS[1].split("|")[2])
    assert made["cdr3"].matrix[0, 97:193] == pytest.approx(both[-cdr3:].mean(0), abs=1e-5)
    assert made["max"].matrix[0, :96] == pytest.approx(both[:first].max(0), abs=1e-5)
    loops = made["loops"]
    expected = encoder.embed([LOOPS], pooling="loops", loci=[loci])[0]
    columns = [i for i, name in enumerate(loops.names) if not name.endswith("present")]
    assert loops.matrix[0, columns] == pytest.approx(expected, abs=1e-5)
    assert loops.names[0] == "TRA_cdr1_0" and len(columns) == 6 * 96


def test_whole_chains_side_by_side_are_those_of_chains_alone_where_pairs_are_off(encoder, parsed):
    dataset, found = parsed
    settings = MiniEncoder(kind="mini", sequence="chain", pairs=False)
    made = dataset_features(
        found.chains, found.receptor_ids, dataset, settings, {"mean": MeanPooling(kind="mean")}, encoder
    )
    assert made["mean"].matrix[0, :96] == pytest.approx(encoder.embed([ALPHA], loci=["TRA"])[0], abs=1e-5)


def test_chains_as_they_are_written(parsed):
    _, found = parsed
    rows = found.chains[found.chains["receptor_id"] == "one"]
    texts, bounds = written_chains(rows["sequence_aa"], bounds_of(rows), "cdrs", "|")
    assert tuple(texts) == LOOPS
    assert bounds["cdr3"].tolist() == [[13, 26], [11, 23]] and not bounds["fwr1"].any()
    texts, bounds = written_chains(rows["sequence_aa"], bounds_of(rows), "junction", "|")
    assert texts == ["CALSDSGGSNYKLTF", "CASSYSGQGNEQYF"] and bounds["cdr3"].tolist() == [[1, 14], [1, 13]]
    unknown = rows.assign(cdr1_start=pd.NA, cdr1_end=pd.NA)
    assert written_chains(unknown["sequence_aa"], bounds_of(unknown), "cdrs", "|")[0] == rows["sequence_aa"].tolist()


def test_the_extractor_says_how_many_numbers_loops_become(encoder, tmp_path):
    save(encoder.model, tmp_path / "tiny")
    extractor = FeatureExtractor(tmp_path / "tiny", pooling="loops", device="cpu").fit([LOOPS])
    assert extractor.transform([LOOPS]).shape == (1, extractor.n_features_out_) == (1, 6 * 96)
    again = pickle.loads(pickle.dumps(extractor))
    assert again.transform([LOOPS]) == pytest.approx(extractor.transform([LOOPS]))
    assert len(again.get_feature_names_out()) == 6 * 96


def test_a_file_of_whole_chains_by_loops(encoder, tmp_path):
    save(encoder.model, tmp_path / "tiny")
    (tmp_path / "chains.fasta").write_text(f">a\n{ALPHA}\n>b\n{BETA}\n", encoding="utf-8")
    embed_file(tmp_path / "chains.fasta", str(tmp_path / "tiny"), tmp_path / "out.csv", pooling="loops", device="cpu")
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["sequence_id"].tolist() == ["a", "b"] and table.shape == (2, 1 + 3 * 96)


def test_alpha_comes_first_whatever_the_order_of_the_config(encoder, parsed):
    dataset, found = parsed
    settings, poolings = MiniEncoder(kind="mini"), {"mean": MeanPooling(kind="mean")}
    turned = dataset.model_copy(update={"chains": ["TRB", "TRA"]})
    one, other = (
        dataset_features(found.chains, found.receptor_ids, d, settings, poolings, encoder)["mean"]
        for d in (dataset, turned)
    )
    assert other.names[0] == "TRB_0"
    assert other.matrix == pytest.approx(np.hstack([one.matrix[:, 97:], one.matrix[:, :97]]), abs=1e-6)


def test_loci_are_one_for_each_sequence(encoder):
    for ask in (encoder.embed, encoder.embed_residues):
        with pytest.raises(UserError, match="1 loci for 2 sequences"):
            ask([ALPHA, BETA], loci=["TRA"])
    assert encoder.embed([ALPHA, BETA], loci=pd.Series(["TRA", "TRB"])).shape == (2, 96)


def test_what_is_no_three_loops_is_said(encoder):
    with pytest.raises(UserError, match="no cdr2 is found"):
        encoder.embed(["SGHNS||ASSLAPG"], pooling="loops")
    with pytest.raises(UserError, match="has 4 parts; loops are written"):
        encoder.embed(["A|C|D|EFG"], pooling="loops")


def test_guesses_are_of_whole_chains(encoder):
    for sequence in (LOOPS[0], LOOPS):
        with pytest.raises(UserError, match="give"):
            encoder.masked_profile(sequence, [0])
        with pytest.raises(UserError, match="give"):
            encoder.pseudo_log_likelihood([sequence])


def test_the_window_holds_what_is_written_around_a_pair(encoder):
    # start, species, and for each chain a locus and an end
    fits = ("A" * 250, "A" * (512 - 2 - 4 - 250))
    assert encoder.embed([fits]).shape == (1, 96)
    with pytest.raises(UserError, match="has 507 residues; the window of tiny"):
        encoder.embed([(fits[0], fits[1] + "A")])
    assert encoder.embed(["A" * encoder.max_residues]).shape == (1, 96)
    with pytest.raises(UserError, match="the window of tiny"):
        encoder.embed(["A" * (encoder.max_residues + 1)])
