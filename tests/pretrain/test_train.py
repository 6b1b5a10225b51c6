from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch

from airrformer.config import TrainSettings
from airrformer.core.config import ModelConfig
from airrformer.errors import UserError
from airrformer.pretrain.objectives import HiddenResidues
from airrformer.pretrain.reading import Reader
from airrformer.pretrain.regions import guess_hidden
from airrformer.pretrain.train import Place, Training, learning_rate, train

from .conftest import make_chains, part_of

MODEL = ModelConfig(layers=1, width=16, heads=2, feed_forward=32, dropout=0.1)
SETTINGS = TrainSettings(steps=10, batch_tokens=1024, learning_rate=3e-3, warmup_steps=3, validate_every=3, patience=9)
CPU = Place.choose("cpu", "fp32")

TRAIN, VALIDATION = Reader(part_of(make_chains(40)), MODEL), Reader(part_of(make_chains(8, seed=1)), MODEL)


def trained(settings: TrainSettings = SETTINGS, place: Place = CPU, seed: int = 7) -> Training:
    training = Training.start(MODEL, settings, seed, place)
    train(training, settings, HiddenResidues(TRAIN, VALIDATION, settings, seed), seed, place)
    return training


def weights_of(training: Training) -> torch.Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in training.model.parameters()])


def test_the_rate_rises_in_a_line_and_falls_along_a_cosine():
    rates = [learning_rate(step, SETTINGS) for step in range(SETTINGS.steps + 1)]
    assert rates[:4] == pytest.approx([0.001, 0.002, 0.003, 0.003])
    assert rates[3:] == sorted(rates[3:], reverse=True) and rates[-1] == pytest.approx(0)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    first, again, other = trained(), trained(), trained(seed=8)
    assert torch.equal(weights_of(first), weights_of(again))
    assert not torch.equal(weights_of(first), weights_of(other))


def test_a_training_goes_on_from_its_state_as_if_never_stopped():
    whole = trained()
    part = Training.start(MODEL, SETTINGS, 7, CPU)
    with pytest.raises(KeyboardInterrupt):
        train(part, SETTINGS, Interrupted(TRAIN, VALIDATION, SETTINGS, 7), 7, CPU)
    assert 0 < part.step < SETTINGS.steps
    state = part.state_dict()
    resumed = Training.start(MODEL, SETTINGS, 99, CPU)
    resumed.load_state_dict(state)
    train(resumed, SETTINGS, HiddenResidues(TRAIN, VALIDATION, SETTINGS, 7), 7, CPU)
    assert resumed.step == whole.step
    assert torch.equal(weights_of(whole), weights_of(resumed))


class Interrupted(HiddenResidues):
    """Interrupted, as by Ctrl-C, before the sixth batch."""

    def train_batches(self, first):
        yield from itertools.islice(super().train_batches(first), 5)
        raise KeyboardInterrupt


def test_it_learns_and_history_says_so():
    history = trained(SETTINGS.model_copy(update={"steps": 60, "validate_every": 20})).history
    assert [row["step"] for row in history] == [20, 40, 60]
    assert history[-1]["validation_loss"] < history[0]["validation_loss"] < math.log(33)
    assert set(history[0]) == {
        "step", "train_loss", "validation_loss", "validation_accuracy", "learning_rate",
        "largest_gradient", "seconds",
    }  # fmt: skip


def test_the_best_weights_are_kept_and_patience_ends_it():
    # a rate that wrecks the weights after the first good steps
    settings = SETTINGS.model_copy(update={"steps": 400, "learning_rate": 0.5, "validate_every": 2, "patience": 3})
    training = trained(settings)
    losses = {row["step"]: row["validation_loss"] for row in training.history}
    assert training.step < 400
    assert training.best_step == min(losses, key=losses.__getitem__)
    assert sum(step > training.best_step for step in losses) == 3
    assert all(torch.equal(value, training.best_weights[name]) for name, value in training.model.state_dict().items())


