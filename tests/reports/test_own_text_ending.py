"""How ``text FILE`` ends: what it prints leads to the weights, and the lines that it names work."""

import re
import shlex

from entp_lib import __main__ as cli
from entp_lib.records.loading import load_model


def test_the_lines_that_it_ends_with_work(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("ENTP_RECORDS", raising=False)
    monkeypatch.setenv("ENTP_RESULTS", str(tmp_path))
    text = tmp_path / "own.txt"
    text.write_text("\n\n".join(f"the {n} cats saw the {n + 1} dogs again" for n in range(60)))
    options = "--context 16 --steps 4 --batch-size 8 --size extra_small --jobs 1"
    assert cli.main(["text", str(text), *options.split()]) == 0
    said = capsys.readouterr().out
    names = re.findall(r"load_model\('(own_text/[0-9a-f]{16})'\)", said)
    assert (
        len(names) == 2
        and "validation" in said
        and "picture:" in said
        and (tmp_path / "own/figures/own_text.png").exists()
    )
    assert {load_model(name).cfg.architecture for name in names} == {"decoder", "entp"}
    command = shlex.split(re.search(r"python -m entp_lib (generate .+)", said)[1])
    command[command.index("--prompt") + 1] = "the 7 cats"
    assert cli.main([*command, "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the 7 cats")
    assert cli.main(["generate", names[0], "--prompt", "the Ω"]) == 2
    assert "'Ω': not among the" in capsys.readouterr().err
    text.unlink()  # the tokenizer lies beside the weights
    assert cli.main([*command, "--tokens", "5"]) == 0
    assert capsys.readouterr().out.startswith("the 7 cats")
