"""A saved classifier on new sequences: the same reading, the same encoder, the same features, then scores."""

from __future__ import annotations

import logging
from pathlib import Path

import pandas as pd

from airrformer.classify.features import prepare
from airrformer.classify.models import probabilities
from airrformer.classify.persistence import check_encoder, hash_names, load_model
from airrformer.config import Target, load_config
from airrformer.errors import UserError
from airrformer.paths import check_output
from airrformer.receptors.tables import write_table

logger = logging.getLogger(__name__)


def predict(model_dir: str | Path, input: str | Path, output: str | Path, device: str = "auto") -> pd.DataFrame:
    """Write the scores of the receptors in ``input`` to the TSV ``output``, and return them.

    One row a receptor, in order of first appearance: receptor_id and a column of probabilities a class. What was left
    out stands beside it: ``scores.tsv`` -> ``scores.rejected.tsv``. Raises ``UserError`` when the model, its encoder or
    the input is not what it should be.
    """
    # imported here, so that a job that only trains does not pay for torch
    from airrformer.embed.features import dataset_features
    from airrformer.embed.stage import load_encoder
    from airrformer.parse import parse_input

    output = check_output(output, input)
    rejected = check_output(output.with_name(f"{output.name.removesuffix('.tsv')}.rejected.tsv"), input)
    estimator, description = load_model(model_dir)
    config, target = load_config(description["config"]), Target(**description["target"])
    results = check_encoder(description, model_dir)
    dataset, settings = config.datasets[target.dataset], config.encoders[target.encoder]
    parsed = parse_input(input, dataset)

    encoder = load_encoder(settings.kind, results, target.encoder, device, "auto")
    poolings = {target.pooling: config.poolings[target.pooling]}
    made = dataset_features(parsed.chains, parsed.receptor_ids, dataset, settings, poolings, encoder)
    features = made[target.pooling]
    if hash_names(features.names) != description["feature_names_sha256"]:
        raise UserError(
            f"{model_dir}: trained on {description['n_features']} features of another version than the "
            f"{len(features.names)} made here; run `airrformer classify` again"
        )
    classes = description["classes"]
    scores = pd.DataFrame(probabilities(estimator, prepare(features.matrix), len(classes)), columns=classes)
    scores.insert(0, "receptor_id", parsed.receptor_ids, allow_duplicates=True)
    write_table(parsed.rejected, rejected)
    write_table(scores, output)
    logger.info("%s: %d receptors scored; %s: %d left out", output, len(scores), rejected, len(parsed.rejected))
    return scores
