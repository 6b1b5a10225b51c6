"""From sequences to scores with the demo's own data: the whole way through parse, embed, classify and predict."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from airrformer.classify import classify, predict
from airrformer.classify.metrics import auroc_by_column
from airrformer.classify.predict import _species_untold
from airrformer.config import Dataset, Target, load_config
from airrformer.embed.stage import embed_dataset
from airrformer.errors import UserError
from airrformer.parse import parse_dataset, parse_input
from airrformer.paths import Results
from airrformer.receptors.genes import MOUSE
from airrformer.receptors.germlines import rebuild_chain

DATA = Path(__file__).parents[2] / "data"
CLASSES = ["YLQPRTFLL", "KTFPPTEPK"]


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """Results trained on half of two classes of the demo; the other half stays unseen, as (header, sequence)."""
    folder = tmp_path_factory.mktemp("predict")
    labels = pd.read_csv(DATA / "sars2_tcr.labels.tsv", sep="\t").set_index("receptor_id")["epitope"]
    with gzip.open(DATA / "sars2_tcr.fasta.gz", "rt") as file:
        records = [record.split("\n")[:2] for record in file.read().split(">")[1:]]
    records = [(header, s) for header, s in records if labels.get(header.split("|")[0]) in CLASSES]
    seen, unseen = records[::2], records[1::2]
    (folder / "seen.fasta").write_text("".join(f">{header}\n{s}\n" for header, s in seen))
    ids = [header.split("|")[0] for header, _ in seen]
    labels[ids].to_csv(folder / "seen.tsv", sep="\t")
    config = load_config(
        {
            "datasets": {
                "tcr": {
                    "sequences": str(folder / "seen.fasta"),
                    "id": "{receptor_id}|{locus}|{v_call}|{junction_aa}|{j_call}",
                    "receptor": "TCR",
                    "chains": ["TRB"],
                    "labels": {"path": str(folder / "seen.tsv"), "column": "epitope", "classes": CLASSES},
                }
            },
            "encoders": {"kmer": {"kind": "kmer"}, "blosum": {"kind": "blosum62"}},
            "poolings": {"counts": {"kind": "counts"}, "cdr3": {"kind": "mean", "region": "cdr3"}},
            "classifiers": {"logistic": {"kind": "logistic_regression"}, "near": {"kind": "k_nearest_neighbors"}},
            "evaluation": {"splits": ["random"], "bootstrap": 100},
        }
    )
    results = Results(folder / "results")
    parse_dataset(config.datasets["tcr"], results.dataset("tcr"))
    for target in (Target("tcr", "kmer", "counts", "logistic"), Target("tcr", "blosum", "cdr3", "near")):
        embed_dataset(config, "tcr", target.encoder, results)
        classify(config, target, results, results.classifier(*target))
    return results, unseen, labels


@pytest.mark.parametrize("target", ["kmer/counts/logistic", "blosum/cdr3/near"])
def test_unseen_receptors_one_row_each_in_order(study, tmp_path, target):
    results, unseen, labels = study
    new = tmp_path / "new.fasta.gz"
    with gzip.open(new, "wt") as file:
        file.write("".join(f">{header}\n{s}\n" for header, s in unseen))
        file.write(">broken|TRB|TRBV9*01|CASSF|TRBJ2-1*01\nCAS1SF\n")
    output = tmp_path / "scores.tsv"
    predict(results.root / "tcr" / target / "model", new, output)
    scores = pd.read_csv(output, sep="\t")
    assert scores.columns.tolist() == ["receptor_id", *CLASSES]
    assert scores["receptor_id"].tolist() == [header.split("|")[0] for header, _ in unseen]
    assert scores[CLASSES].min().min() >= 0 and scores[CLASSES].max().max() <= 1
    truth = np.array([[labels[i] == name for name in CLASSES] for i in scores["receptor_id"]])
    assert auroc_by_column(truth, scores[CLASSES].to_numpy()).min() > 0.75
    rejected = pd.read_csv(tmp_path / "scores.rejected.tsv", sep="\t")
    assert rejected["id"].str.contains("broken").tolist() == [True]


def test_mistakes_leave_no_file(study, tmp_path):
    results, _, _ = study
    model = results.root / "tcr" / "kmer/counts/logistic" / "model"
    with pytest.raises(UserError):
        predict(model, tmp_path / "absent.fasta", tmp_path / "out.tsv")
    with pytest.raises(UserError, match="cannot read the model"):
        predict(tmp_path, tmp_path / "absent.fasta", tmp_path / "out.tsv")
    (tmp_path / "new.fasta").write_text(">broken|TRB|TRBV9*01|CASSF|TRBJ2-1*01\nCAS1SF\n")
    with pytest.raises(UserError, match="no receptor is left"):
        predict(model, tmp_path / "new.fasta", tmp_path / "out.tsv")
    with pytest.raises(UserError, match="this is a folder"):
        predict(model, tmp_path / "new.fasta", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["new.fasta"]


@pytest.mark.parametrize("target", ["kmer/counts/logistic", "blosum/cdr3/near"])
def test_a_row_scores_the_same_alone_and_among_others(study, tmp_path, target):
    results, _, _ = study
    model = results.root / "tcr" / target / "model"
    head = "sequence_id\tlocus\tv_call\tj_call\tjunction_aa\tcdr1_aa\tcdr2_aa\n"
    rows = [  # what a file of mostly CDRs, genes or junctions is would be told by its neighbours
        "genes\tTRB\tTRBV19*01\tTRBJ2-7*01\tCASSIRSSYEQYF\t\t\n",
        "v\tTRB\tTRBV20-1*01\t\tCSARDRGNTEAFF\t\t\n",
        "cdrs\tTRB\t\t\tCASSLGGDTQYF\tMNHEY\tSVGAGI\n",
        "more\tTRB\t\t\tCASSPGTEAFF\tSGHDT\tYYEEEE\n",
        "bare\tTRB\t\t\tCASSPGQGYEQYF\t\tSVGAGI\n",
        "mouse\tTRB\tTRBV13-1*01\tTRBJ2-3*01\tCASSDFDWGGDAETLYF\t\t\n",
    ]
    (tmp_path / "all.tsv").write_text(head + "".join(rows))
    together = predict(model, tmp_path / "all.tsv", tmp_path / "scores.tsv")
    assert together["receptor_id"].tolist() == ["genes", "v", "cdrs", "more", "bare", "mouse"]
    assert len(set(together[CLASSES[0]])) == 6
    near = pd.read_csv(tmp_path / "scores.nearest.tsv", sep="\t", dtype=str, keep_default_na=False)
    told = near.drop_duplicates("receptor_id").set_index("receptor_id")["warning"].str.contains("it is of mouse")
    assert told[told].index.tolist() == ["mouse"]  # TRBV19 and TRBJ2-7 are names of genes of both
    for row in rows:
        name = row.partition("\t")[0]
        (tmp_path / "one.tsv").write_text(head + row)
        alone = predict(model, tmp_path / "one.tsv", tmp_path / "alone.tsv")
        expected = together[together["receptor_id"] == name].reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, expected, rtol=0, atol=1e-12)
        found = pd.read_csv(tmp_path / "alone.nearest.tsv", sep="\t", dtype=str, keep_default_na=False)
        pd.testing.assert_frame_equal(found, near[near["receptor_id"] == name].reset_index(drop=True))


@pytest.mark.parametrize("name", ["new.tsv", "new.rejected.tsv"])
def test_the_input_is_not_written_over(study, tmp_path, name):
    (tmp_path / name).write_text(">a\nCASSIRSSYEQYF\n")
    with pytest.raises(UserError, match=f"{name}: the output would be written over the input"):
        predict(study[0].root / "tcr" / "kmer/counts/logistic" / "model", tmp_path / name, tmp_path / "new.tsv")
    assert (tmp_path / name).read_text() == ">a\nCASSIRSSYEQYF\n"


def test_another_species_and_another_chain_are_said_row_by_row(study, tmp_path):
    results, unseen, _ = study
    good = [(header, s) for header, s in unseen if "TRBV20-1" in header or "TRBV7" in header][:2]
    (first, second), residues = (header.split("|") for header, _ in good), [s for _, s in good]
    alpha = rebuild_chain("TRAV12-2*01", "CAVNTGNQFYF", "TRAJ49*01").sequence_aa
    mouse = rebuild_chain("TRBV13-2*01", "CASGDAGGNTLYF", "TRBJ1-3*01", MOUSE).sequence_aa
    rows = [
        ("like", *first[2:5], "human", residues[0]),
        ("said", *second[2:5], "Macaca mulatta", residues[1]),
        ("genes", "TRBV13-2*01", "CASGDAGGNTLYF", "TRBJ1-3*01", "", mouse),
        ("alpha", *first[2:5], "", alpha),
    ]
    new = tmp_path / "new.tsv"
    head = "sequence_id\tlocus\tv_call\tjunction_aa\tj_call\tspecies\tsequence_aa\n"
    new.write_text(head + "".join(f"{i}\tTRB\t{v}\t{c}\t{j}\t{of}\t{s}\n" for i, v, c, j, of, s in rows))
    predict(results.root / "tcr" / "kmer/counts/logistic" / "model", new, tmp_path / "scores.tsv")
    near = pd.read_csv(tmp_path / "scores.nearest.tsv", sep="\t", keep_default_na=False)
    warning = near.drop_duplicates("receptor_id").set_index("receptor_id")["warning"]
    assert "it is of" not in warning["like"] and "chain is" not in warning["like"]
    assert "it is of macaca mulatta; the training receptors are of human" in warning["said"]
    assert "it is of mouse; the training receptors are of human" in warning["genes"]
    assert "the TRB chain is given as TRB, but looks like TRA" in warning["alpha"]


def test_what_tells_no_species_is_counted(study, tmp_path, caplog):
    results, *_ = study
    rows = ["TRBV19*01\tTRBJ2-7*01\tCASSIRSSYEQYF\t", "\t\tCASSPGQGYEQYF\t", "\t\tCASSLGGDTQYF\tHomo sapiens"]
    rows += ["\t\tCASSPGTEAFF\t", "TRBV77-7*01\tTRBJ77-1*01\tCASSPGTGELFF\t"]
    head = "sequence_id\tv_call\tj_call\tjunction_aa\tspecies\n"
    new = tmp_path / "new.tsv"
    new.write_text(head + "".join(f"r{i}\t{row}\n" for i, row in enumerate(rows)))
    predict(results.root / "tcr" / "kmer/counts/logistic" / "model", new, tmp_path / "scores.tsv")
    assert (tmp_path / "scores.rejected.tsv").read_text().count("TRBV77-7 is not known") == 1
    said = [record.getMessage() for record in caplog.records if record.name == "airrformer.classify.predict"]
    assert [text for text in said if text.startswith("nothing tells the species of 2 of 4 receptors (")]
    assert [text for text in said if text.startswith("TRBJ77-1*01, TRBV77-7*01: no such gene is known")]
    caplog.clear()
    new.write_text(head + f"r0\t{rows[0]}\nr2\t{rows[2]}\n")
    predict(results.root / "tcr" / "kmer/counts/logistic" / "model", new, tmp_path / "scores.tsv")
    assert "nothing tells" not in caplog.text and "no such gene" not in caplog.text


def test_antibody_genes_of_mouse_are_said_to_be_unknown(tmp_path):
    dataset = Dataset(sequences="a.csv", receptor="antibody", chains=["heavy"])
    path = tmp_path / "new.csv"
    path.write_text("sequence_id,v_call,j_call,junction_aa\na,IGHV1-9*01,IGHJ4*01,CARYYFDYW\nb,,,CARGYFDYW\n")
    # IGHJ4 is a name of both species: it stands beside a V gene that no human has
    assert _species_untold(parse_input(path, dataset), ["human"]) == [
        "nothing tells the species of 1 of 2 receptors (no column of species, no gene that is known); scores hold for "
        "human, of which the training receptors are",
        "IGHV1-9*01: no such gene is known (of antibodies those of human are, of TCRs those of human and mouse); 1 "
        "call may be of another species",
    ]
