"""Every layer and every gradient of every published architecture in parity.py, and that the comparison can fail."""

from __future__ import annotations

from functools import partial

import pytest
from core import parity


@pytest.mark.parametrize("case", parity.CASES, ids=lambda case: case.architecture)
def test_core_equals(case):
    found = parity.errors(case)
    assert found.forward <= parity.TOLERANCE
    assert found.gradient <= parity.TOLERANCE


@pytest.mark.parametrize(
    "choice",
    [
        {"rotary_pairs": "interleaved"},
        {"rotary_base": 9_000.0},
        {"rotary_scaling": "ntk", "rotary_factor": 1.1},
        {"attn_scale": 0.26},  # 0.25 is right
        {"causal": False},
    ],
    ids=lambda choice: next(iter(choice)),
)
def test_a_wrong_choice_shows(choice):
    found = parity.errors(parity.Case("", "", partial(parity.llama, **choice)))
    assert found.forward > 10 * parity.TOLERANCE
    assert found.gradient > 10 * parity.TOLERANCE
