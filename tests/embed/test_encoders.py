"""Encoders: masks, order, repeats, batch-mates, hidden residues, and every refusal in one sentence."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from reference_models import fair_esm_file, reference_esm2
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import airrformer as af
from airrformer.core import weights
from airrformer.core.alphabet import AMINO_ACIDS
from airrformer.core.config import ModelConfig
from airrformer.core.devices import resolve_precision
from airrformer.core.transformer import Transformer, initialise
from airrformer.embed.encoders import Blosum62, TransformerEncoder
from airrformer.errors import UserError

SHORT = "CASSIRSSYEQYF"
HEAVY = (
    "EVQLVQSGPEVKKPGTSVKVSCKASGFTFMSSAVQWVRQARGQRLEWIGWIVIGSGNTNYAQKFQERVTITRDMSTSTAYMELSSLRSEDTAVYYCAAPYCSSISCNDGFD"
    "IWGQGTMVTVSS"
)


def small(positions: str = "rotary", norm_place: str = "pre", **changes) -> TransformerEncoder:
    config = ModelConfig(layers=2, width=16, heads=2, feed_forward=32, max_length=160, positions=positions,
                         norm_place=norm_place, **changes)  # fmt: skip
    model = Transformer(config)
    initialise(model, torch.Generator().manual_seed(0))
    return TransformerEncoder(model, "small", device="cpu")


@pytest.fixture(scope="module")
def antiberty() -> TransformerEncoder:
    return af.load("antiberty", device="cpu")


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize(
    "encoder",
    [small(), small("learned"), small("sinusoidal", "post"), small(norm="rms", activation="swiglu"), Blosum62()],
)
def test_a_vector_does_not_depend_on_its_batch_mates(encoder, pooling):
    together = encoder.embed([SHORT, HEAVY, "CAX", SHORT], pooling=pooling)
    for i, sequence in enumerate([SHORT, HEAVY, "CAX", SHORT]):
        np.testing.assert_allclose(together[i], encoder.embed([sequence], pooling=pooling)[0], atol=1e-5, rtol=0)


def test_real_weights_do_not_see_their_batch_mates(antiberty):
    together = antiberty.embed([SHORT, HEAVY])
    np.testing.assert_allclose(together[0], antiberty.embed([SHORT])[0], atol=1e-5, rtol=0)


def test_order_repeats_and_batch_size_change_nothing():
    encoder = small()
    sequences = [HEAVY[:21], SHORT, HEAVY[:17], SHORT, HEAVY]
    expected = encoder.embed(sequences)
    np.testing.assert_array_equal(expected[1], expected[3])
    for batch_tokens in (1, 40, 100_000):
        np.testing.assert_allclose(encoder.embed(sequences, batch_tokens=batch_tokens), expected, atol=1e-5)
    np.testing.assert_allclose(encoder.embed(sequences[::-1])[::-1], expected, atol=1e-5)


def test_mean_is_the_mean_of_the_residue_rows_that_are_returned():
    encoder = small()
    residues = encoder.embed_residues([HEAVY, SHORT])
    assert [r.shape for r in residues] == [(len(HEAVY), 16), (len(SHORT), 16)]
    np.testing.assert_allclose(encoder.embed([HEAVY, SHORT]), [r.mean(0) for r in residues], atol=1e-6)
    np.testing.assert_allclose(encoder.embed([HEAVY, SHORT], pooling="max"), [r.max(0) for r in residues], atol=1e-6)


def test_a_region_is_pooled_in_the_context_of_the_whole_chain():
    encoder = small()
    start = HEAVY.index("AAPYCSSISCNDGFDI")
    residues = encoder.embed_residues([HEAVY])[0][start : start + 16]
    np.testing.assert_allclose(encoder.embed([HEAVY], pooling="cdr3")[0], residues.mean(0), atol=1e-6)


@given(st.lists(st.text("ACDEFGHIKLMNPQRSTVWYX", min_size=1, max_size=40), max_size=12), st.integers(1, 200))
@settings(max_examples=25, deadline=None)
def test_every_row_belongs_to_its_input(sequences, batch_tokens):
    encoder = Blosum62()
    rows = encoder.embed_residues(sequences, batch_tokens=batch_tokens)
    assert [len(row) for row in rows] == [len(sequence) for sequence in sequences]
    vectors = encoder.embed(sequences, batch_tokens=batch_tokens)
    assert vectors.shape == (len(sequences), 20)
    for vector, row in zip(vectors, rows):
        np.testing.assert_allclose(vector, row.mean(0), atol=1e-5)


def test_layers_count_from_the_embedding():
    encoder = small()
    np.testing.assert_array_equal(encoder.embed([SHORT], layer=-1), encoder.embed([SHORT], layer=2))
    assert not np.allclose(encoder.embed([SHORT], layer=0), encoder.embed([SHORT], layer=1))
    with pytest.raises(UserError, match=r"layer 3: small has 0 \(the embedding\) to 2"):
        encoder.embed([SHORT], layer=3)


def test_lower_case_is_the_same_residue():
    np.testing.assert_array_equal(small().embed(["cassirSSYEQYF"]), small().embed([SHORT]))


@pytest.mark.parametrize(
    ("sequence", "sentence"),
    [
        ("CA1F", r"sequence 1 \(CA1F\): '1' at position 2 is no residue"),
        ("CA<pad>F", r"'<' at position 2 is no residue"),
        ("CA-F", r"'-' at position 2 is no residue"),
        ("", r"sequence 1 is ''"),
        (None, r"sequence 1 is None"),
        (float("nan"), r"sequence 1 is nan"),
        ("A" * 159, r"sequence 1 .* has 159 residues; the window of small is 158"),
    ],
)
def test_bad_input_is_named(sequence, sentence):
    with pytest.raises(UserError, match=sentence):
        small().embed([SHORT, sequence])


def test_what_is_too_long_is_named_by_its_id():
    with pytest.raises(UserError, match=r"2 sequences longer than the 158 residues that small reads: b \(159\), c"):
        small().check_lengths(["a", "b", "c"], ["A" * 158, "A" * 159, "A" * 400])


def test_a_whole_window_fits():
    assert small().embed_residues(["A" * 158])[0].shape == (158, 16)


def test_one_string_is_no_list_of_sequences():
    with pytest.raises(UserError, match="not one string"):
        small().embed(SHORT)


def test_no_sequences_no_rows():
    assert small().embed([]).shape == (0, 16)


def test_masked_probabilities_hide_the_residue(antiberty):
    p = antiberty.masked_probabilities(HEAVY, 95)
    assert list(p) == list(AMINO_ACIDS) and sum(p.values()) == pytest.approx(1, abs=1e-5)
    changed = antiberty.masked_probabilities(HEAVY[:95] + "W" + HEAVY[96:], 95)
    assert p == pytest.approx(changed, abs=1e-6)  # what stands at the hidden place cannot be seen
    assert HEAVY[95] == "C" and p["C"] > 0.9


def test_pseudo_log_likelihood_is_the_sum_over_hidden_residues(antiberty):
    sequence = HEAVY[90:110]
    expected = sum(np.log(antiberty.masked_probabilities(sequence, i)[sequence[i]]) for i in range(len(sequence)))
    assert antiberty.pseudo_log_likelihood([sequence])[0] == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize(("able", "used"), [({"avx512_bf16": True}, "bf16"), ({"avx2": True}, "fp32")])
def test_a_cpu_without_the_instructions_computes_in_fp32(monkeypatch, caplog, able, used):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"architecture": "x86_64"} | able)
    assert resolve_precision("bf16", torch.device("cpu")) == used
    assert ("no instructions for it (avx512_bf16 or amx_bf16)" in caplog.text) == (used == "fp32")
    assert resolve_precision("auto", torch.device("cpu")) == "fp32"
    assert resolve_precision("bf16", torch.device("cuda")) == "bf16"


def test_bf16_is_near_fp32():
    exact, half = small(), small()
    half.precision = "bf16"
    a, b = exact.embed([HEAVY])[0], half.embed([HEAVY])[0]
    assert b.dtype == np.float32 and np.abs(a - b).max() < 0.05 * np.abs(a).max()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ("[]", "says neither ready nor skipped"),
        ("{}", "says neither ready nor skipped"),
        ('{"status": "skipped"}', "this encoder was skipped"),
        ('{"status": "ready"}', "names no published model"),
        ('{"status": "ready", "name": "esm3", "weights": "a.pt"}', "names no published model"),
        ('{"status": "ready", "name": "antiberty", "weights": null}', "names no published model"),
    ],
    ids=["empty", "list", "nothing", "skipped", "no-name", "unknown-name", "no-weights"],
)
def test_a_broken_status_is_one_sentence(content, message, tmp_path):
    (tmp_path / "status.json").write_text(content, "utf-8")
    with pytest.raises(UserError, match=message):
        af.load(tmp_path)


@pytest.mark.parametrize("form", ["decoder", "encoder-decoder"])
def test_what_writes_sequences_makes_no_vectors(form, tmp_path):
    weights.save(Transformer(ModelConfig(form=form, layers=1, width=16, heads=2, feed_forward=32)), tmp_path)
    with pytest.raises(UserError, match=f"this is a {form}, which writes sequences and makes no vectors"):
        af.load(tmp_path)


def test_numbers_that_are_not_finite_stop_the_run():
    encoder = small()
    encoder.model.encoder.blocks[0].feed_forward.output.bias.data[0] = float("inf")
    with pytest.raises(UserError, match="gave no finite numbers for 'CASSIRSSYEQYF'"):
        encoder.embed([SHORT])


def test_load_finds_a_fair_esm_file_by_name_and_in_the_torch_hub_cache(tmp_path, monkeypatch):
    reference = reference_esm2("esm2_t6_8M_UR50D")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    with pytest.raises(UserError, match=r"weights are not on this machine; put esm2_t6_8M_UR50D\.pt .*checkpoints"):
        af.load("esm2_t6_8M_UR50D")
    file = weights.kept_file("esm2_t6_8M_UR50D")
    file.parent.mkdir(parents=True)
    fair_esm_file(reference, file)
    encoder = af.load("esm2_t6_8M_UR50D", device="cpu")
    _, _, batch = reference.alphabet.get_batch_converter()([("a", SHORT)])
    with torch.inference_mode():
        expected = reference(batch, repr_layers=[6])["representations"][6][0, 1:-1]
    np.testing.assert_allclose(encoder.embed_residues([SHORT])[0], expected, atol=1e-5)
    named = af.load("esm2_t6_8M_UR50D", weights=file, device="cpu")
    np.testing.assert_array_equal(named.embed([SHORT]), encoder.embed([SHORT]))


def test_our_own_files_come_back_the_same(tmp_path):
    encoder = small()
    weights.save(encoder.model, tmp_path / "scratch")
    loaded = af.load(tmp_path / "scratch", device="cpu")
    np.testing.assert_array_equal(loaded.embed([HEAVY]), encoder.embed([HEAVY]))
    assert json.loads((tmp_path / "scratch" / "config.json").read_text())["width"] == 16


def test_what_is_no_encoder_is_refused(tmp_path):
    with pytest.raises(UserError, match="neither a folder with an encoder nor one of"):
        af.load("esm2_t6")
    with pytest.raises(UserError, match=r"holds neither model\.safetensors nor status\.json"):
        af.load(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="no readable checkpoint"):
        af.load(tmp_path)
    with pytest.raises(UserError, match="device 'cuda:9' cannot be used here"):
        af.load("blosum62") and af.load("antiberty", device="cuda:9")


def test_feature_extractor_in_a_pipeline():
    sequences, y = [SHORT, HEAVY, SHORT[:9], HEAVY[:90]], [0, 1, 0, 1]
    extractor = af.FeatureExtractor("blosum62", pooling="max")
    assert clone(extractor).get_params() == extractor.get_params()
    pipeline = make_pipeline(extractor, LogisticRegression()).fit(sequences, y)
    assert pipeline.predict(np.array(sequences, dtype=object)).tolist() == y
    assert pickle.loads(pickle.dumps(pipeline)).predict(sequences).tolist() == y
    frame = af.FeatureExtractor("blosum62").set_output(transform="pandas").fit_transform(sequences)
    assert list(frame.columns[:2]) == ["blosum62_0", "blosum62_1"] and frame.shape == (4, 20)
