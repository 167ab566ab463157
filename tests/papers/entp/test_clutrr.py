"""CLUTRR: reading the published files, prompts, and what is left out."""

import functools
import itertools
import re
import sys
import types
from collections import Counter, defaultdict

import numpy as np
import pandas as pd
import pytest
import torch
from mistakes import refused

from entp_lib.data.tokenizers import Bytes
from entp_lib.tasks import generator_for
from entp_lib.validation import ConfigError
from entp_papers.entp.downstream import clutrr as module
from entp_papers.entp.downstream import kinship
from entp_papers.entp.downstream.clutrr import Clutrr
from entp_papers.entp.downstream.kinship import COMPOSED, KINDS, TEMPLATES, Family

pytestmark = pytest.mark.usefixtures("few_stories")
KIN = Family(np.random.default_rng(5), 60).kinds
INVERSE = {kind: KIN[b, a] for (a, b), kind in KIN.items()}
SMALL = dict(n_train=60, longest_train=3, longest_test=5)


KIND_OF = {label: kind for kind, pair in KINDS.items() for label in pair if label}
WOMEN = {woman for _, woman in KINDS.values()}


@pytest.fixture
def files(tmp_path):
    """Return a function that writes rows as the CSV files of every part and gives the task's
    ``source``.
    """

    def write(rows):
        table = pd.DataFrame(rows, columns=module.COLUMNS)
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
    return prompts_of(task.examples(task.part_of(evaluating)))


def prompts_of(batch):
    """Pair each row's prompt, as text, with its answer."""
    rows = zip(batch.inputs_BT.tolist(), batch.prompt_lengths_B, batch.targets_N, strict=True)
    return [
        (Bytes().decode(x[:length]), kinship.LABELS[answer - 256]) for x, length, answer in rows
    ]


def test_the_authors_keep_16_relations_and_the_first_rows(files):
    source = files(ROWS)
    task = Clutrr(source, "authors", n_train=3)
    assert texts(task) == [
        ("Ann saw her son Bob. Bob is Ann's", "son"),
        ("Cid and his wife Dora. Dora is Cid's", "wife"),
        ("Eva likes her aunt Fay. Fay is Eva's", "aunt"),
    ]
    assert len(module.RELATIONS) == 16
    assert not any("in-law" in label for label in module.RELATIONS)
    assert texts(task, evaluating=True)[-1] == ("Ida has a brother, Jon. Jon is Ida's", "brother")
    assert task.facts()["stories"]["validation"]["left out"]["other relations"] == 1


def test_the_fair_protocol_draws_its_rows_by_a_seed(files):
    source = files(
        (f"[A{i}] saw her son [B{i}].", f"('A{i}', 'B{i}')", "son", "task_1.2") for i in range(40)
    )

    def drawn(protocol, seed):
        return texts(Clutrr(source, protocol, n_train=10, subset_seed=seed))

    first = drawn("fair", 0)
    assert first == drawn("fair", 0)
    assert len(set(first)) == 10
    assert set(first) != set(drawn("fair", 1))
    assert set(first) != set(drawn("authors", 0))
    assert drawn("authors", 0) == drawn("authors", 1)


@pytest.mark.parametrize(("brief", "protocol"), [(False, "authors"), (True, "fair")])
def test_embedded_stories_are_in_one_part_only(brief, protocol):
    task = Clutrr(protocol=protocol, brief=brief, **SMALL)
    train, validation, test = (task.encoded(part).chains for part in module.PARTS)
    chains = [*train, *validation, *test]
    assert len(set(chains)) == len(chains) == 60 + 48 + 128
    assert set(train.values()) == set(validation.values()) == {2, 3}
    assert set(test.values()) == {2, 3, 4, 5}
    answers = Counter(answer for _, answer in prompts_of(task.encoded("test").examples))
    assert set(answers.values()) == {8}  # 16 answers alike
    if brief:
        assert max(map(len, train)) < 120
        assert 120 < max(map(len, test)) < 200


def test_training_stories_avoid_those_held_out(monkeypatch):
    """With few names, where stories would come twice by chance."""
    monkeypatch.setattr(kinship, "SHORT_NAMES", [names[:6] for names in kinship.SHORT_NAMES])
    task = Clutrr(n_train=200, longest_train=2, longest_test=2, brief=True)
    apart = {e.prompt for part in module.EMBEDDED for e in module.candidates(task, part)}
    assert apart.isdisjoint(e.prompt for e in module.candidates(task, "train"))


def test_a_batch_is_scored_at_the_end_of_its_prompts():
    task = Clutrr(**SMALL)
    batch = task.batch(generator_for("cpu", 1), 30)
    assert set(prompts_of(batch)) <= set(texts(task))
    ends = batch.scored_BT.nonzero()[:, 1]
    assert torch.equal(ends, batch.prompt_lengths_B - 1)
    assert batch.inputs_BT.shape[1] == batch.prompt_lengths_B.max()
    for x, length in zip(batch.inputs_BT, batch.prompt_lengths_B, strict=True):
        assert not x[length:].any()


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
    assert named in str(caught.value)
    assert len(str(caught.value)) < 600


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
    with refused(named):
        Clutrr(str(folder / "{part}.csv")).examples("train")


