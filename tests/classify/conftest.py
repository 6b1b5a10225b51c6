"""Small studies that really run: a results folder as parse and embed leave it, and the config that goes with it."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from airrformer.config import Config, Target, load_config
from airrformer.embed.store import Features, write_features
from airrformer.paths import Results
from airrformer.receptors.tables import BOUND_COLUMNS, CHAIN_COLUMNS, write_table


@dataclass
class Study:
    results: Results
    config: Config
    target: Target

    @property
    def output(self):
        return self.results.classifier(*self.target)


@pytest.fixture
def make_study(tmp_path):
    """``make_study(X, labels, groups=None, classifier="logistic", **evaluation)``; one TRB chain a receptor."""

    def make(X, labels, groups=None, cdr3=None, classifier="logistic", order=None, folder="results", **evaluation):
        n = X.shape[0]
        rng = np.random.default_rng(0)
        ids = [f"r{i:03d}" for i in range(n)]
        cdr3 = cdr3 or ["".join(rng.choice(list("ACDEFGHIKLMNPQRSTVWY"), 12)) for _ in range(n)]
        order = range(n) if order is None else order
        receptors = pd.DataFrame({"receptor_id": ids, "label": labels})
        receptors["not_label"] = [[] for _ in ids]
        receptors["occurrences"] = 1
        if groups is not None:
            receptors["donor"] = groups
        rows = [
            dict.fromkeys(CHAIN_COLUMNS)
            | {"receptor_id": i, "chain": "TRB", "locus": "TRB", "sequence_aa": f"QQC{s}FGG"}
            | {"cdr3_start": 3, "cdr3_end": 3 + len(s)}
            for i, s in zip(ids, cdr3)
        ]
        chains = pd.DataFrame(rows).astype({column: "Int32" for column in BOUND_COLUMNS})
        results = Results(tmp_path / folder)
        target = Target("toy", "numbers", "mean", classifier)
        write_table(receptors.iloc[list(order)], results.receptors("toy"))
        write_table(chains.iloc[list(order)], results.chains("toy"))
        # features lie in another order than the receptors: rows are joined by id
        backwards = list(order)[::-1]
        features = Features([ids[i] for i in backwards], X[backwards], [f"TRB_{i}" for i in range(X.shape[1])])
        write_features(features, results.features("toy", "numbers", "mean"))
        config = load_config(
            {
                "datasets": {
                    "toy": {
                        "sequences": "toy.fasta",
                        "receptor": "TCR",
                        "chains": ["TRB"],
                        "labels": {"path": "toy.tsv"},
                        "groups": {} if groups is None else {"donor": "subject"},
                    }
                },
                "encoders": {"numbers": {"kind": "blosum62"}},
                "poolings": {"mean": {"kind": "mean"}},
                "classifiers": {
                    "logistic": {"kind": "logistic_regression"},
                    "neighbors": {"kind": "k_nearest_neighbors", "grid": {"n_neighbors": [3, 9]}},
                },
                "evaluation": {"bootstrap": 200, **evaluation},
            }
        )
        return Study(results, config, target)

    return make
