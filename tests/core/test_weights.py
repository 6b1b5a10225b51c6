"""Weights files: what is told apart, what is refused in one sentence, where files lie and how they come."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import http.server
import io
import json
import math
import tarfile
import threading

import pytest
import torch
from reference_models import (
    ablang_folder,
    fair_esm1b_file,
    fair_esm_file,
    reference_ablang1,
    reference_ablang2,
    reference_esm1b,
    reference_esm2,
    small_family,
)

from airrformer.config import Config, PublishedEncoder
from airrformer.core import alphabet, config, weights
from airrformer.core.config import ESM2_NAMES, FAMILIES, ModelConfig
from airrformer.core.transformer import Transformer, initialise
from airrformer.errors import UserError

ESM2 = "esm2_t6_8M_UR50D"
SIZE = dict(layers=2, width=32, heads=4, feed_forward=128)


@pytest.fixture
def esm2_file(monkeypatch, tmp_path):
    """A small ESM-2 in fair-esm's format."""
    small_family(monkeypatch, ESM2, **SIZE)
    fair_esm_file(reference_esm2(ESM2), tmp_path / "model.pt")
    return tmp_path / "model.pt"


def changed(file, change) -> None:
    """Write ``file`` again after ``change`` has had its tensors."""
    with torch.serialization.safe_globals([argparse.Namespace]):
        content = torch.load(file, weights_only=True)
    change(content["model"])
    torch.save(content, file)


# ------------------------------------------------------------------------------------------------------- the records


