"""The next residue, and strings backwards: what is asked, what is measured, and that it is learned."""

from __future__ import annotations

import math
import re

import numpy as np
import pandas as pd
import pytest
import torch

from airrformer.config import TrainSettings, load_config
from airrformer.core import alphabet, weights
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.errors import UserError
from airrformer.pretrain import causal, pretrain, reversal
from airrformer.pretrain.objectives import STEP, HiddenResidues, draws
from airrformer.pretrain.reading import Reader
from airrformer.pretrain.train import Place, Training, learning_rate, stability, train

from .conftest import make_chains, part_of, small_config

CPU = Place.choose("cpu", "fp32")
SETTINGS = TrainSettings(steps=20, batch_tokens=512, learning_rate=3e-3, warmup_steps=3, validate_every=10)
DECODER = ModelConfig(form="decoder", layers=1, width=16, heads=2, feed_forward=32, head="linear", tied=False)
BOTH = ModelConfig(form="encoder-decoder", layers=1, width=16, heads=2, feed_forward=32, head="linear", tied=False)


def small(config: ModelConfig) -> Transformer:
    model = Transformer(config)
    initialise(model, torch.Generator().manual_seed(0))
    return model.eval()


def with_encoder(**changes):
    values = small_config().model_dump(mode="json")
    values["encoders"]["tiny"] |= changes
    return load_config(values)


# ----------------------------------------------------------------------------------------------------- next residue


def test_each_token_but_the_first_is_asked_for_once_and_padding_never():
    tokens = torch.tensor([[0, 5, 6, 2, 1, 1], [0, 7, 8, 9, 10, 2]])
    states, targets = causal.following(small(DECODER), tokens)
    assert targets.tolist() == [5, 6, 2, 7, 8, 9, 10, 2] and states.shape == (8, 16)


def test_the_loss_is_the_mean_over_residues_and_ends():
    model = small(DECODER)
    encoded = [alphabet.encode(sequence) for sequence in ("CASSF", "CASSIRSSYEQYF")]
    objective = causal.NextResidue(encoded, encoded, SETTINGS, 1)
    (batch,) = objective.validation_batches()
    by_hand = []
    for row in encoded:
        logits = model.logits(model(torch.tensor([row])))[0].log_softmax(-1)
        by_hand += [-logits[i, token].item() for i, token in enumerate(row[1:])]
    loss = objective.loss(model, batch)
    assert loss.n == len(by_hand) == 6 + 14
    assert loss.mean.item() == pytest.approx(np.mean(by_hand), abs=1e-5)


def test_labels_are_smoothed_in_training_alone():
    model, encoded = small(DECODER), [alphabet.encode("CASSIRSSYEQYF")]
    plain, smooth = (
        causal.NextResidue(encoded, encoded, SETTINGS.model_copy(update={"label_smoothing": share}), 1)
        for share in (0.0, 0.1)
    )
    (batch,) = plain.validation_batches()
    assert smooth.loss(model, batch).mean.item() == plain.loss(model, batch).mean.item()
    model.train()
    logits = model.logits(causal.following(model, batch[0])[0])
    uniform = -logits.log_softmax(-1).mean().item()
    expected = 0.9 * plain.loss(model, batch).mean.item() + 0.1 * uniform
    assert smooth.loss(model, batch).mean.item() == pytest.approx(expected, abs=1e-5)


def test_junctions_stand_for_the_chains():
    chains = make_chains(3)
    chains.loc[1, "junction_aa"] = None
    table = causal.junctions(chains)
    assert table["sequence_aa"].tolist() == chains["junction_aa"][[0, 2]].tolist()
    assert table["cdr3_start"].isna().all() and chains["cdr3_start"].notna().all()


