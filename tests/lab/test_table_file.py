"""Sequences in a CSV file: what it says becomes a task, and mistakes are named by their row."""

import pytest
from mistakes import refused

from entp_lab.table_file import table_from_csv
from entp_lib.tasks.base import PARTS

SUMS = "sequence,scored\n" + "".join(
    f"{a} + {b} = {' '.join(str(a + b))},5-{4 + len(str(a + b))}\n"
    for a in range(8)
    for b in range(8)
)


def csv_of(folder, text):
    path = folder / "own.csv"
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_targets_and_parts_are_read(tmp_path):
    rows = "".join(f"{i} {i % 3} 1,2-3,{i} {2 * i},{PARTS[i % 3]}\n" for i in range(9))
    task = table_from_csv(csv_of(tmp_path, "sequence,scored,targets,part\n" + rows))
    for k, part in enumerate(PARTS):
        batch = task.examples(part)
        assert batch.inputs_BT[:, 0].tolist() == [k, k + 3, k + 6]
        assert batch.scored_BT.tolist() == [[False, True, True]] * 3
        assert batch.targets_BT[batch.scored_BT].view(3, 2).tolist() == [
            [i, 2 * i] for i in (k, k + 3, k + 6)
        ]


def test_scored_positions_and_words_are_as_the_lines_say(tmp_path):
    task = table_from_csv(csv_of(tmp_path, SUMS), held_out=0.2)
    assert [task.count(part) for part in PARTS] == [38, 13, 13]
    for part in PARTS:
        batch = task.examples(part)
        for inputs, targets, scored in zip(
            batch.inputs_BT, batch.targets_BT, batch.scored_BT, strict=True
        ):
            a, _, b, *_ = [task.words[i] for i in inputs]
            answer = "".join(task.words[i] for i in targets[scored])
            assert int(answer) == int(a) + int(b)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("tokens\n1 2\n", "lacks the columns sequence"),
        (",sequence\n0,1 2\n", "column = 'Unnamed"),  # as pandas writes it with its index
        ("sequence\n", "no sequences"),
        ("sequence,scored\n1 2,\n,2\n", "row 2 "),
        ("sequence,scored\n1 2,2\n\r\n\r\n1 2,9\n", "row 2 .*: scored position 9 "),
        ('sequence,scored\n"1\n2",2\n1 2,9\n', "row 2 .*: scored position 9 "),
        ("sequence,scored\n1 2,2-99999999999\n", "scored position 99999999999 "),
        ("sequence,scored\n1 2,x\n", "scored 'x'"),
        ("sequence,scored\n1 2 3 4 5 6 7 8,3 8-5\n", "scored '3 8-5' must ascend"),
        (f"sequence,scored\n1 2,{'9' * 5000}\n", "scored '9999"),
        ("sequence,scored\n1 2 3 4 5 6 7 8,6,8\n", "more cells than columns"),
        ("sequence,scored,targets\n1 2,2,1 1\n", "row 1 .*: 2 targets"),
        ("sequence,scored,targets\n1 2 3,3 1,5 6\n", "scored '3 1'"),
        ("sequence\n1 2\n1 3\n", "left for"),
        (
            'sequence,scored\n"1 2 3,2\n1 2,2\n',
            "own.csv",
        ),  # a quote that is never closed swallows no lines
    ],
)
def test_mistakes_are_named(tmp_path, text, place):
    with refused(place):
        table_from_csv(csv_of(tmp_path, text)).facts()