def test_every_family_has_its_checkpoints_and_a_kind_in_the_config():
    assert list(weights.CHECKPOINTS) == list(FAMILIES)
    chosen = {f"esm2_{i}": {"kind": "esm2", "name": name} for i, name in enumerate(ESM2_NAMES)}
    chosen |= {"heavy": {"kind": "ablang", "name": "heavy"}, "light": {"kind": "ablang", "name": "light"}}
    chosen |= {kind: {"kind": kind} for kind in ("esm1b", "antiberty", "ablang2", "mini")}
    encoders = Config(encoders=chosen).encoders.values()
    assert all(isinstance(encoder, PublishedEncoder) for encoder in encoders)
    names = {encoder.published_name: encoder.kind for encoder in encoders}
    assert names == {name: checkpoint.kind for name, checkpoint in weights.CHECKPOINTS.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_their_tokens_are_ours_by_other_rows(name):
    tokens = weights.CHECKPOINTS[name].tokens
    assert len(set(tokens)) == len(tokens) and set(tokens) <= {*alphabet.TOKENS, *config.TAGS}
    assert set(alphabet.AMINO_ACIDS) | {"<cls>", "<pad>", "<eos>", "<mask>"} <= set(tokens)
    assert weights.CHECKPOINTS[name].unknown in tokens


def test_the_config_knows_the_ids_of_the_alphabet():
    assert len(alphabet.TOKENS) == config.ALPHABET_SIZE
    assert (config.CLS, config.PAD, config.EOS, config.MASK) == (
        alphabet.CLS, alphabet.PAD, alphabet.EOS, alphabet.MASK,
    )  # fmt: skip
    assert alphabet.TOKENS[config.SEPARATOR] == "<null_1>"


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_are_counted_as_the_model_has_them(name):
    with torch.device("meta"):
        model = Transformer(FAMILIES[name])
    assert sum(parameter.numel() for parameter in model.parameters()) == sum(FAMILIES[name].parameters().values())


# --------------------------------------------------------------------------------------------------------- our files


def test_own_files_keep_contacts_and_what_residues_are_read_between(tmp_path):
    chosen = ModelConfig(**SIZE, contacts=True, tied=False, before=(0, 31), after=(2, 31))
    model = Transformer(chosen)
    initialise(model, torch.Generator().manual_seed(0))
    weights.save(model, tmp_path)
    back = weights.load_own(tmp_path)
    assert back.config == chosen
    assert back.state_dict().keys() == model.state_dict().keys()
    assert all(back.state_dict()[key].equal(value) for key, value in model.state_dict().items())


def test_single_numbers_and_nothing_are_no_weights(tmp_path):
    torch.save({"embed_tokens.weight": torch.tensor(1.0)}, tmp_path / "a.pt")
    with pytest.raises(UserError, match=r"its tensor 'embed_tokens\.weight' is a single number"):
        weights.identify(tmp_path / "a.pt")
    torch.save({1: torch.zeros(3)}, tmp_path / "b.pt")
    with pytest.raises(UserError, match="a table of tensors was expected"):
        weights.identify(tmp_path / "b.pt")
    (tmp_path / "c.pt").touch()
    with pytest.raises(UserError, match=r"c\.pt: no readable checkpoint: it ends too early"):
        weights.identify(tmp_path / "c.pt")


def test_own_files_that_do_not_fit_their_config(tmp_path):
    weights.save(Transformer(ModelConfig(**SIZE)), tmp_path)
    text = (tmp_path / "config.json").read_text()
    (tmp_path / "config.json").write_text(text.replace('"feed_forward": 128', '"feed_forward": 64'))
    with pytest.raises(UserError, match=r"model\.safetensors: does not fit config\.json: its encoder\.blocks\.0.*"):
        weights.load_own(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": "2"}, "layers must be a whole number of 0 or more, not '2'"),
        ({"heads": 0}, "heads must be a whole number of 1 or more, not 0"),
        ({"heads": True}, "heads must be a whole number"),
        ({"max_length": 3.5}, "max_length must be a whole number"),
        ({"before": 5}, "before must be whole numbers of 0 or more, not 5"),
        ({"after": ["b"]}, r"after must be whole numbers of 0 or more, not \('b',\)"),
        ({"tied": "false"}, "tied must be true or false, not 'false'"),
        ({"norm_place": "mid"}, "norm_place must be one of pre, post, not 'mid'"),
        ({"eps": math.nan}, "eps must be a number above 0, not nan"),
        ({"dropout": 2}, "dropout must be a number from 0 to below 1, not 2"),
        ({"pad": 77}, "pad 77 is no token of an alphabet of 33"),
        ({"layers": 10**6}, "it has 2 encoder layers, where 1000000 are expected"),
        ({"width": 4 * 10**12}, "no computer holds a model of the sizes"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_a_config_changed_by_hand_is_refused_at_once(tmp_path, changes, message):
    weights.save(Transformer(ModelConfig(layers=2, width=16, heads=4, feed_forward=32)), tmp_path)
    values = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(values | changes))
    with pytest.raises(UserError, match=message):
        weights.load_own(tmp_path)


@pytest.mark.parametrize("text", ["[]", "3", "null", "[" * 100_000], ids=["list", "number", "null", "deep"])
def test_a_config_that_is_no_table_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UserError, match=r"config\.json: not a model's config: "):
        weights.load_own(tmp_path)


# ----------------------------------------------------------------------------------------------------- told apart


def test_each_family_is_told_by_its_names_and_sizes(monkeypatch, tmp_path):
    for name in ("esm1b_t33_650M_UR50S", "ablang1-heavy", "ablang1-light", "ablang2-paired", ESM2):
        small_family(monkeypatch, name, **SIZE)
    fair_esm_file(reference_esm2(ESM2), tmp_path / "esm2.pt")
    fair_esm1b_file(reference_esm1b(FAMILIES["esm1b_t33_650M_UR50S"]), tmp_path / "esm1b.pt")
    ablang_folder(*reference_ablang1(FAMILIES["ablang1-heavy"]), tmp_path / "one", "amodel.pt")
    ablang_folder(*reference_ablang2(FAMILIES["ablang2-paired"]), tmp_path / "two", "model.pt")
    assert weights.identify(tmp_path / "esm2.pt")[0] == [ESM2]
    assert weights.identify(tmp_path / "esm1b.pt")[0] == ["esm1b_t33_650M_UR50S"]
    assert weights.identify(tmp_path / "one")[0] == ["ablang1-heavy", "ablang1-light"]
    names, model = weights.identify(tmp_path / "two" / "model.pt")
    assert names == ["ablang2-paired"] and model.config == FAMILIES["ablang2-paired"]


def test_a_size_that_was_never_published_is_said_to_be_one(monkeypatch, esm2_file):
    small_family(monkeypatch, ESM2, layers=3, width=32, heads=4, feed_forward=128)
    with pytest.raises(
        UserError, match=f"none of the published models; nearest is {ESM2}, but it has 2 layers of width 32,"
    ):
        weights.identify(esm2_file)


def test_a_strange_model_has_no_name_of_theirs(tmp_path):
    torch.save(torch.nn.Linear(2, 2).state_dict(), tmp_path / "linear.pt")
    with pytest.raises(UserError, match=r"linear\.pt: no published model that is known here"):
        weights.identify(tmp_path / "linear.pt")


def test_a_folder_without_weights(tmp_path):
    with pytest.raises(UserError, match=r"this folder holds none of .*amodel\.pt.*; name the weights file"):
        weights.identify(tmp_path)
    with pytest.raises(UserError, match=r"this folder holds none of model\.pt; name the weights file"):
        weights.load_foreign("ablang2-paired", tmp_path)


# -------------------------------------------------------------------------------------------------------- refused


def strange(state) -> None:
    state["encoder.sentence_encoder.adapter.weight"] = torch.zeros(2)


def without_keys(state) -> None:
    del state["encoder.sentence_encoder.layers.1.self_attn.k_proj.weight"]


def without_norm(state) -> None:
    del state["encoder.sentence_encoder.emb_layer_norm_after.bias"]


def two_outputs(state) -> None:
    state["encoder.sentence_encoder.layers.1.self_attn.rot_emb.inv_freq"] *= 2


def fewer_letters(state) -> None:
    for key in ("encoder.sentence_encoder.embed_tokens.weight", "encoder.lm_head.weight", "encoder.lm_head.bias"):
        state[key] = state[key][:24].clone()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (strange, "its tensor 'adapter.weight' has no place in this model"),
        (without_keys, r"only 2 of the three tensors that make up encoder\.blocks\.1\.attention\.qkv\.weight"),
        (without_norm, r"its encoder\.final_norm\.bias is missing, where \(32,\) is expected"),
        (two_outputs, "should hold the same numbers as another, but does not"),
        (fewer_letters, "its alphabet has 24 tokens, not 33"),
    ],
)
def test_what_does_not_fit_is_named(esm2_file, change, sentence):
    changed(esm2_file, change)
    with pytest.raises(UserError, match=rf"model\.pt: not the weights of {ESM2}: .*{sentence}"):
        weights.load_foreign(ESM2, esm2_file)


