"""Two noised views of a receptor, and the loss that tells them apart."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from airrformer.config import TrainSettings
from airrformer.core import alphabet
from airrformer.core.config import ModelConfig
from airrformer.core.transformer import Transformer
from airrformer.pretrain import objectives
from airrformer.pretrain.corpus import Part
from airrformer.pretrain.objectives import NoisedViews, loop_vectors
from airrformer.pretrain.reading import LOOP_CODES, Reader, Tokens
from airrformer.pretrain.train import Place, Training, train

from .conftest import make_chains, part_of
from .test_reading import corpus, paired

MODEL = ModelConfig(layers=1, width=16, heads=2, feed_forward=32, pairs=True, loops=True, segments=2)
SETTINGS = TrainSettings(
    steps=60, batch_tokens=1024, learning_rate=3e-3, warmup_steps=5, validate_every=30, mask_fraction=0.2
)
CPU = Place.choose("cpu", "fp32")


def reader(**options) -> Reader:
    return Reader(corpus(paired(60)).train, MODEL, ("cdrs",), pairs=True, **options)


def by_hand(cosines: torch.Tensor, alike: torch.Tensor) -> float:
    total = 0.0
    for rows in (cosines, cosines.T):
        for i, row in enumerate(rows):
            log_p = row.log_softmax(0)
            total -= log_p[alike[i]].mean().item() / len(rows) / 2
    return total


@pytest.mark.parametrize("supervised", [False, True])
def test_the_loss_by_hand(supervised):
    part = reader().part
    labels = np.where(np.arange(len(part.receptors)) < 6, 0, -1)  # the first six are of one class, the rest unknown
    read = Reader(Part(part.chains, part.receptors, labels), MODEL, ("cdrs",), pairs=True)
    settings = SETTINGS.model_copy(update={"batch_tokens": 8192})
    objective = NoisedViews(read, read, settings, 7, supervised=supervised)
    (batch,) = objective.validation_batches()
    tokens, segments, _, _, regions, chains, alike = batch
    model = Transformer(MODEL).eval()
    found = objective.loss(model, batch)
    states = model(tokens, segments=segments)
    n = len(tokens) // 2
    views = []
    for row in range(2 * n):
        parts = []
        for chain in (0, 1):
            for code in LOOP_CODES:
                inside = (regions[row] == code) & (chains[row] == chain) & (tokens[row] != alphabet.PAD)
                mean = states[row][inside].mean(0) if inside.any() else torch.zeros(16)
                parts.append(mean / mean.norm().clamp(min=1e-12))
        views.append(torch.cat(parts))
    one, other = F.normalize(torch.stack(views), dim=1).chunk(2)
    assert alike.sum().item() == n + (6 * 5 if supervised else 0)
    assert found.mean.item() == pytest.approx(by_hand(one @ other.T / SETTINGS.temperature, alike), abs=1e-4)
    assert found.n == n


def test_a_view_lacks_a_chain_as_often_as_asked_and_never_both():
    read = reader()
    tokens = read.batch([0] * 4000, np.zeros(len(read), dtype=int))
    found = objectives._without_a_chain(tokens, read.config, 0.4, torch.Generator().manual_seed(0))
    there = [(found.chains == chain).any(1) for chain in (0, 1)]
    assert (there[0] | there[1]).all()
    assert [share.float().mean().item() for share in there] == pytest.approx([0.8, 0.8], abs=0.02)
    whole = there[0] & there[1]
    assert all(torch.equal(one[whole], other[whole]) for one, other in zip(found, tokens))


def test_a_view_without_a_chain_is_the_other_as_it_is_read_alone():
    read = reader()
    pair = read.batch([0], np.zeros(len(read), dtype=int))
    for seed in range(20):
        found = objectives._without_a_chain(pair, read.config, 1.0, torch.Generator().manual_seed(seed))
        (chain,) = set(found.chains[found.chains >= 0].tolist())
        row = read.part.receptors[0, chain]
        single = Reader(read.part, read.config, read.forms, pairs=False, species=read.species)
        alone = single.batch([row], np.zeros(len(single), dtype=int))
        n = alone.ids.shape[1]
        assert torch.equal(found.ids[:, :n], alone.ids) and (found.ids[:, n:] == alphabet.PAD).all()
        assert torch.equal(found.segments[:, :n], alone.segments) and not found.segments.any()
        assert torch.equal(found.regions[:, :n], alone.regions) and not found.regions[:, n:].any()
        assert torch.equal(found.chains[:, :n] >= 0, alone.chains >= 0) and (found.chains[:, n:] == -1).all()


def test_residues_are_replaced_by_ones_like_them():
    ids = torch.full((1, 20_000), alphabet.ID["L"])
    new = objectives._replaced(ids, 0.5, torch.Generator().manual_seed(0))
    changed = new[new != ids]
    assert len(changed) / 20_000 == pytest.approx(0.5, abs=0.02)
    shares = {letter: (changed == alphabet.ID[letter]).float().mean().item() for letter in "MIP"}
    # BLOSUM62: L-M 2, L-I 2, L-P -3, in half bits
    assert shares["M"] == pytest.approx(shares["I"], abs=0.02)
    assert shares["M"] / shares["P"] == pytest.approx(2 ** (5 / 2), rel=0.35)
    special = torch.tensor([[alphabet.CLS, alphabet.EOS, alphabet.PAD, alphabet.ID["X"], 40]])
    assert torch.equal(objectives._replaced(special, 0.99, torch.Generator()), special)


def test_loops_stand_apart_and_what_is_not_there_is_zero():
    states = torch.arange(12.0).view(1, 6, 2)
    regions = torch.tensor([[0, LOOP_CODES[0], LOOP_CODES[0], LOOP_CODES[2], 0, LOOP_CODES[2]]])
    chains = torch.tensor([[-1, 0, 0, 0, -1, 1]])
    found = loop_vectors(states, regions, chains).view(6, 2)
    for i, mean in ((0, [3.0, 4.0]), (2, [6.0, 7.0]), (5, [10.0, 11.0])):
        assert found[i].tolist() == pytest.approx((np.array(mean) / np.linalg.norm(mean)).tolist())
    assert not found[[1, 3, 4]].any()
    unknown = loop_vectors(states, torch.zeros_like(regions), chains).view(6, 2)
    mean = states[0, [1, 2, 3, 5]].mean(0)
    assert unknown[0].tolist() == pytest.approx((mean / mean.norm()).tolist()) and not unknown[1:].any()


def test_it_learns_to_tell_views_apart_and_to_guess():
    read = reader()
    objective = NoisedViews(read, read, SETTINGS, 7, guess=1.0)
    training = Training.start(MODEL, SETTINGS, 7, CPU)
    before = objective.loss(training.model.eval(), objective.validation_batches()[0])
    train(training, SETTINGS, objective, 7, CPU)
    after = objective.loss(training.model, objective.validation_batches()[0])
    assert after.mean < before.mean - 1


def test_a_tag_is_hidden_as_often_as_asked():
    ids = torch.full((1, 10_000), 35)
    tokens = Tokens(ids, ids, ids, ids, torch.tensor([0]))
    hidden = objectives._untagged(tokens, 0.3, torch.Generator().manual_seed(0)).ids
    assert (hidden == alphabet.UNK).float().mean().item() == pytest.approx(0.3, abs=0.02)
    assert set(hidden.unique().tolist()) == {alphabet.UNK, 35}


def test_single_chains_have_views_too():
    read = Reader(part_of(make_chains(30)), MODEL, ("cdrs", "chain"))
    objective = NoisedViews(read, read, SETTINGS, 7)
    for batch in objective.validation_batches():
        assert objective.loss(Transformer(MODEL).eval(), batch).mean.isfinite()
