"""The original encoder-decoder's first task at full size, from its example config: a quarter of an hour on one core."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from airrformer.config import load_config
from airrformer.core import weights
from airrformer.pretrain import pretrain, reversal
from airrformer.pretrain.objectives import MEASURE, draws
from airrformer.pretrain.train import Place

EXAMPLE = Path(__file__).parents[2] / "config" / "examples" / "reversal.yaml"


@pytest.mark.slow
def test_random_strings_are_written_backwards(tmp_path):
    config = load_config(EXAMPLE, check_files=True)
    pretrain(config, "reversal", {}, tmp_path / "reversal", device="cpu")
    found = json.loads((tmp_path / "reversal" / "metrics.json").read_text("utf-8"))["reversal"]
    assert found["n"] == 1000 and found["greedy_exact"] >= 999 and found["beam_exact"] >= found["greedy_exact"]
    assert found["beam_mean_score"] >= found["greedy_mean_score"] - 1e-9
    assert (found["example"], found["example_reversed"]) == ("CASSIRSSYEQYF", "FYQEYSSRISSAC")
    assert len(found["antidiagonal"]) == 2 and found["antidiagonal"][1] >= 0.95

    # measured on strings that it was never trained on
    settings = config.encoders["reversal"].train
    batches = reversal.Reversal(settings, config.seed).train_batches(0)
    trained_on = {tuple(row) for _ in range(settings.steps) for row in next(batches)[0].tolist()}
    measured = reversal.pairs(reversal.random_strings(found["n"], draws(config.seed, MEASURE)))[0].tolist()
    assert not trained_on & {tuple(row) for row in measured}

    model = weights.load_own(tmp_path / "reversal")
    again = reversal.measure(model, config.seed, Place.choose("cpu", "fp32"))
    assert again["greedy_exact"] == found["greedy_exact"]
    assert torch.allclose(torch.tensor(again["antidiagonal"]), torch.tensor(found["antidiagonal"]), atol=1e-5)
