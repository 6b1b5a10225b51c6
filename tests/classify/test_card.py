"""The card of a saved classifier: what leaks, the negatives of each kind, and what stands first."""

import numpy as np
import pytest

from airrformer.classify import classify
from airrformer.config import load_config
from airrformer.receptors.tables import read_receptors, write_receptors


@pytest.fixture
def made(make_study):
    """Three classes told by the features; a third of B is said not to be of A; who is of A occurs more often."""
    rng = np.random.default_rng(0)
    which = rng.integers(0, 3, 90)
    X = (rng.normal(size=(90, 6)) + 6 * np.eye(3, 6)[which]).astype(np.float32)
    study = make_study(X, [["BAC"[k]] for k in which], [f"d{i}" for i in rng.integers(0, 9, 90)])
    path = study.results.receptors("toy")
    receptors = read_receptors(path)
    receptors["occurrences"] = np.where(which == 1, rng.integers(3, 9, 90), 1)
    receptors["not_label"] = [["A"] if k == 0 and i % 3 == 0 else [] for i, k in enumerate(which)]
    write_receptors(receptors, path)
    config = study.config.model_dump(mode="json")
    config["datasets"]["toy"]["negatives"] = {"methods": ["given", "swapped"]}
    config["evaluation"] |= {"splits": ["random"], "bootstrap": 100}
    study.config = load_config(config)
    metrics = classify(study.config, study.target, study.results, study.output)
    given = sum(k == 0 and i % 3 == 0 for i, k in enumerate(which))
    return study, metrics, which, given


def test_leaks_negatives_and_what_stands_first(made):
    study, metrics, which, given = made
    card = (study.output / "card.md").read_text()
    assert "| class | receptors | not of it (given) | not of it (swapped) | unknown |" in card
    assert f"| A | {(which == 1).sum()} | {given} | {(which != 1).sum() - given} | 0 |" in card
    assert "- **How often a receptor stands in the input tells its label**: positives stand there" in card
    assert "Looked at, and no warning: " in card and "both labels" in card
    auroc = metrics["splits"]["random"]["negatives"]["given"]["auroc"]
    assert f"| random | given | {auroc['value']:.3f} [{auroc['low']:.3f}, {auroc['high']:.3f}] |" in card
    pooled = metrics["splits"]["random"]["pooled"]
    first = metrics["splits"]["random"]["macro"]["precision_at_k"]["value"]
    assert f"- random: of the 10 receptors with the highest scores of a class {first:.3f} [" in card
    assert f"; the likeliest class of a receptor is right in {pooled['top_1_accuracy']:.0%}\n" in card
