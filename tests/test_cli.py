"""The command line from outside: help, exit codes, one clear sentence for a user's mistake."""

import os
import signal
import subprocess
import sys
import time

import pytest
import typer.main
from typer.testing import CliRunner

from airrformer.cli import app

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
        (["parse", "none.fasta", "--output", "out"], "there is no file 'none.fasta'"),
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
        (["weights", "check", "none.pt", "--name", "esm2_t6_8M_UR50D"], "none.pt"),
        (["predict", "--model", "none", "--input", "a.fasta", "--output", "out/a.tsv"], "none"),
        (["parse", "a.fasta", "--output", "a.fasta/out"], "a.fasta/out/chains.parquet: cannot be written"),
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
    with (
        subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=config.parent) as process,
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


def test_weights_list_names_every_published_encoder():
    from airrformer.core.config import FAMILIES

    done = airrformer("weights", "list")
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == list(FAMILIES)
