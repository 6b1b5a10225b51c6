"""Nearest neighbours of numbers."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

from airrformer.classify.neighbors import DistanceNeighborsRegressor

EDITS = {"cost": "edit", "weights": (0, 0, 1), "trim": False}
KNOWN = pd.DataFrame({"TRB_cdr3": ["ASSF", "ASTF", "AQQQF"], "TRB_sequence": ["X", "XX", "XXX"]})


@pytest.mark.parametrize("k, expected", [(1, 1.0), (2, 1.5), (3, (1 + 2 + 10 / 3) / (1 + 1 + 1 / 3)), (9, 19 / 7)])
def test_the_mean_of_the_nearest_by_closeness(k, expected):
    # ASAF is one edit from the first two, and three from the third
    model = DistanceNeighborsRegressor(k, options=EDITS).fit(KNOWN, [1.0, 2.0, 10.0])
    assert model.predict(pd.DataFrame({"TRB_cdr3": ["ASAF"]})).tolist() == pytest.approx([expected])


def test_the_same_receptor_alone_counts():
    model = DistanceNeighborsRegressor(3, options=EDITS).fit(KNOWN, np.array([1.0, 2.0, 10.0]))
    assert model.predict(KNOWN).tolist() == [1.0, 2.0, 10.0]
    twice = pd.concat([KNOWN, KNOWN.iloc[:1]], ignore_index=True)
    assert clone(model).fit(twice, [1.0, 2.0, 10.0, 4.0]).predict(KNOWN).tolist() == [2.5, 2.0, 10.0]