def test_counts_by_offset_are_those_of_the_training_sequences():
    train_rows, validation = ([alphabet.encode(s) for s in part] for part in (["CAF", "CAF", "CW"], ["CAF"]))
    log_p, right = causal._by_offset(train_rows, validation)
    # offset 0: C 3 times of 3, and one of each of 21; offset 1: A 2, W 1; offset 2: F 2, end 1; offset 3: end 2
    expected = [4 / 24, 3 / 24, 3 / 24, 3 / 23]
    np.testing.assert_allclose(np.exp(log_p), expected)
    assert right.all()


def test_a_decoder_of_junctions_beats_the_counts_and_its_folder_says_so(tmp_path):
    train_settings = {"steps": 100, "batch_tokens": 1024, "learning_rate": 0.005, "warmup_steps": 10}
    config = with_encoder(
        objective="causal",
        sequence="junction",
        model={"layers": 1, "width": 32, "heads": 4, "feed_forward": 64},
        train=train_settings | {"validate_every": 50},
    )
    chains = make_chains(400)
    # a rule that counts by offset cannot hold: each letter mostly follows from the one before it
    rng, letters = np.random.default_rng(0), "ADEGKLNPQS"
    for i in range(len(chains)):
        walk = rng.integers(10, size=1).tolist()
        for _ in range(9):
            walk.append((walk[-1] + 3) % 10 if rng.random() < 0.8 else int(rng.integers(10)))
        chains.loc[i, "junction_aa"] = f"C{''.join(letters[step] for step in walk)}F"
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu")
    metrics = pd.read_json(tmp_path / "tiny" / "metrics.json", typ="series")
    assert metrics["objective"] == "causal"
    found = metrics["next_residue"]
    assert found["perplexity"] < 0.9 * found["position_unigram_perplexity"]
    model = weights.load_own(tmp_path / "tiny")
    assert model.config.form == "decoder"
    card = (tmp_path / "tiny" / "card.md").read_text("utf-8")
    assert "A decoder that writes" in card and f"{found['perplexity']:.2f}" in card


# --------------------------------------------------------------------------------------------------------- backwards


def test_strings_have_every_length_and_letter_about_equally_often():
    strings = reversal.random_strings(9_000, torch.Generator().manual_seed(0))
    lengths = np.bincount([len(s) for s in strings])
    assert set(np.flatnonzero(lengths)) == set(range(8, 17))
    assert lengths[8:].min() > 900 and lengths[8:].max() < 1100
    letters = np.bincount(torch.cat(strings).numpy(), minlength=33)
    assert set(np.flatnonzero(letters)) == set(alphabet.AMINO_ACID_IDS)
    assert letters[list(alphabet.AMINO_ACID_IDS)].min() > 0.95 * sum(letters) / 20


def test_targets_are_the_sources_backwards_between_start_and_end():
    source, target = reversal.pairs([torch.tensor(alphabet.encode(s)[1:-1]) for s in ("CASF", "WY")])
    read = lambda rows: ["".join(alphabet.TOKENS[t] for t in row if t != alphabet.PAD) for row in rows.tolist()]  # noqa: E731
    assert read(source) == ["<cls>CASF<eos>", "<cls>WY<eos>"]
    assert read(target) == ["<cls>FSAC<eos>", "<cls>YW<eos>"]


