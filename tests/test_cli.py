"""The command line from outside: help, exit codes, one clear sentence for a user's mistake."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import time

import pytest
import typer.main
from typer.testing import CliRunner

from airrformer.cli import app, main

COMMANDS = [
    ["parse"],
    ["pretrain"],
    ["embed"],
    ["classify"],
    ["predict"],
    ["generate"],
    ["report"],
    ["explain", "map"],
    ["explain", "masked"],
    ["weights", "fetch"],
    ["weights", "list"],
    ["weights", "check"],
    ["weights", "convert"],
]


def airrformer(*arguments, **settings) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "airrformer", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL, **settings)


@pytest.fixture
def config(tmp_path):
    """A config of one dataset, whose FASTA is there."""
    (tmp_path / "a.fasta").write_text(">a\nCASSIRSSYEQYF\n", encoding="utf-8")
    path = tmp_path / "config.yaml"
    path.write_text(
        "datasets: {tcr: {sequences: a.fasta, receptor: TCR, chains: [TRB]}}\n"
        "encoders: {blosum62: {kind: blosum62}}\n"
        "poolings: {mean: {kind: mean}}\n",
        encoding="utf-8",
    )
    return path


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_and_explains_every_option(command):
    done = CliRunner().invoke(app, [*command, "--help"])
    assert done.exit_code == 0, done.output
    assert f"airrformer {' '.join(command)}" in done.output.split("Example")[1]
    found = typer.main.get_command(app)
    for name in command:
        found = found.commands[name]
    assert not [parameter.name for parameter in found.params if not parameter.help]


def test_help_is_quick():
    start = time.perf_counter()
    code = "import sys, airrformer.cli; sys.exit(bool({'torch', 'pandas', 'sklearn'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    assert time.perf_counter() - start < 20  # the imports above are what matters; this only catches a hang


def test_top_level_help_names_every_command():
    done = CliRunner().invoke(app, ["--help"])
    assert done.exit_code == 0
    assert all(f"  {command[0]} " in done.output for command in COMMANDS)


def test_version():
    import airrformer as package

    assert airrformer("--version").stdout == f"airrformer {package.__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parse", "--output", "out"], "give either INPUT files, or --config with --dataset"),
        (["parse", "a.fasta", "--config", "config.yaml", "--output", "out"], "give either INPUT files"),
        (["parse", "a.fasta", "--columns", "id", "--output", "out"], "'id' is no NAME=VALUE"),
        (["parse", "a.fasta", "--receptor", "BCR", "--output", "out"], "BCR"),
        (["parse", "a.fasta", "--nope"], "No such option"),
        (["embed", "a.fasta"], "give INPUT and --encoder"),
        (["classify", "--config", "config.yaml", "--target", "a/b", "--output", "out"], "'a/b' is no dataset/encoder"),
        (["weights", "fetch"], "give either NAME, or --config with --encoder"),
        (["weights", "fetch", "antiberty", "--config", "config.yaml", "--encoder", "a"], "give either NAME"),
        (["weights", "fetch", "--config", "config.yaml", "--encoder", "a"], "name the folder for status.json"),
        (["nonsense"], "No such command"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_wrong_use_exits_with_2(config, monkeypatch, arguments, message):
    monkeypatch.chdir(config.parent)
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert not (config.parent / "out").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["parse", "none.fasta", "--output", "out"], "'none.fasta': there is no such file"),
        (["parse", "a.fasta", "--chains", "TRX", "--output", "out"], "'TRX'"),
        (["parse", "a.fasta", "--labels", "none.tsv", "--output", "out"], "there is no file 'none.tsv'"),
        (["parse", "--config", "none.yaml", "--dataset", "tcr", "--output", "out"], "none.yaml: cannot read"),
        (
            ["parse", "--config", "config.yaml", "--dataset", "tcrs", "--output", "out"],
            "no dataset 'tcrs' in the config; there is tcr",
        ),
        (
            ["classify", "--config", "config.yaml", "--target", "tcr/blosum62/mean/svm", "--output", "out"],
            "no classifier 'svm'",
        ),
        (["embed", "--config", "config.yaml", "--dataset", "tcr", "--encoder", "esm"], "no encoder 'esm'"),
        (["explain", "map", "--config", "config.yaml", "--dataset", "x", "--encoder", "blosum62"], "no dataset 'x'"),
        (["weights", "fetch", "--config", "config.yaml", "--encoder", "blosum62", "--output", "out"], "blosum62"),
        (["weights", "check", "a.fasta", "--name", "esm3"], "no published encoder 'esm3'"),
        (["weights", "check", "none.pt", "--name", "esm2_t6_8M_UR50D"], "none.pt: cannot read the weights"),
        (["weights", "fetch", "esm3"], "no published encoder 'esm3'"),
        (["weights", "convert", "a.fasta", "--name", "esm3", "--output", "out"], "no published encoder 'esm3'"),
        (["predict", "--model", "none", "--input", "a.fasta", "--output", "out/a.tsv"], "none"),
        (
            ["parse", "a.fasta", "--chains", "TRB", "--output", "a.fasta/out"],
            "a.fasta/out/chains.parquet: cannot be written",
        ),
        (["explain", "map", "--config", "config.yaml", "--dataset", "tcr", "--encoder", "blosum62"], "no such file"),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_a_mistake_of_the_users_is_one_sentence_and_exit_2(config, arguments, message):
    done = airrformer(*arguments, cwd=config.parent)
    assert done.returncode == 2, done.stderr
    assert done.stderr.splitlines()[-1].strip() and message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (config.parent / "out").exists()


def test_config_mistakes_are_listed(config):
    config.write_text(config.read_text(encoding="utf-8").replace("receptor:", "recepter:"), encoding="utf-8")
    done = airrformer("parse", "--config", config.name, "--dataset", "tcr", "--output", "out", cwd=config.parent)
    assert done.returncode == 2
    assert "datasets.tcr.recepter: unknown key; did you mean 'receptor'?" in done.stderr


@pytest.mark.skipif(os.name != "posix", reason="named pipes and SIGINT")
def test_interrupt_exits_with_130(config):
    pipe = config.parent / "pipe.yaml"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "airrformer", "parse", "--config", pipe, "--dataset", "tcr", "--output", "out"]

    def heed() -> None:  # tests that a shell runs in the background are started deaf to it, and so would the command be
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=config.parent, preexec_fn=heed) as process,
        open(pipe, "w", encoding="utf-8"),  # returns once the command has opened it to read
    ):
        process.send_signal(signal.SIGINT)
        stderr = process.communicate(timeout=60)[1]
    assert process.returncode == 130, stderr
    assert "Traceback" not in stderr


def test_parse_by_hand_and_from_the_config_give_the_same(config):
    by_hand = airrformer("parse", "a.fasta", "--chains", "TRB", "--output", "by_hand", cwd=config.parent)
    assert by_hand.returncode == 0, by_hand.stderr
    configured = airrformer(
        "parse", "--config", config, "--dataset", "tcr", "--output", "configured", cwd=config.parent
    )
    assert configured.returncode == 0, configured.stderr
    assert by_hand.stdout == configured.stdout == ""
    for name in ("chains.parquet", "receptors.parquet", "rejected.tsv", "parse.json"):
        assert (config.parent / "by_hand" / name).read_bytes() == (config.parent / "configured" / name).read_bytes()


def test_weights_list_names_every_published_encoder(capsys):
    from airrformer.core.config import FAMILIES
    from airrformer.core.weights import find_local

    assert main_in_this_process("weights", "list") == 0
    header, *rows = capsys.readouterr().out.splitlines()
    assert header.split() == ["name", "parameters", "licence", "source", "weights"]
    assert [row.split()[0] for row in rows] == list(FAMILIES)
    by_name = {row.split()[0]: row for row in rows}
    assert "7,512,353" in by_name["esm2_t6_8M_UR50D"] and "MIT" in by_name["esm2_t6_8M_UR50D"]
    assert by_name["antiberty"].endswith(find_local("antiberty"))


@pytest.fixture(scope="module")
def esm2_file(tmp_path_factory):
    """A fair-esm checkpoint of the smallest ESM-2 with random weights, its contact regression beside it."""
    from reference_models import contact_regression_file, fair_esm_file, reference_esm2

    file = tmp_path_factory.mktemp("weights") / "esm2.pt"
    reference = reference_esm2("esm2_t6_8M_UR50D")
    fair_esm_file(reference, file)
    contact_regression_file(reference, file)
    return file


@pytest.mark.parametrize("name", [None, "esm2_t6_8M_UR50D"])
def test_weights_check_says_what_a_file_is(esm2_file, capsys, name):
    from airrformer.core.weights import sha256

    assert main_in_this_process("weights", "check", esm2_file, *(["--name", name] if name else [])) == 0
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == str(esm2_file)
    values = dict(row.split(maxsplit=1) for row in rows)
    assert values["model"] == "esm2_t6_8M_UR50D"
    assert values["parameters"] == "7,512,474"  # those of weights list, and 120 + 1 of the contact regression
    assert values["compared"].startswith("embedding, 6 layers and output")
    assert values["contacts"] == "yes"
    assert values["sha256"] == sha256(esm2_file)


class Runs:
    def __reduce__(self):
        return print, ("code from a checkpoint ran",)


def broken(kind: str, esm2_file, folder):
    import torch

    file = folder / f"{kind}.pt"
    if kind == "cut":
        file.write_bytes(esm2_file.read_bytes()[:100_000])
    elif kind == "text":
        file.write_text(">a\nCASSF\n", encoding="utf-8")
    elif kind == "code":
        torch.save({"model": Runs()}, file)
    elif kind == "strange":
        torch.save({"model": {"conv.weight": torch.zeros(3)}}, file)
    return file


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("cut", "no readable checkpoint"),
        ("text", "refused, it holds more than tensors, or it is no checkpoint at all"),
        ("code", "refused, it holds more than tensors"),
        ("strange", "no published model that is known here"),
    ],
)
def test_weights_check_refuses_in_one_sentence(esm2_file, tmp_path, capsys, kind, sentence):
    file = broken(kind, esm2_file, tmp_path)
    assert main_in_this_process("weights", "check", file) == 2
    said = capsys.readouterr()
    assert said.out == ""  # nor has the file's code printed anything
    assert said.err.count("\n") == 1 and f"{file}: {sentence}" in said.err


@pytest.mark.parametrize("command", ["check", "convert"])
def test_weights_of_another_size(esm2_file, tmp_path, capsys, command):
    more = ["--output", tmp_path / "out"] if command == "convert" else []
    assert main_in_this_process("weights", command, esm2_file, "--name", "esm2_t12_35M_UR50D", *more) == 2
    sizes = "it has 6 layers of width 320, where 12 of width 480 are expected"
    assert f"{esm2_file}: not the weights of esm2_t12_35M_UR50D: {sizes}\n" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_weights_convert_writes_an_encoder(esm2_file, tmp_path, capsys):
    import numpy as np

    import airrformer as af

    out = tmp_path / "esm2_8m"
    assert main_in_this_process("weights", "convert", esm2_file, "--name", "esm2_t6_8M_UR50D", "--output", out) == 0
    assert "7,512,474 parameters, read back equal" in capsys.readouterr().out
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    ours, theirs = af.load(out, device="cpu"), af.load("esm2_t6_8M_UR50D", weights=esm2_file, device="cpu")
    np.testing.assert_array_equal(ours.embed(["CASSIRSSYEQYF"]), theirs.embed(["CASSIRSSYEQYF"]))
    np.testing.assert_array_equal(ours.contacts("CASSIRSSYEQYF"), theirs.contacts("CASSIRSSYEQYF"))


def test_weights_fetch_by_name(tmp_path, capsys, monkeypatch, esm2_file):
    import airrformer as af

    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    kept = tmp_path / "torch" / "hub" / "checkpoints" / "esm2_t6_8M_UR50D.pt"
    kept.parent.mkdir(parents=True)
    kept.symlink_to(esm2_file)
    assert main_in_this_process("weights", "fetch", "esm2_t6_8M_UR50D", "--output", tmp_path / "out") == 0
    assert capsys.readouterr().out == f"{kept}\n"
    status = json.loads((tmp_path / "out" / "status.json").read_text())
    assert (status["status"], status["kind"], status["source"]) == ("ready", "esm2", "local")
    assert af.load(tmp_path / "out", device="cpu").embed(["CASSF"]).shape == (1, 320)


def test_weights_that_can_be_had_nowhere(tmp_path, capsys, monkeypatch):
    from airrformer.core import weights

    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    nowhere = dataclasses.replace(weights.CHECKPOINTS["ablang2-paired"], url="http://127.0.0.1:9/weights.tar.gz")
    monkeypatch.setitem(weights.CHECKPOINTS, "ablang2-paired", nowhere)
    assert main_in_this_process("weights", "fetch", "ablang2-paired", "--output", tmp_path / "out") == 2
    said = capsys.readouterr()
    assert said.out == "" and not (tmp_path / "out").exists()
    assert "the weights of ablang2-paired are not on this machine and no download (" in said.err
    assert "unpack http://127.0.0.1:9/weights.tar.gz and name its folder" in said.err


def main_in_this_process(*arguments) -> int:
    """The exit code of the command; quicker than a process of its own, which would import torch again."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit) as left:
        patch.setattr(sys, "argv", ["airrformer", *map(str, arguments)])
        main()
    return left.value.code or 0
