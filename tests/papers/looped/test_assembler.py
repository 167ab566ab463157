"""Texts that are programs, texts that are none and what the assembler says of them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entp_papers.looped import AssemblyError, Program, Shape, assemble, disassemble
from entp_papers.looped.programs import random_program

MULTIPLY = """
bits 12
cell x = 7      # a comment
cell y = 0x9
cell product
cell minus_x
    subleq x minus_x
loop:
    subleq minus_x product
    subleq #1 y halt
    goto loop
"""


def test_places_and_lines():
    program = assemble(MULTIPLY)
    assert program.bits == 12
    assert program.memory == (0, -1, 7, 9, 0, 0, 1)
    assert program.code == ((2, 5, 1), (5, 4, 2), (6, 3, 4), (0, 1, 1), (0, 1, 4))
    assert program.cell("product") == 4 and program.lines == {"loop": 1}


def test_macros_have_labels_and_parameters_of_their_own():
    program = assemble(
        """
        cell a = 1
        cell b = 2
        const LIMIT = 3
        macro skip x
            subleq ZERO x @out
            clear x
        @out:
        end
        macro twice x y
            skip x
            skip y
        end
        twice a b
        subleq #LIMIT a
        """
    )
    assert program.code == ((0, 2, 2), (2, 2, 2), (0, 3, 4), (3, 3, 4), (4, 2, 5), (0, 1, 5))
    assert program.memory == (0, -1, 1, 2, 3)


def test_lists():
    program = assemble("const N = 2\ncell v[3] = 5 6 7\nsubleq v[0] v[N]\n")
    assert program.memory[2:] == (5, 6, 7) and program.code[0] == (2, 4, 1)


@settings(max_examples=30)
@given(st.integers(3, 8), st.integers(1, 8), st.integers(0, 10**6))
def test_disassembly_assembles_to_the_same(cells, commands, seed):
    program = random_program(Shape(8, cells, commands), seed)
    assert assemble(disassemble(program)) == program


def test_disassembly_keeps_names():
    text = disassemble(assemble(MULTIPLY))
    assert "cell product = 0" in text and "loop:" in text and assemble(text) == assemble(MULTIPLY)


@pytest.mark.parametrize(
    "text,message",
    [
        ("cell a\nsubleq a a lop\nloop: halt", "line 2: unknown label 'lop'; did you mean 'loop'"),
        ("cell apple\nsubleq aple apple", "line 2: unknown cell 'aple'; did you mean 'apple'"),
        ("cell a[2]\nsubleq a[2] a[0]", r"line 2: a\[2\] is out of range, a has 2 cells, 0 to 1"),
        ("bits 4\ncell a = 8", "line 2: a = 8: does not fit into a word of 4 bits, which holds -8 to 7"),
        ("cell a\nsubleq #40000 a", "line 2: #40000 = 40000: does not fit"),
        ("cell a\nsubleq a #1", "line 2: #1 is a constant and cannot be written to"),
        ("cell a\nsubleq a ZERO", "writes to cell 0, which must stay 0"),
        ("cell a\nsubleq a MINUS_ONE", "writes to cell 1, which must stay -1"),
        ("cell a\nsubleqq a a", "line 2: unknown command 'subleqq'; did you mean 'subleq'"),
        ("cell a\nsubleq a", "line 2: subleq takes 2 or 3 operands, 1 are given"),
        ("cell a\ncell a", "line 2: 'a' exists already"),
        ("a: a: halt", "line 1: label 'a' exists already"),
        ("cell a[2] = 1", "line 1: a has 2 cells and 1 values"),
        ("cell a = one", "line 1: 'one' is neither a number nor a constant"),
        ("cell 5 = one", "line 1: 'cell 5 = one' is not understood"),
        ("bits 21", "line 1: bits 21: must be from 2 to 20"),
        ("cell a\nbits 8", "line 2: bits must come before the first cell"),
        ("macro m x\nhalt", "line 1: macro 'm' has no end"),
        ("macro m x\nm x\nend\nm 1", "more than 20 deep"),
        ("macro m x\nend\nm", "line 3: m takes 1 operands, 0 are given"),
        ("macro clear x\nend", "line 1: 'clear' exists already"),
        ("macro", "macro name parameter"),
    ],
)
def test_errors_name_the_line_and_what_is_wrong(text, message):
    with pytest.raises(AssemblyError, match=message):
        assemble(text)


@pytest.mark.parametrize(
    "memory,code,message",
    [
        ((0, -1), ((0, 2, 0), (0, 1, 1)), "cell 2 is out of range, cells are 0 to 1"),
        ((0, -1, 0), ((0, 2, 2), (0, 1, 1)), "line 2 is out of range, lines are 0 to 1"),
        ((0, -1, 0), ((0, 2, 0),), "the last command is"),
        ((0, 0, 0), ((0, 1, 0),), "must be 0 and -1"),
        ((0, -1, 900), ((0, 1, 0),), "cell 2 = 900: does not fit"),
    ],
)
def test_programs_are_checked(memory, code, message):
    with pytest.raises(ValueError, match=message):
        Program(8, memory, code)


def test_padding_keeps_the_program():
    program = assemble(MULTIPLY)
    padded = program.padded(Shape(12, 9, 8))
    assert padded.shape == Shape(12, 9, 8) and padded.code[:4] == ((2, 5, 1), (5, 4, 2), (6, 3, 7), (0, 1, 1))
    with pytest.raises(ValueError, match="cells = 3: the program has 7"):
        program.padded(Shape(12, 3, 8))
    with pytest.raises(ValueError, match="bits = 8: the program's words have 12"):
        program.padded(Shape(8, 9, 8))
    assert program.with_values(x=3).memory[2] == 3
    with pytest.raises(ValueError, match="cell 'z' does not exist"):
        program.with_values(z=3)