def test_the_last_weights_are_averaged_where_the_settings_say_so():
    settings = SETTINGS.model_copy(update={"steps": 9, "average": 2})
    seen = []

    class Watching(HiddenResidues):
        def loss(self, model, batch):
            if not model.training:
                seen.append(weights_of(training))
            return super().loss(model, batch)

    training = Training.start(MODEL, settings, 7, CPU)
    train(training, settings, Watching(TRAIN, VALIDATION, settings, 7), 7, CPU)
    assert len(seen) == 3  # at steps 3, 6 and 9, one batch each
    torch.testing.assert_close(weights_of(training), (seen[1] + seen[2]) / 2)


def test_the_exponential_average_is_judged_and_kept():
    """By hand: the weights after each step, averaged as they come; early shares are larger."""
    settings = SETTINGS.model_copy(update={"steps": 4, "validate_every": 4, "ema": 0.9})
    after = []

    class Watching(HiddenResidues):
        def loss(self, model, batch):
            if model.training:
                after.append(weights_of(training))
            return super().loss(model, batch)

    training = Training.start(MODEL, settings, 7, CPU)
    plain = Training.start(MODEL, settings.model_copy(update={"ema": 0.0}), 7, CPU)
    train(training, settings, Watching(TRAIN, VALIDATION, settings, 7), 7, CPU)
    train(plain, settings, HiddenResidues(TRAIN, VALIDATION, settings, 7), 7, CPU)
    average = after[0]
    for step, weights in enumerate([*after[1:], weights_of(plain)]):
        kept = min(0.9, (step + 1) / (step + 10))
        average = kept * average + (1 - kept) * weights
    torch.testing.assert_close(weights_of(training), average)
    assert not torch.allclose(weights_of(training), weights_of(plain))


def test_no_decay_on_norms_and_biases():
    training = Training.start(MODEL, SETTINGS, 7, CPU)
    decays = {id(p): group["weight_decay"] for group in training.optimizer.param_groups for p in group["params"]}
    for name, parameter in training.model.named_parameters():
        assert decays[id(parameter)] == (0 if "norm" in name or name.endswith("bias") else SETTINGS.weight_decay), name


def test_bf16_trains_too_and_keeps_fp32_weights():
    training = trained(place=Place.choose("cpu", "bf16"))
    assert weights_of(training).dtype == torch.float32
    assert training.history[-1]["validation_loss"] == pytest.approx(trained().history[-1]["validation_loss"], abs=0.05)


def test_precision_and_device_are_honoured_or_refused():
    assert Place.choose("cpu", "auto").precision == "fp32"
    with pytest.raises(UserError, match="precision 'fp16': pretrain knows fp32 and bf16"):
        Place.choose("cpu", "fp16")
    with pytest.raises(UserError, match="cannot be used here"):
        Place.choose("cuda:77")


def test_a_training_that_diverges_says_what_to_do():
    settings = SETTINGS.model_copy(update={"learning_rate": 1e30, "clip": 1e30})
    with pytest.raises(UserError, match=r"diverged before step .*lower train.learning_rate"):
        trained(settings)


def test_torchs_own_generator_is_left_as_it_was():
    before = torch.random.get_rng_state()
    trained()
    assert torch.equal(before, torch.random.get_rng_state())


def test_guesses_do_not_see_what_they_guess():
    """Two chains that differ in one residue get the same guess there: it was hidden from both."""
    training = trained()
    one, other = "CASSIRSSYEQYF", "CASSIWSSYEQYF"
    settings = SETTINGS.model_copy(update={"mask_fraction": 0.15})
    (first,), (second,) = (guess_hidden(training.model, [sequence], settings, 7, CPU) for sequence in (one, other))
    assert first.shape == (13, 20) and first.sum(1) == pytest.approx(np.ones(13), abs=1e-5)
    assert first[5] == pytest.approx(second[5], abs=1e-6)
    assert not np.allclose(first, second, atol=1e-6)