def test_without_a_network_the_embedded_stories_are_named(monkeypatch):
    def no_network(*_, **__):
        raise ConnectionError("no route to host")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=no_network))
    with refused("'embedded'"):
        module.published("train")


def test_prompts_that_are_too_long_are_left_out_and_counted():
    task = Clutrr(**SMALL, max_tokens=160)
    assert max(map(len, task.encoded("train").chains)) <= 160
    assert len(texts(task)) == 60
    facts = task.facts()["stories"]["test"]
    assert facts["examples"] < 128
    assert facts["examples"] + facts["left out"]["too many tokens"] == 128
    with refused("n_train"):
        Clutrr(**SMALL, max_tokens=70).examples("train")


# Kinship: the algebra agrees with family trees, and a story's answer follows from its sentences
# alone.


def take(count, brief=False):
    return list(itertools.islice(kinship.stories(seed=3, edges=range(2, 11), brief=brief), count))


def test_the_algebra_is_that_of_family_trees():
    """For every two kinds: a composition where all triples of people agree on a label, and none
    where they differ.
    """
    seen = defaultdict(set)
    generator = np.random.default_rng(7)
    for kinds in (Family(generator).kinds for _ in range(25)):
        for (a, b), first in kinds.items():
            assert a != b
            assert kinds[b, a] == INVERSE[first]
            for c in range(1 + max(map(max, kinds))):
                if c not in (a, b) and (b, c) in kinds:
                    seen[first, kinds[b, c]].add(kinds.get((a, c)))
    certain = {pair: kind for pair, (kind, *others) in seen.items() if kind and not others}
    assert certain == COMPOSED


def test_couples_are_of_two_sexes_and_parents_of_each_other():
    family = Family(np.random.default_rng(7))
    for person, spouse in enumerate(family.spouse):
        if spouse is not None:
            assert family.spouse[spouse] == person
            assert family.female[spouse] != family.female[person]
    for father, mother in filter(None, family.parents):
        assert family.spouse[father] == mother


@functools.cache
def composed(kinds):
    """Return the kinds of the last person of a chain to the first, by any order of composing that
    leads to one.
    """
    if len(kinds) == 1:
        return set(kinds)
    pairs = set()
    for m in range(1, len(kinds)):
        pairs.update(itertools.product(composed(kinds[:m]), composed(kinds[m:])))
    return {COMPOSED[pair] for pair in pairs & COMPOSED.keys()}


PARTS = {
    "a": r"\[(?P<a>\w+)\]",
    "b": r"\[(?P<b>\w+)\]",
    "his": "(?P<his>his|her)",
    "r": r"(?P<r>[\w-]+)",
}


def read_back(sentence, templates):
    """Return (a, what b is to a, b, whether a is a woman) of a sentence."""
    for kind, choices in templates.items():
        for template in choices:
            pattern = re.sub(r"\\{(\w+)\\}", lambda m: PARTS[m[1]], re.escape(template))
            match = re.fullmatch(pattern, sentence)
            if match and KIND_OF.get(match["r"]) == kind:
                return match["a"], match["r"], match["b"], match["his"] == "her"
    raise AssertionError(sentence)


@pytest.mark.parametrize("brief", [False, True])
def test_the_answer_follows_from_the_sentences(brief):
    """Read back without names or order, turned round where a sentence tells an edge from its other
    end.
    """
    templates = dict.fromkeys(TEMPLATES, kinship.BRIEF) if brief else TEMPLATES
    for story in take(189, brief):
        kinds = {}
        woman = {}
        for sentence in re.split(r"(?<=\.) ", story.text):
            a, label, b, a_is_woman = read_back(sentence, templates)
            woman |= {a: a_is_woman, b: label in WOMEN}
            kinds[a, b] = KIND_OF[label]
            kinds[b, a] = INVERSE[KIND_OF[label]]
        edges = list(itertools.pairwise(story.names))
        relations = tuple(KINDS[kinds[edge]][woman[edge[1]]] for edge in edges)
        assert relations == story.relations
        (whole,) = composed(tuple(kinds[edge] for edge in edges))
        assert KINDS[whole][woman[story.names[-1]]] == story.answer
        assert len(kinds) == 2 * len(edges)
        assert set(woman) == set(story.names)


def test_stories_are_balanced_different_and_the_same_for_a_seed():
    written = take(567)
    counts = Counter((story.answer, len(story.relations)) for story in written)
    assert len(counts) == 21 * 9
    assert set(counts.values()) == {3}
    assert len({story.text for story in written}) == len(written)
    assert take(50) == written[:50]