def test_a_file_cut_short(esm2_file):
    esm2_file.write_bytes(esm2_file.read_bytes()[: esm2_file.stat().st_size // 2])
    with pytest.raises(UserError, match=r"model\.pt: no readable checkpoint"):
        weights.load_foreign(ESM2, esm2_file)


def test_a_contact_regression_of_another_size_is_refused(esm2_file):
    torch.save(
        {
            "model": {
                "contact_head.regression.weight": torch.zeros(1, 5),
                "contact_head.regression.bias": torch.zeros(1),
            }
        },
        esm2_file.with_name("model-contact-regression.pt"),
    )
    with pytest.raises(
        UserError, match=r"its contact_head\.regression\.weight is \(1, 5\), where \(1, 8\) is expected"
    ):
        weights.load_foreign(ESM2, esm2_file)


# ------------------------------------------------------------------------------------------------- found and fetched


@pytest.fixture
def caches(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hf"))
    return tmp_path


def test_a_named_folder_is_as_good_as_the_file(tmp_path):
    assert weights.find_local("ablang2-paired", str(tmp_path)) is None
    (tmp_path / "model.pt").touch()
    assert weights.find_local("ablang2-paired", str(tmp_path)) == str(tmp_path / "model.pt")
    assert weights.find_local("ablang2-paired", str(tmp_path / "model.pt")) == str(tmp_path / "model.pt")
    assert weights.find_local("ablang2-paired", str(tmp_path / "other.pt")) is None


def test_the_config_takes_a_folder_too(tmp_path):
    named = {"ab": {"kind": "ablang2", "weights": str(tmp_path)}}
    assert Config(encoders=named).missing_files() == []
    named["ab"]["weights"] += "/none"
    assert Config(encoders=named).missing_files() == [f"encoders.ab.weights: there is no file '{tmp_path}/none'"]


def test_the_hugging_face_cache_is_looked_at(caches):
    assert weights.find_local("esm1b_t33_650M_UR50S") is None
    file = caches / "hf" / "models--facebook--esm1b_t33_650M_UR50S" / "snapshots" / "abc" / "model.safetensors"
    file.parent.mkdir(parents=True)
    file.touch()
    assert weights.find_local("esm1b_t33_650M_UR50S") == str(file)


@pytest.fixture
def server(tmp_path):
    """A web server on this machine, of a folder that the test fills; gives the folder and its address."""
    folder = tmp_path / "served"
    folder.mkdir()
    handler = functools.partial(QuietHandler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_port}"
        running.shutdown()


class QuietHandler(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments) -> None:
        pass


def served_at(monkeypatch, name: str, **changes) -> None:
    monkeypatch.setitem(weights.CHECKPOINTS, name, dataclasses.replace(weights.CHECKPOINTS[name], **changes))


def archive(path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as content:
        for name, data in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            content.addfile(member, io.BytesIO(data))


def test_download_brings_the_contact_regression_too(caches, server, monkeypatch):
    folder, address = server
    served_at(monkeypatch, ESM2, url=address + "/{name}.pt", contacts_url=address + "/{name}-regression.pt")
    (folder / f"{ESM2}.pt").write_bytes(b"weights")
    (folder / f"{ESM2}-regression.pt").write_bytes(b"regression")
    file = weights.download(ESM2)
    assert str(file) == weights.find_local(ESM2) and file.read_bytes() == b"weights"
    assert file.with_name(f"{ESM2}-contact-regression.pt").read_bytes() == b"regression"


def test_download_does_without_the_contact_regression(caches, server, monkeypatch):
    folder, address = server
    served_at(monkeypatch, ESM2, url=address + "/{name}.pt", contacts_url=address + "/none.pt")
    (folder / f"{ESM2}.pt").write_bytes(b"weights")
    file = weights.download(ESM2)
    assert [path.name for path in file.parent.iterdir()] == [f"{ESM2}.pt"]


def test_download_unpacks_an_archive(caches, server, monkeypatch):
    folder, address = server
    served_at(monkeypatch, "ablang2-paired", url=address + "/two.tar.gz")
    archive(folder / "two.tar.gz", {"../../model.pt": b"weights", "./hparams.json": b"{}", "evil.py": b"no"})
    file = weights.download("ablang2-paired")
    assert weights.find_local("ablang2-paired") == str(file) and file.read_bytes() == b"weights"
    assert sorted(path.name for path in file.parent.iterdir()) == ["hparams.json", "model.pt"]
    assert file.parent.name == "ablang2-paired"


@pytest.mark.parametrize(
    ("data", "reason"),
    [(b"no archive", "no whole archive"), (None, "holds no model.pt"), (b"", "no whole archive")],
)
def test_download_of_something_else_leaves_nothing(caches, server, monkeypatch, data, reason):
    folder, address = server
    served_at(monkeypatch, "ablang2-paired", url=address + "/two.tar.gz")
    archive(folder / "two.tar.gz", {"other.pt": b"weights"})
    if data is not None:
        (folder / "two.tar.gz").write_bytes(data)
    with pytest.raises(ConnectionError, match=reason):
        weights.download("ablang2-paired")
    assert weights.find_local("ablang2-paired") is None


def test_download_that_is_not_there(caches, server, monkeypatch):
    served_at(monkeypatch, ESM2, url=server[1] + "/{name}.pt")
    with pytest.raises(ConnectionError, match=r"File not found|Not Found"):
        weights.download(ESM2)
    assert weights.find_local(ESM2) is None
    with pytest.raises(ConnectionError, match="comes inside a Python package"):
        weights.download("antiberty")
