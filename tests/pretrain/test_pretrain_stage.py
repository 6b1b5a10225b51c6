from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

from airrformer.config import load_config
from airrformer.core.weights import load_own, sha256
from airrformer.embed.encoders import load
from airrformer.errors import UserError
from airrformer.parse import parse_dataset
from airrformer.paths import Results
from airrformer.pretrain import pretrain, pretrain_encoder
from airrformer.receptors.tables import write_table
from airrformer.versions import STAGE_VERSIONS

from .conftest import small_config
from .test_reading import paired

FILES = {"model.safetensors", "config.json", "history.tsv", "metrics.json", "card.md", "status.json"}

ROOT = Path(__file__).parents[2]
GOLDEN = [3.6293, 3.3613, 3.3087]


@pytest.fixture
def receptors(chains) -> pd.DataFrame:
    labels = [["a"] if i % 2 else ["b"] for i in range(len(chains))]
    donors = [f"d{i % 7}" for i in range(len(chains))]
    table = pd.DataFrame({"receptor_id": chains["receptor_id"], "label": labels, "donor": donors, "occurrences": 1})
    return table.assign(not_label=[[] for _ in labels])


def test_the_folder_holds_all_that_the_other_stages_read(config, chains, tmp_path):
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu")
    assert {path.name for path in (tmp_path / "tiny").iterdir()} == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["tiny"]
    history = pd.read_csv(tmp_path / "tiny" / "history.tsv", sep="\t")
    assert list(history) == [
        "step", "train_loss", "validation_loss", "validation_accuracy", "learning_rate", "largest_gradient", "seconds"
    ]  # fmt: skip
    assert history["step"].tolist() == [4, 8, 12]
    metrics = json.loads((tmp_path / "tiny" / "metrics.json").read_text())
    assert metrics["corpus"] == ["toy"] and metrics["precision"] == "fp32" and metrics["steps"] == 12
    assert metrics["n_train"] + metrics["n_validation"] == chains["sequence_aa"].nunique()
    found = metrics["regions"]
    assert set(found) == {"framework", "cdr1_cdr2", "cdr3", "cdr3_germline", "cdr3_junction"}
    assert found["cdr3"]["n"] == found["cdr3_germline"]["n"] + found["cdr3_junction"]["n"] > 0
    assert metrics["regions_by_locus"]["TRB"] == found  # there is no other
    model = load_own(tmp_path / "tiny")
    assert sum(p.numel() for p in model.parameters()) == metrics["parameters"]
    status = json.loads((tmp_path / "tiny" / "status.json").read_text())
    assert (status["status"], status["kind"], status["source"]) == ("ready", "pretrain", "trained")
    assert status["sha256"] == sha256(tmp_path / "tiny" / "model.safetensors")
    card = (tmp_path / "tiny" / "card.md").read_text()
    assert f"{metrics['regions']['cdr3']['perplexity']:.2f}" in card and "unlabelled" in card


def test_two_runs_give_the_same_bytes(config, chains, tmp_path):
    for run in ("one", "two"):
        pretrain(config, "tiny", {"toy": chains}, tmp_path / run, device="cpu")
    first, second = ((tmp_path / run / "model.safetensors").read_bytes() for run in ("one", "two"))
    assert first == second


def test_golden_output(config, chains, tmp_path):
    """Another model from the same input needs another number in versions.STAGE_VERSIONS["pretrain"]."""
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu")
    history = pd.read_csv(tmp_path / "tiny" / "history.tsv", sep="\t")
    # bits differ between machines, losses hardly: enough to notice another order of draws, schedule or loss
    assert history["validation_loss"].tolist() == pytest.approx(GOLDEN, abs=5e-3)
    assert STAGE_VERSIONS["pretrain"] == 6


