"""The embedded corpus: docstrings and nothing else, each long paragraph once, and an export that
names its content.
"""

import hashlib

import pytest

from entp_lab import embedded_corpus
from entp_lab.embedded_corpus import embedded_file
from entp_lib.data.sources import TextFile, source_of

pytestmark = pytest.mark.usefixtures("results")


@pytest.fixture
def packages(tmp_path, monkeypatch):
    """Two small packages in place of the real ones, with text long enough not to recur."""
    for name in ("first", "second"):
        folder = tmp_path / "site" / name
        (folder / "tests").mkdir(parents=True)
        (folder / "__init__.py").write_text(
            '"""The package in a few words.\n\n' + "A paragraph that both have. " * 3 + '"""'
        )
        (folder / "b.py").write_text(
            f'def f():\n    """What {name}.f is for, at some length so that it counts.\n\n'
            '    Returns\n    """\n'
            '    x = """no docs"""\n'
            "if True:\n    class A:\n        '''Documented\\ftoo.'''\n"
        )
        (folder / "tests/test_b.py").write_text('"""Not sources."""')
        monkeypatch.setattr(embedded_corpus.importlib.metadata, "version", lambda d: "1.0")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setattr(embedded_corpus, "PACKAGES", {"first": "first", "second": "second"})
    return tmp_path / "site"


def test_docstrings_are_found_and_nothing_else(packages):
    source = TextFile(embedded_file())
    documents = list(source.documents())
    assert len(documents) == 4
    assert source.whole
    text = "\n".join(documents)
    assert "What first.f is for" in text
    assert "What second.f is for" in text
    assert "Documentedtoo." in text
    assert "no docs" not in text
    assert "Not sources" not in text
    assert "import" not in text
    assert text.count("A paragraph that both have. A paragraph") == 1  # the long one comes once
    # short ones recur
    assert text.count("The package in a few words.") == text.count("Returns") == 2


def test_the_export_is_made_once_and_names_its_content(packages, monkeypatch):
    path = embedded_file()
    checksum = hashlib.sha256(path.read_bytes()).hexdigest()
    assert checksum[:16] in path.name
    assert source_of("embedded").checksum == checksum
    monkeypatch.setattr(embedded_corpus, "documents", lambda _: pytest.fail("it is there"))
    assert embedded_file() == embedded_file(checksum[:16]) == path


def test_one_package_alone_is_a_corpus_of_its_own(packages):
    text = "".join(TextFile(embedded_file(packages={"second": "second"})).documents())
    assert "second.f" in text
    assert "first.f" not in text
    assert "first.f" in "".join(TextFile(embedded_file()).documents())
