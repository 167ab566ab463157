"""Where people click: the container's and Binder's files say what both need, and name what there is."""

import json
import os
import re

from entp_lib import paths


def test_the_container_makes_the_environment_and_runs_python_as_the_shell_scripts_do():
    settings = json.loads((paths.root() / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    assert re.search(r"python:3\.1[1-9]", settings["image"])
    script, test = settings["postCreateCommand"].split()
    assert os.access(paths.root() / script, os.X_OK) and (paths.root() / test).exists()


def test_binder_installs_the_pinned_packages():
    folder = paths.root() / ".binder"
    named = re.search(r"^-r (.+)$", (folder / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)[1]
    assert (folder / named).resolve() == paths.root() / "requirements.txt"
    assert re.fullmatch(r"python-3\.1[1-9]\n", (folder / "runtime.txt").read_text(encoding="utf-8"))
    assert os.access(folder / "postBuild", os.X_OK)