@pytest.mark.slow
def test_the_demos_encoder_beats_both_unigrams(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    config = load_config("config/config.yaml")
    for dataset in config.encoders["scratch"].corpus:
        parse_dataset(config.datasets[dataset], tmp_path / dataset)
    pretrain_encoder(config, "scratch", Results(tmp_path), tmp_path / "scratch", device="cpu")
    regions = json.loads((tmp_path / "scratch" / "metrics.json").read_text())["regions"]
    assert regions["framework"]["perplexity"] < 2.8 and regions["cdr3"]["perplexity"] < 7
    for values in regions.values():
        for rival in ("unigram", "position_unigram"):
            assert values["perplexity"] < values[f"{rival}_perplexity"]
            assert values["accuracy"] > values[f"{rival}_accuracy"]


@pytest.mark.gpu
def test_bf16_on_a_gpu(config, chains, tmp_path):
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cuda")
    metrics = json.loads((tmp_path / "tiny" / "metrics.json").read_text())
    assert (metrics["device"], metrics["precision"]) == ("cuda", "bf16")
    history = pd.read_csv(tmp_path / "tiny" / "history.tsv", sep="\t")
    assert history["validation_loss"].tolist() == pytest.approx(GOLDEN, abs=0.05)


def test_failure_leaves_nothing(config, chains, tmp_path):
    with pytest.raises(UserError):
        pretrain(config, "tiny", {"toy": chains.head(1)}, tmp_path / "tiny", device="cpu")
    with pytest.raises(UserError, match="diverged"):
        pretrain(small_config(learning_rate=1e30, clip=1e30), "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu")
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_is_said_before_the_training(config, chains, tmp_path, caplog):
    caplog.set_level("INFO")
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    for output, message in (
        ("file", "file: this is a file; name a folder"),
        ("file/in", "no folder can be written"),
    ):
        with pytest.raises(UserError, match=message):
            pretrain(config, "tiny", {"toy": chains}, tmp_path / output, device="cpu")
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine" and "step" not in caplog.text


def test_from_parsed_files_as_the_command_does(config, chains, receptors, tmp_path):
    results = Results(tmp_path)
    write_table(chains, results.chains("toy"))
    write_table(receptors, results.receptors("toy"))
    pretrain_encoder(config, "tiny", results, results.encoder("tiny"), device="cpu")
    assert results.encoder_status("tiny").is_file()


def test_train_folds_never_see_their_test_receptors(chains, receptors, tmp_path, caplog):
    config = small_config("train_folds", steps=2, validate_every=2)
    caplog.set_level("INFO")

    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu", receptors={"toy": receptors})
    folds = sorted(path.name for path in (tmp_path / "tiny" / "folds").iterdir())
    assert folds == sorted(f"{split}_1_{fold}" for split in ("random", "cluster", "group") for fold in range(3))
    for fold in folds:
        assert {path.name for path in (tmp_path / "tiny" / "folds" / fold).iterdir()} == {
            "model.safetensors", "config.json"
        }  # fmt: skip
    assert "never saw its test receptors" in (tmp_path / "tiny" / "card.md").read_text()


def test_an_encoder_that_is_not_trained_here_is_named(config, chains, tmp_path):
    with pytest.raises(UserError, match=r"encoder 'esm' is none that is trained.*\['tiny'\]"):
        pretrain(config, "esm", {"toy": chains}, tmp_path / "esm")


def with_encoder(**changes):
    values = small_config(changes.pop("corpus", ("toy",))).model_dump(mode="json")
    values["encoders"]["tiny"] |= changes
    return values


def test_pairs_as_loops_and_chains_with_tags_by_both_objectives(tmp_path):
    values = with_encoder(objective="both", sequence=["cdrs", "chain"], pairs=True, tags=True)
    values["datasets"]["toy"] |= {"chains": ["TRA", "TRB"], "species": "human"}
    pretrain(load_config(values), "tiny", {"toy": paired(80)}, tmp_path / "tiny", device="cpu")
    model = load_own(tmp_path / "tiny")
    assert (model.config.pairs, model.config.loops, model.config.tags, model.config.segments) == (True, True, True, 2)
    metrics = json.loads((tmp_path / "tiny" / "metrics.json").read_text())
    assert set(metrics["regions_by_locus"]) == {"TRA", "TRB"} and metrics["compared"] == {}
    assert metrics["n_receptors"] < metrics["n_train"] <= 2 * metrics["n_receptors"]
    card = (tmp_path / "tiny" / "card.md").read_text()
    assert "as CDR1, CDR2 and CDR3 or whole, the two of a receptor together" in card and "40% of the views" in card
    encoder = load(tmp_path / "tiny", device="cpu")
    assert encoder.embed([("CAS|TT|ASSF", "MN|SV|ASSLF")], pooling="loops").shape == (1, 6 * 16)


def test_published_encoders_guess_the_same_residues_for_the_card(chains, tmp_path, caplog):
    values = with_encoder(compare=["antiberty", "esm2_t36_3B_UR50D"])
    pretrain(load_config(values), "tiny", {"toy": chains.head(20)}, tmp_path / "tiny", device="cpu")
    found = json.loads((tmp_path / "tiny" / "metrics.json").read_text())["compared"]
    assert set(found) == {"", "antiberty"}  # nobody has the other's weights
    assert "esm2_t36_3B_UR50D: its weights are not on this machine" in caplog.text
    assert found["antiberty"]["TRB"]["cdr3"]["n"] == found[""]["TRB"]["cdr3"]["n"] > 0
    assert "| TRB | antiberty |" in (tmp_path / "tiny" / "card.md").read_text()


def test_labels_of_the_training_folds_alone_teach_a_supervised_encoder(chains, receptors, tmp_path):
    values = with_encoder(corpus="train_folds", objective="contrastive", supervised=True)
    config = load_config(values)
    pretrain(config, "tiny", {"toy": chains}, tmp_path / "tiny", device="cpu", receptors={"toy": receptors})
    card = (tmp_path / "tiny" / "card.md").read_text()
    assert "with their classes" in card and "of the views were told" in card
    unknown = receptors.assign(label=[[] for _ in range(len(receptors))])
    with pytest.raises(UserError, match="toy: no receptor has a class"):
        pretrain(config, "tiny", {"toy": chains}, tmp_path / "none", device="cpu", receptors={"toy": unknown})


def test_labels_on_which_it_would_be_judged_are_refused():
    values = with_encoder(objective="contrastive", supervised=True)
    values |= {"poolings": {"mean": {"kind": "mean"}}, "classifiers": {"logistic": {"kind": "logistic_regression"}}}
    values["targets"] = [{"encoders": ["tiny"]}]
    config = load_config(values)
    assert any("tiny.supervised: it learns the labels of 'toy'" in line for line in config.loose_ends())
    values["targets"] = []
    assert not any("supervised" in line for line in load_config(values).loose_ends())


def test_a_pair_beyond_the_window_is_said_before_the_training(tmp_path):
    values = with_encoder(objective="contrastive", pairs=True, model={"width": 16, "heads": 2, "max_length": 150})
    values["datasets"]["toy"] |= {"chains": ["TRA", "TRB"]}
    with pytest.raises(UserError, match=r"is 2\d\d tokens with its two chains together; raise .* from 150 to 2\d\d"):
        pretrain(load_config(values), "tiny", {"toy": paired(20)}, tmp_path / "tiny", device="cpu")


def test_the_same_files_under_another_name_teach_no_labels_either():
    values = with_encoder(objective="contrastive", supervised=True)
    values["datasets"]["again"] = values["datasets"]["toy"]
    values["encoders"]["plain"] = {"kind": "letters"}
    values |= {"poolings": {"mean": {"kind": "mean"}, "letters": {"kind": "letters"}}}
    member = {"classifier": "logistic", "encoder": "tiny", "pooling": "mean"}
    values["classifiers"] = {
        "logistic": {"kind": "logistic_regression"},
        "stack": {"kind": "stack", "members": [{"classifier": "logistic"}, member]},
    }
    values["targets"] = [{"datasets": ["again"], "encoders": ["plain"], "classifiers": ["stack"]}]
    lines = load_config(values).loose_ends()
    assert any(
        "it learns the labels of 'toy', by whose receptors a target of 'again' judges it" in line for line in lines
    )
