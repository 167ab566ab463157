"""``data FILE``: both models on sequences of one's own, from the command line to a table."""

import re
import shlex
import subprocess
import sys

import pytest

from entp_lab import paths
from entp_lab.cli import main
from entp_lab.table_file import TableFile
from entp_lab.weights import load_model

SMALL = ["--shape", "2/2/16", "--steps", "4", "--batch-size", "8", "--seeds", "1", "--jobs", "1"]
ROWS = "sequence,scored\n" + "".join(f"{a} + {b} = {(a + b) % 10},5\n" for a in range(10) for b in range(10))


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path / "results"))
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    path = tmp_path / "sums.csv"
    path.write_text(ROWS)
    return path


def test_sequences_of_ones_own_are_trained_on(own_file, tmp_path, capsys):
    assert main(["data", str(own_file), *SMALL, "--seeds", "2"]) == 0
    said = capsys.readouterr().out
    assert "sums.csv: 80 train, 10 validation, 10 test; scores on test" in said
    for word in ("decoder", "entp", "constant guess", "on validation", "entp − decoder", "token_accuracy"):
        assert word in said
    assert len(list((tmp_path / "results" / "own" / "records" / "own_data").glob("*.json"))) == 4
    assert not (tmp_path / "results" / "records").exists()
    name = next(line for line in said.splitlines() if "generate own_data/" in line).split()[-5]
    assert main(["generate", name, "--prompt", "1 + 2 =", "--tokens", "1"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["1", "+", "2", "="]
    own_file.unlink()  # its words lie beside the weights
    assert main(["generate", name, "--prompt", "3 + 4 =", "--tokens", "1"]) == 0
    assert capsys.readouterr().out.split()[:4] == ["3", "+", "4", "="]
    assert main(["generate", name, "--prompt", "1 x 2"]) == 2
    assert "'x': this model's tokens are 12 words, '+' the first" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "1/1/99999999"], "shape = '1/1/99999999': training takes 1,788,139,"),
        (["--batch-size", "1000000000000"], "batch_size = 1000000000000: training takes 2,861,023 GiB or more"),
        (["--architecture", "encodr"], "architecture = 'encodr': must be one of"),
        (["--held-out", "0.9"], "held_out = 0.9: must be in"),
        (["--steps", "0"], "steps = 0: must be at least 1"),
    ],
)
def test_what_it_lacks_is_one_line(own_file, capsys, options, message):
    assert main(["data", str(own_file), *options]) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_a_file_that_cannot_be_used_is_one_line(own_file, capsys):
    """A name with a terminal's control characters, a table of numbers, a text whose batch no memory holds."""
    assert main(["data", str(own_file.with_name("\x1b[31mred.csv"))]) == 2
    assert capsys.readouterr().err.endswith("\\x1b[31mred.csv: no such file\n")
    own_file.write_text("a,b,c\n1,2,3\n")
    assert main(["data", str(own_file)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a, b, c" in line and "'sequence,scored'" in line and "docs/starting.md" in line
    own_file.write_text("so it goes\n\n" * 2000)
    assert main(["text", str(own_file), "--batch-size", "1000000000000"]) == 2
    assert "batch_size = 1000000000000" in capsys.readouterr().err


def test_the_examples_of_the_docs_make_files_that_are_trained_on(own_file, tmp_path, capsys, monkeypatch):
    text = (paths.root() / "docs" / "starting.md").read_text(encoding="utf-8")
    section = text.split("## Sequences of your own")[1].split("\n## ")[0]
    lines = [line[4:] for line in section.splitlines() if line.startswith("    ")]
    monkeypatch.chdir(tmp_path)
    making = "\n".join(lines[3:]).replace(".venv/bin/python -m entp_lab", "echo")
    making = making.replace(".venv/bin/python", shlex.quote(sys.executable))
    done = subprocess.run(["bash", "-euc", making], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "data sorting.csv" in done.stdout
    assert main(["data", "sorting.csv", *SMALL]) == 0
    assert "validation" in capsys.readouterr().out
    (tmp_path / "mine.csv").write_text("\n".join(lines[:3]))
    assert TableFile(str(tmp_path / "mine.csv")).table.words == ("+", "1", "2", "3", "4", "5", "6", "7", "=")


# How ``text FILE`` ends: what it prints leads to the weights, and the lines that it names work.


def test_the_lines_that_it_ends_with_work(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    text = tmp_path / "own.txt"
    text.write_text("\n\n".join(f"the {n} cats saw the {n + 1} dogs again" for n in range(60)))
    options = "--context 16 --steps 4 --batch-size 8 --size extra_small --jobs 1"
    assert main(["text", str(text), *options.split()]) == 0
    said = capsys.readouterr().out
    names = re.findall(r"load_model\('(own_text/[0-9a-f]{16})'\)", said)
    assert len(names) == 2 and "validation" in said and "picture:" in said
    assert (tmp_path / "own/figures/own_text.png").exists()
    assert {load_model(name).cfg.architecture for name in names} == {"decoder", "entp"}
    command = shlex.split(re.search(r"python -m entp_lab (generate .+)", said)[1])
    command[command.index("--prompt") + 1] = "the 7 cats"
    assert main([*command, "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the 7 cats")
    assert main(["generate", names[0], "--prompt", "the Ω"]) == 2
    assert "'Ω': not among the" in capsys.readouterr().err
    text.unlink()  # the tokenizer lies beside the weights
    assert main([*command, "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the 7 cats")