def test_batches_depend_on_seed_and_step_alone():
    objective = reversal.Reversal(SETTINGS, 7)
    batches = objective.train_batches(0)
    first, second = next(batches), next(batches)
    again = next(reversal.Reversal(SETTINGS, 7).train_batches(1))
    assert all(torch.equal(a, b) for a, b in zip(second, again))
    assert not torch.equal(first[0], second[0])
    assert len(first[0]) == 512 // 18
    by_hand = reversal.pairs(reversal.random_strings(512 // 18, draws(7, STEP, 0)))
    assert all(torch.equal(a, b) for a, b in zip(first, by_hand))


def test_the_antidiagonal_is_that_of_each_strings_own_length():
    lengths = [8, 3]
    maps = torch.zeros(2, 2, 11, 12)
    for row, n in enumerate(lengths):
        for i in range(n):
            maps[row, :, i, n - i] = 1.0  # residue n - 1 - i of the source stands at token n - i
    shares = torch.cat(list(reversal._antidiagonal(maps, lengths)))
    assert shares.tolist() == [1.0] * (2 * (8 + 3))


def test_measures_agree_with_the_attention_that_is_written(tmp_path):
    model = small(BOTH)
    numbers = reversal.measure(model, 7, CPU)
    assert numbers["greedy_exact"] == 0 and numbers["beam_mean_score"] >= numbers["greedy_mean_score"]
    table = reversal.cross_attention(model, CPU)
    reads = [column for column in table if re.match(r"\d+_", column)]
    assert [name.split("_")[1] for name in reads[1:-1]] == list("CASSIRSSYEQYF")
    assert "".join(table["written"][:-1]) == "FYQEYSSRISSAC"
    np.testing.assert_allclose(table[reads].sum(axis=1), 1.0, atol=1e-5)


def test_noam_rises_in_a_line_and_falls_with_one_over_the_root():
    settings = TrainSettings(steps=3000, warmup_steps=400, learning_rate=0.00625, schedule="noam")
    original = [64**-0.5 * min((step + 1) ** -0.5, (step + 1) * 400**-1.5) for step in range(3000)]
    np.testing.assert_allclose([learning_rate(step, settings) for step in range(3000)], original, rtol=1e-9)


def test_a_small_encoder_decoder_learns_to_look_where_it_must():
    """Minutes shorter than the full task (test_reversal.py): shorter strings of fewer letters, a smaller model."""
    settings = TrainSettings(steps=400, learning_rate=0.004, warmup_steps=50, validate_every=100, weight_decay=0)
    config = ModelConfig(
        form="encoder-decoder", layers=2, width=32, heads=2, feed_forward=64, positions="sinusoidal", head="linear",
        tied=False, max_length=16, initialisation="xavier", embedding_scale=True,
    )  # fmt: skip
    training = Training.start(config, settings, 7, CPU)
    train(training, settings, Short(settings, 7), 7, CPU)
    assert training.history[-1]["validation_accuracy"] > 0.97
    (source, target), *_ = Short(settings, 8).validation_batches()
    layer = training.model.cross_attention_maps(target[:, :-1], source)[-1]
    lengths = [(row != alphabet.PAD).sum().item() - 2 for row in source]
    shares = torch.cat(list(reversal._antidiagonal(layer, lengths)))
    assert shares.mean() > 2 / np.mean(lengths)  # looking anywhere would give one over the length


class Short(reversal.Reversal):
    """Strings of 3 to 5 of four letters."""

    def train_batches(self, first):
        for step in range(first, 10**9):
            yield self._draw(64, draws(self.seed, STEP, step))

    def validation_batches(self):
        return [self._draw(200, draws(self.seed, 99))]

    def _draw(self, n, generator):
        letters = torch.tensor(alphabet.AMINO_ACID_IDS[:4])
        lengths = torch.randint(3, 6, (n,), generator=generator).tolist()
        drawn = torch.randint(4, (sum(lengths),), generator=generator)
        return reversal.pairs(list(letters[drawn].split(lengths)))


# --------------------------------------------------------------------------------------------- what the config allows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objective": "seq2seq"}, "objective seq2seq and corpus reversal go together"),
        ({"corpus": "reversal"}, "objective seq2seq and corpus reversal go together"),
        ({"objective": "causal", "corpus": "train_folds"}, "train_folds is for encoders that make features"),
        ({"objective": "causal", "sequence": "cdrs"}, "a causal model writes chain or junction"),
        ({"objective": "causal", "pairs": True}, "pairs: is for objectives masked, contrastive, both"),
        ({"pairs": True}, "pairs: no dataset of its corpus has two chains"),
        ({"supervised": True}, "supervised: is for objectives contrastive, both"),
        ({"train": {"temperature": 0.1}}, "train.temperature: is for objectives contrastive, both"),
        ({"objective": "contrastive", "train": {"guess_weight": 2}}, "train.guess_weight: is for objective both"),
        ({"objective": "contrastive", "compare": ["antiberty"]}, "compare: is for objectives masked, both"),
        ({"objective": "causal", "train": {"cdr3_weight": 2}}, "train.cdr3_weight: is for objectives masked"),
        ({"sequence": ["cdrs"], "compare": ["antiberty"]}, "compare: published encoders read whole chains"),
        ({"train": {"hidden_tags": 0.1}}, "train.hidden_tags: is of no use without tags"),
        ({"objective": "both", "train": {"drop_chain": 0.1}}, "train.drop_chain: is of no use without pairs"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(f"{k}" for k in value),
)
def test_an_objective_that_cannot_be_trained_so_is_refused(changes, message):
    with pytest.raises(UserError, match=message):
        with_encoder(**changes)


def test_one_dataset_needs_no_brackets_and_none_is_named_twice():
    assert with_encoder(corpus="toy").encoders["tiny"].corpus == ["toy"]
    with pytest.raises(UserError, match="no dataset 'toi'; did you mean 'toy'"):
        with_encoder(corpus="toi")
    with pytest.raises(UserError, match="'toy' stands there twice"):
        with_encoder(corpus=["toy", "toy"])


def test_writers_make_no_features_and_no_target_may_name_them():
    values = with_encoder(objective="causal").model_dump(mode="json")
    values |= {"poolings": {"mean": {"kind": "mean"}}, "classifiers": {"logistic": {"kind": "logistic_regression"}}}
    config = load_config(values)
    assert config.writers == ["tiny"] and config.expand_embeddings() == [] and config.loose_ends() == []
    values["targets"] = [{"encoders": ["tiny"]}]
    with pytest.raises(UserError, match=r"'tiny' writes sequences \(objective: causal\)"):
        load_config(values)


def test_stability_counts_spikes_and_rises():
    rows = [{"largest_gradient": g, "train_loss": loss} for g, loss in ((1.0, 3.0), (8.0, 2.0), (2.0, 2.5))]
    assert stability(rows) == {"largest_gradient": 8.0, "gradient_spike": 4.0, "loss_rise": 0.5}


def test_training_ends_near_what_guessing_costs_before_it_starts():
    """A linear head on small states starts near the cost of a blind guess, in each form."""
    encoded = [alphabet.encode(s) for s in make_chains(8)["junction_aa"]]
    encoder = ModelConfig(layers=1, width=16, heads=2, feed_forward=32)
    reader = Reader(part_of(make_chains(8)), encoder, ("junction",))
    for config, objective in (
        (DECODER, causal.NextResidue(encoded, encoded, SETTINGS, 1)),
        (BOTH, reversal.Reversal(SETTINGS, 1)),
        (encoder, HiddenResidues(reader, reader, SETTINGS, 1)),
    ):
        model = small(config)
        loss = objective.loss(model, objective.validation_batches()[0])
        assert loss.mean.item() == pytest.approx(math.log(33), abs=1.5)


def test_chains_without_a_junction_are_counted_and_none_at_all_is_said(tmp_path, caplog):
    caplog.set_level("INFO")
    config = with_encoder(objective="causal", sequence="junction")
    chains = make_chains(20)
    chains.loc[chains.index[:2], "junction_aa"] = pd.NA
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu")
    assert f"toy: 2 of {len(chains)} chains have no junction and are left out" in caplog.text
    chains["junction_aa"] = pd.Series(pd.NA, index=chains.index, dtype=chains["junction_aa"].dtype)
    with pytest.raises(UserError, match="toy: no chain has a junction"):
        pretrain(config, "tiny", {"toy": chains}, tmp_path / "none", device="cpu")
