"""CLUTRR: reading the published files, prompts, and what is left out."""

import itertools
import re
import sys
import types
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest

from entp_lib.data.tokenizers import Bytes
from entp_lib.tasks import generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp.downstream import clutrr as module
from entp_papers.entp.downstream import kinship
from entp_papers.entp.downstream.clutrr import Clutrr
from entp_papers.entp.downstream.kinship import COMPOSED, KINDS, TEMPLATES, Family

KIN = Family(np.random.default_rng(5), 60).kinds
INVERSE = {kind: KIN[b, a] for (a, b), kind in KIN.items()}
SMALL = dict(n_train=60, longest_train=3, longest_test=5)


KIND_OF = {label: kind for kind, pair in KINDS.items() for label in pair if label}


@pytest.fixture(autouse=True)
def fewer_stories(monkeypatch):
    monkeypatch.setattr(module, "EMBEDDED", {"validation": 48, "test": 128})
    module.encoded.cache_clear()
    module.held_out.cache_clear()
    yield
    module.encoded.cache_clear()
    module.held_out.cache_clear()


@pytest.fixture
def files(tmp_path):
    """Return a function that writes rows as the CSV files of every part and gives the task's
    ``source``.
    """

    def write(rows, **columns):
        table = pd.DataFrame(rows, columns=["story", "query", "target_text", "task_name"]).assign(
            **columns
        )
        for part in module.PARTS:
            table.to_csv(tmp_path / f"{part}.csv")
        return str(tmp_path / "{part}.csv")

    return write


ROWS = [
    ("[Ann] saw her son [Bob].", "('Ann', 'Bob')", "son", "task_1.2"),
    ("[Cid] and his wife [Dora].", "('Cid', 'Dora')", "wife", "task_1.3"),
    ("[Eva] likes her aunt [Fay].", "('Eva', 'Fay')", "aunt", "task_1.2"),
    ("[Gus] met [Hal], his father-in-law.", "('Gus', 'Hal')", "father-in-law", "task_1.2"),
    ("[Ida] has a brother, [Jon].", "('Ida', 'Jon')", "brother", "task_1.4"),
]


def texts(task, evaluating=False):
    """Prompt and answer of every example of a part, in the order of the part."""
    pool = task.examples(task.part_of(evaluating))
    rows = zip(pool.inputs_BT.tolist(), pool.prompt_lengths_B, strict=True)
    return list(zip([Bytes().decode(row[:n]) for row, n in rows], answers_of(pool), strict=True))


def answers_of(batch):
    return [kinship.LABELS[a - 256] for a in batch.targets_N]


def test_the_authors_keep_16_relations_and_the_first_rows(files):
    source = files(ROWS)
    task = Clutrr(source, "authors", n_train=3)
    assert texts(task) == [
        ("Ann saw her son Bob. Bob is Ann's", "son"),
        ("Cid and his wife Dora. Dora is Cid's", "wife"),
        ("Eva likes her aunt Fay. Fay is Eva's", "aunt"),
    ]
    assert len(module.RELATIONS) == 16 and not any("in-law" in label for label in module.RELATIONS)
    assert texts(task, evaluating=True)[-1] == ("Ida has a brother, Jon. Jon is Ida's", "brother")
    assert task.facts()["stories"]["validation"]["left out"]["other relations"] == 1


def test_the_fair_protocol_draws_its_rows_by_a_seed(files):
    rows = [
        (f"[A{i}] saw her son [B{i}].", f"('A{i}', 'B{i}')", "son", "task_1.2") for i in range(40)
    ]
    source = files(rows)
    drawn = [texts(Clutrr(source, n_train=10, subset_seed=seed)) for seed in (0, 0, 1)]
    assert drawn[0] == drawn[1] and set(drawn[0]) != set(drawn[2]) and len(set(drawn[2])) == 10
    first = texts(Clutrr(source, "authors", n_train=10))
    assert set(drawn[0]) != set(first) and first == texts(
        Clutrr(source, "authors", n_train=10, subset_seed=1)
    )


