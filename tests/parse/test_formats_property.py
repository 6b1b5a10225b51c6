"""Whatever is written in a format, with whatever oddities, is read back the same, and no record goes missing."""

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from parse.formats_written import PAIRS, WRITERS, write

from airrformer.config import Dataset
from airrformer.parse.dataset import parse_files

FIELDS = ["locus", "v_call", "j_call", "junction_aa", "sequence_aa"]


def read(path: Path, receptor: str, options: dict):
    options = {"receptor": receptor, "chains": list(PAIRS[receptor]), "missing_chain": "zero"} | options
    return parse_files([str(path)], Dataset(sequences=str(path), **options))


@pytest.mark.parametrize("name", WRITERS)
@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],  # a file is not made smaller: that takes minutes, and the fuzzer names its inputs
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rng=st.randoms(use_true_random=False))
def test_what_is_read_is_what_was_written(tmp_path, name, rng):
    written, receptor = write(rng, name)
    path = tmp_path / "file"
    path.write_bytes(written.data)
    parsed = read(path, receptor, written.options)

    chains = parsed.chains.astype(object).where(parsed.chains.notna(), None)
    by_receptor: dict[str, list] = {}
    for row in chains[["receptor_id", *FIELDS]].itertuples(index=False):
        by_receptor.setdefault(row[0], []).append(tuple(row[1:]))
    found = Counter(tuple(sorted(group, key=repr)) for group in by_receptor.values())
    assert found == Counter(tuple(sorted(group, key=repr)) for _, group in written.receptors)
    named = {name: Counter(group) for name, group in written.receptors if name is not None}
    assert {name: Counter(by_receptor.get(name, [])) for name in named} == named

    assert len(parsed.rejected) == written.rejected
    assert set(parsed.rejected["file"]) <= {str(path)}
    assert (parsed.rejected["line"] > 0).all()
    assert parsed.rejected["reason"].all()
