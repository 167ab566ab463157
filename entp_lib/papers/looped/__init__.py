"""Looped Transformers as programmable computers (Giannou et al. 2023): weights set by hand, run in a loop."""

from entp_lib.papers.looped.assembler import AssemblyError, assemble, disassemble
from entp_lib.papers.looped.experiment import LOOPED
from entp_lib.papers.looped.interpreter import StepLimit, interpret
from entp_lib.papers.looped.program import Program
from entp_lib.papers.looped.run import compare, machine, run
from entp_lib.papers.looped.subleq import Shape, SubleqMachine

EXPERIMENTS = (LOOPED,)

__all__ = [
    "EXPERIMENTS",
    "AssemblyError",
    "Program",
    "Shape",
    "StepLimit",
    "SubleqMachine",
    "assemble",
    "compare",
    "disassemble",
    "interpret",
    "machine",
    "run",
]
