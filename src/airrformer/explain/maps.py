"""Maps: a dataset's vectors in two dimensions, by PCA and by t-SNE.

Distances in a t-SNE map are no distances between receptors: look at neighbours, not at gaps. Labels play no part in
either map.
"""

from __future__ import annotations

import logging

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.preprocessing import StandardScaler

from airrformer.config import Config
from airrformer.embed.store import Features, read_features
from airrformer.errors import UserError
from airrformer.paths import Results
from airrformer.receptors.tables import read_receptors, write_table

logger = logging.getLogger(__name__)

_TSNE_RECEPTORS = 5_000  # minutes rather than seconds above it, and a plot that shows no more
_TSNE_DIMENSIONS = 50  # principal components that t-SNE starts from, as van der Maaten and Hinton 2008 do
_PERPLEXITY = 20.0
# A coarser tree and fewer iterations than scikit-learn's 0.5 and 1000: a quarter of the time for 1,500 receptors, with
# the same trustworthiness (0.97 of each point's neighbours) on vectors of eight latent dimensions.
_ANGLE, _ITERATIONS = 0.8, 400


def map_embeddings(config: Config, dataset: str, encoder: str, results: Results) -> None:
    """Write ``map.tsv`` beside the features of each dense pooling in ``config``.

    Columns: receptor_id, label (classes joined by ``;``), pca_1, pca_2, tsne_1, tsne_2. Above 5,000 receptors a sample
    drawn by the seed has t-SNE coordinates, and those of the others are empty.
    """
    if encoder in config.writers:
        raise UserError(f"encoder {encoder!r} writes sequences and makes no features, so there is no map of them")
    receptors = read_receptors(results.receptors(dataset)).set_index("receptor_id")
    for name in config.poolings:
        if not config.fits(dataset, encoder, name):
            continue
        features = read_features(results.features(dataset, encoder, name))
        if sparse.issparse(features.matrix):
            continue  # counts have no map
        labels = receptors["label"].reindex(features.receptor_ids).map(_label_text)
        path = results.map(dataset, encoder, name)
        write_table(_map_table(features, labels.tolist(), config.seed), path)
        logger.info("%s: %d receptors", path, len(features.receptor_ids))


def _map_table(features: Features, labels: list[str], seed: int) -> pd.DataFrame:
    components = principal_components(features.matrix, _TSNE_DIMENSIONS, seed)
    tsne = np.full((len(components), 2), np.nan)
    chosen = np.arange(len(components))
    if len(chosen) > _TSNE_RECEPTORS:
        chosen = np.sort(np.random.default_rng(seed).choice(chosen, _TSNE_RECEPTORS, replace=False))
    tsne[chosen] = neighbour_map(components[chosen], seed)
    table = {"receptor_id": features.receptor_ids, "label": labels}
    table |= {"pca_1": components[:, 0], "pca_2": components[:, 1], "tsne_1": tsne[:, 0], "tsne_2": tsne[:, 1]}
    return pd.DataFrame(table)


def principal_components(matrix: np.ndarray, n_components: int, seed: int) -> np.ndarray:
    """(n, D) -> (n, ``n_components``) of the standardised features; 0 where there are fewer components than that."""
    found = np.zeros((len(matrix), n_components))
    standardised = StandardScaler().fit_transform(matrix)
    if standardised.any():  # else all rows are alike
        most = min(n_components, *matrix.shape)
        found[:, :most] = PCA(most, random_state=seed).fit_transform(standardised)
    return found


def neighbour_map(components: np.ndarray, seed: int) -> np.ndarray:
    """(n, d) -> (n, 2) by t-SNE; NaN for fewer than four different rows, which have no neighbours to speak of."""
    if len(np.unique(components, axis=0)) < 4:
        return np.full((len(components), 2), np.nan)
    # fewer rows, fewer neighbours: three times the perplexity is how many t-SNE looks at
    perplexity = min(_PERPLEXITY, (len(components) - 1) / 3)
    tsne = TSNE(2, perplexity=perplexity, angle=_ANGLE, max_iter=_ITERATIONS, init="pca", random_state=seed)
    return tsne.fit_transform(components)


def _label_text(label: object) -> str:
    if label is None or (isinstance(label, float) and np.isnan(label)):
        return ""
    return f"{label:g}" if isinstance(label, float) else ";".join(label)