@pytest.mark.parametrize("brief", [False, True])
def test_embedded_stories_are_in_one_part_only(brief):
    task = Clutrr(protocol="fair" if brief else "authors", brief=brief, **SMALL)
    parts = {part: task.encoded(part) for part in module.PARTS}
    rows = [set(part.chains) for part in parts.values()]
    assert len(set.union(*rows)) == sum(map(len, rows)) == 60 + 48 + 128
    assert [sorted(set(part.chains.values())) for part in parts.values()] == [
        [2, 3],
        [2, 3],
        [2, 3, 4, 5],
    ]
    assert set(Counter(answers_of(parts["test"].examples)).values()) == {8}  # 16 answers alike
    if brief:
        assert (
            max(map(len, parts["train"].chains)) < 120 < max(map(len, parts["test"].chains)) < 200
        )


def test_training_stories_avoid_those_held_out(monkeypatch):
    """With few names, where stories would come twice by chance."""
    monkeypatch.setattr(kinship, "SHORT_NAMES", [names[:6] for names in kinship.SHORT_NAMES])
    task = Clutrr(n_train=200, longest_train=2, longest_test=2, brief=True)
    apart = {e.prompt for part in module.EMBEDDED for e in module.candidates(task, part)}
    assert apart.isdisjoint(e.prompt for e in module.candidates(task, "train"))
    with monkeypatch.context() as patch:
        patch.setattr(module, "held_out", lambda *_: [])
        assert not apart.isdisjoint(e.prompt for e in module.candidates(task, "train"))


def test_a_batch_is_scored_at_the_end_of_its_prompts():
    task = Clutrr(**SMALL)
    batch, known = task.batch(generator_for("cpu", 1), 30), dict(texts(task))
    assert (batch.scored_BT.sum(1) == 1).all() and batch.inputs_BT.shape[
        1
    ] == batch.prompt_lengths_B.max()
    rows = zip(
        batch.inputs_BT, batch.scored_BT, batch.prompt_lengths_B, answers_of(batch), strict=True
    )
    for x, scored, length, answer in rows:
        assert scored.nonzero().item() == length - 1 and (x[length:] == 0).all()
        assert known[Bytes().decode(x[:length].tolist())] == answer


@pytest.mark.parametrize(
    ("column", "value", "named"),
    [
        ("target_text", "cousin", "target_text 'cousin'"),
        ("query", "('Ann')", "query"),
        ("query", "Ann and Bob", "query 'Ann and Bob'"),
        ("query", "(" * 100_000 + "1", "query"),
        ("task_name", "chain 3", "task_name 'chain 3'"),
        ("story", None, "story nan"),
    ],
)
def test_cells_that_cannot_be_read_are_named_by_their_line(files, column, value, named):
    cells = pd.DataFrame(ROWS, columns=module.COLUMNS)
    cells.loc[2, column] = value
    with pytest.raises(ConfigError, match="train.csv, line 4: ") as caught:
        Clutrr(files(cells), n_train=1).examples("train")
    assert named in str(caught.value) and len(str(caught.value)) < 600


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ("story,query,target_text,task_name\n", "source"),
        ("story,answer\nx,y\n", "query, target_text"),
    ],
)
def test_a_file_without_stories_is_named(tmp_path, content, named):
    folder = tmp_path / "{y}{ "  # braces of a path are only braces
    folder.mkdir()
    (folder / "train.csv").write_text(content)
    with pytest.raises(ConfigError, match=named):
        Clutrr(str(folder / "{part}.csv")).examples("train")


def test_without_a_network_the_embedded_stories_are_named(monkeypatch):
    def no_network(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=no_network))
    with pytest.raises(ConfigError, match="'embedded'"):
        module.published("train")


def test_prompts_that_are_too_long_are_left_out_and_counted():
    task = Clutrr(**SMALL, max_tokens=160)
    assert max(map(len, task.encoded("train").chains)) <= 160 and len(texts(task)) == 60
    facts = task.facts()["stories"]["test"]
    assert (
        facts["examples"] + facts["left out"]["too many tokens"] == 128 and facts["examples"] < 128
    )
    with pytest.raises(ConfigError, match="n_train"):
        Clutrr(**SMALL, max_tokens=70).examples("train")


# Kinship: the algebra agrees with family trees, and a story's answer follows from its sentences
# alone.


def take(count, **options):
    return list(itertools.islice(kinship.stories(**options), count))


@pytest.fixture(scope="module")
def families():
    generator = np.random.default_rng(7)
    return [Family(generator) for _ in range(25)]


