"""The site's pieces that compute, in a real browser and without Sphinx, against the library."""

import random

import browser
import pytest
import torch
from conftest import seeded

from entp_lab import site
from entp_lib.validation import ConfigError
from entp_papers.entp import playground
from entp_papers.looped import assembler, running

WRAPPING = """bits 4
cell list[2] = 7 -8
cell x
again: subleq list[1] list[0] again  # 7 - -8 does not fit into four bits
subleq list[0] x done
subleq #-3 x
done: halt
clear x
"""


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    """A function that opens a play on a page of its own. Skipped where no browser is installed."""
    folder = tmp_path_factory.mktemp("plays")
    static = site.SOURCE / "_static"
    (folder / "match3_data.js").write_text(site.weights_script("match3"), encoding="utf-8")
    window = browser.Browser(tmp_path_factory.mktemp("profile"))

    def show(name):
        scripts = [folder / "match3_data.js", static / "play.js", static / f"{name}.js"]
        loaded = "".join(f'<script src="{path.as_uri()}"></script>' for path in scripts)
        page = folder / f"{name}.html"
        page.write_text(
            f'<meta charset="utf-8"><div id="play-{name}"></div>{loaded}', encoding="utf-8"
        )
        window.problems.clear()
        window.open(page)
        assert window.problems == []
        return window

    yield show
    window.close()


def test_the_pages_weights_are_small():
    assert len(site.weights_script("match3")) < 1_000_000


def pair():
    """The two models that the playground shows first."""
    defaults = playground.Parameters()
    return [playground.player(name) for name in (defaults.first, defaults.second)]


def test_both_trained_models_answer_in_the_page_as_in_the_library(play):
    """Probabilities to the precision of half floats, and labels by the definition."""
    players = pair()
    x_BT = players[0].task.batch(seeded(1), 40).inputs_BT
    window = play("match3")
    window.ask(f"window.tried = {x_BT.tolist()}; 0")
    for who in players:
        model = f"window.match3Data.models.find(m => m.run === '{who.name}')"
        found = torch.tensor(
            window.ask(f"tried.map(x => probabilities({model}, x).map(p => [...p]))")
        )
        assert (found.double() - who.probabilities(x_BT)).abs().max() < 0.02
    assert window.ask("tried.map(x => match3(x, 11))") == players[0].task.labels(x_BT).tolist()


def test_both_models_are_seen_at_once_and_differ_at_first(play):
    window = play("match3")
    cells = "r => [...r.cells].map(c => c.textContent.trim())"
    rows = window.ask(f"[...document.querySelectorAll('#match3-models tbody tr')].map({cells})")
    table = playground.side_by_side(pair(), "8 3 9 0 3 8 1 3")
    assert rows == table[["prefix", "truth", "decoder", "ENTP"]].values.tolist()
    assert any("✗" in row[2] for row in rows)
    assert not any("✗" in row[3] for row in rows)
    for text, said in (
        ("1 11", "11: these models read the numbers 0 to 10"),
        ("1 " * 9, "Type 1 to 8 numbers, not 9"),
    ):
        window.enter("#play-match3 input", text)
        assert said in window.ask("document.querySelector('#play-match3').textContent")


def test_subleq_goes_the_interpreters_way_step_by_step(play):
    program = assembler.assemble(WRAPPING)
    history = running.interpret(program, 200)
    window = play("subleq")
    window.enter("#subleq-text", WRAPPING)
    shown = [i for name, i in program.cells.items() if i > 1 and not name.startswith("#")]
    states = zip(history.memories, history.lines, strict=True)
    expected = [[k, line, *(memory[i] for i in shown)] for k, (memory, line) in enumerate(states)]
    numbers = "r => [...r.cells].map(c => Number(c.textContent))"
    rows = f"[...document.querySelectorAll('#subleq-memory tbody tr')].map({numbers})"
    window.ask("document.querySelector('#subleq-step').click()")
    assert window.ask(rows) == expected[:2]
    window.ask("document.querySelector('#subleq-run').click()")
    assert window.ask(rows) == expected
    said = window.ask("document.querySelector('#subleq-said').textContent")
    assert f"Halted after {len(history.lines) - 1} steps" in said


def test_random_subleq_programs_go_the_interpreters_way(play):
    drawn = random.Random(0)
    window = play("subleq")
    for _ in range(30):
        names = [f"c{i}" for i in range(drawn.randint(1, 6))]
        lines = [
            f"bits {drawn.randint(3, 12)}",
            *(f"cell {n} = {drawn.randint(-4, 3)}" for n in names),
        ]
        count = drawn.randint(1, 10)
        for k in range(count):
            source = drawn.choice([*names, "#1", "#-2"])
            target = drawn.choice(names)
            lines.append(f"l{k}: subleq {source} {target} l{drawn.randrange(count)}")
        program = assembler.assemble("\n".join(lines))
        history = running.interpret(program, 60)
        window.enter("#subleq-text", "\n".join(lines))
        found = window.ask(
            "(p => { let [m, at, all] = [p.memory, 0, [[p.memory, 0]]];"
            "while (at !== p.last && all.length <= 60) {"
            "[m, at] = subleq(p, m, at); all.push([m, at]); }"
            "return all; })"
            "(assemble(document.querySelector('#subleq-text').value))"
        )
        assert found == [
            [list(m), at] for m, at in zip(history.memories, history.lines, strict=True)
        ]


@pytest.mark.parametrize(
    "text",
    [
        "cell a\nsubleq a a lop\nloop: halt",
        "bits 4\ncell a = 8",
        "cell a\nsubleq a #1",
        "cell a\ncell a",
        "cell a[2] = 1",
        "cell a\nsubleq a",
        "cell a\nsubleq b a",
        "bits 40",
        "cell a = x",
        "cell a\nl: clear a\nl: halt",
        "cell a[2]\nsubleq a[2] a[0]",
        "cell a\nsubleq a[0] a",
        "cell a = b",
        "const A = 1",
    ],
)
def test_a_wrong_program_is_answered_in_one_line_that_begins_as_the_assemblers(play, text):
    with pytest.raises(ConfigError) as error:
        assembler.assemble(text)
    window = play("subleq")
    window.enter("#subleq-text", text)
    said = window.ask("document.querySelector('#subleq-said').textContent")
    assert said.split(":")[:2] == str(error.value).split("; did you mean")[0].split(":")[:2]
    assert window.ask("document.querySelector('#subleq-run').disabled")


def test_a_program_that_does_not_halt_is_stopped(play):
    window = play("subleq")
    window.enter("#subleq-text", "cell a\nloop: goto loop")
    window.ask("document.querySelector('#subleq-run').click()")
    assert "No halt within 1000 steps" in window.ask(
        "document.querySelector('#subleq-said').textContent"
    )