@pytest.fixture(scope="module")
def written():
    return take(567, seed=3, edges=range(2, 11))


def test_the_algebra_is_that_of_family_trees(families):
    """For every two kinds: a composition where all triples of people agree on a label, and none
    where they differ.
    """
    seen = defaultdict(set)
    assert set(INVERSE) == set(KINDS) and all(INVERSE[INVERSE[kind]] == kind for kind in KINDS)
    for family in families:
        for (a, b), first in family.kinds.items():
            assert a != b and family.kinds[b, a] == INVERSE[first]
            for c in range(len(family.female)):
                if c not in (a, b) and (b, c) in family.kinds:
                    seen[first, family.kinds[b, c]].add(family.kinds.get((a, c)))
        for person, (parents, spouse) in enumerate(zip(family.parents, family.spouse, strict=True)):
            if spouse is not None:
                assert (
                    family.spouse[spouse] == person
                    and family.female[spouse] != family.female[person]
                )
            if parents is not None:
                assert family.spouse[parents[0]] == parents[1]
    certain = {pair: kinds.copy().pop() for pair, kinds in seen.items() if len(kinds) == 1}
    assert {pair: kind for pair, kind in certain.items() if kind} == COMPOSED


def chain(relations):
    """Relation of the last person of a chain to the first, by any order of composing that leads to
    a label, or None.
    """
    size = len(relations)
    found = {(i, i + 1): {KIND_OF[label]} for i, label in enumerate(relations)}
    for width, i in ((w, i) for w in range(2, size + 1) for i in range(size - w + 1)):
        end = i + width
        pairs = (
            pair
            for m in range(i + 1, end)
            for pair in itertools.product(found[i, m], found[m, end])
        )
        found[i, end] = {COMPOSED[pair] for pair in pairs if pair in COMPOSED}
    whole, last = found[0, size], relations[-1]
    return KINDS[whole.pop()][last == KINDS[KIND_OF[last]][1]] if len(whole) == 1 else None


def read_back(sentence, templates):
    """Return (a, what b is to a, b, whether a is a woman) of a sentence."""
    for kind, choices in templates.items():
        for template in choices:
            words = {
                "a": r"\[(?P<a>\w+)\]",
                "b": r"\[(?P<b>\w+)\]",
                "his": "(?P<his>his|her)",
                "r": r"(?P<r>[\w-]+)",
            }
            pattern = re.sub(
                r"\\{(\w+)\\}", lambda m, words=words: words[m[1]], re.escape(template)
            )
            match = re.fullmatch(pattern, sentence)
            if match and KIND_OF.get(match["r"]) == kind:
                return match["a"], match["r"], match["b"], match["his"] == "her"
    raise AssertionError(sentence)


@pytest.mark.parametrize("brief", [False, True])
def test_the_answer_follows_from_the_sentences(written, brief):
    """Read back without names or order, turned round where a sentence tells an edge from its other
    end.
    """
    templates = dict.fromkeys(TEMPLATES, kinship.BRIEF) if brief else TEMPLATES
    for story in take(189, seed=3, edges=range(2, 11), brief=True) if brief else written:
        edges, woman = {}, {}
        for sentence in re.split(r"(?<=\.) ", story.text):
            a, label, b, a_is_woman = read_back(sentence, templates)
            woman |= {a: a_is_woman, b: label in {pair[1] for pair in KINDS.values()}}
            edges[a, b] = KIND_OF[label]
            edges[b, a] = INVERSE[KIND_OF[label]]
        relations = [KINDS[edges[pair]][woman[pair[1]]] for pair in itertools.pairwise(story.names)]
        assert tuple(relations) == story.relations
        assert chain(relations) == story.answer
        assert len(edges) == 2 * len(relations) and set(woman) == set(story.names)


def test_stories_are_balanced_different_and_the_same_for_a_seed(written):
    counts = Counter((s.answer, len(s.relations)) for s in written)
    assert len(counts) == 21 * 9 and set(counts.values()) == {3}
    assert len({s.text for s in written}) == len(written)
    other = take(200, seed=3, edges=range(2, 11), avoid={s.text for s in written})
    assert len(other) == 200 and not {s.text for s in other} & {s.text for s in written}
    assert (
        take(50, seed=3, edges=range(2, 11)) == written[:50] != take(50, seed=4, edges=range(2, 11))
    )
