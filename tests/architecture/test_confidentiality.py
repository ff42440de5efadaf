"""What no module may do, and what modules right of the privacy barrier may not even name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("pgsr_core", "expectations", "tasks", "flows")
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
RIGHT_OF_THE_BARRIER = sorted(
    [
        *(ROOT / "expectations").rglob("*.py"),
        *(ROOT / "tasks" / "pages").rglob("*.py"),
        *(ROOT / "tasks" / "publication").rglob("*.py"),
        *(ROOT / "tasks" / "site").rglob("*.py"),
        *(
            ROOT / "tasks" / "stages" / f"{name}.py"
            for name in ("post_process", "margins", "validate", "publish")
        ),
        *(ROOT / "pgsr_core" / "margins").rglob("*.py"),
    ]
)

# Modules whose readers run code that the file names.
EXECUTING_MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
}
# Calls (by the end of their dotted name) that run code, read unsafely or write to standard output.
FORBIDDEN_CALLS = {
    "yaml.load": "builds what tags name",
    "yaml.load_all": "builds what tags name",
    "yaml.full_load": "builds what tags name",
    "yaml.full_load_all": "builds what tags name",
    "yaml.unsafe_load": "builds what tags name",
    "yaml.unsafe_load_all": "builds what tags name",
    "read_pickle": "runs code",
    "to_pickle": "writes what only unpickling reads",
    "print": "bypasses the operator's terminal",
    "eval": "runs code",
    "exec": "runs code",
    "os.system": "runs a shell",
}
UNSAFE_YAML = {"Loader", "FullLoader", "UnsafeLoader", "CLoader", "CFullLoader", "CUnsafeLoader"}
CONFIDENTIAL_NAMES = ("true_sizes", "true_cumulative", ".confidential(", "ingest_persons")


def dotted(node):
    """a.b.c of a chain of attributes; None for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else node.attr
    return None


def offences(text):
    """What a module does that none may do, each with its line."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
            if node.module == "yaml":
                names += [f"yaml.{alias.name}" for alias in node.names]
        else:
            names = []
        for name in names:
            if name.split(".")[0] in EXECUTING_MODULES or name in FORBIDDEN_CALLS:
                found.append((node.lineno, name))
        if isinstance(node, ast.Call):
            found += [(node.lineno, name) for name in forbidden(node)]
        if isinstance(node, ast.Attribute) and dotted(node) in {f"yaml.{n}" for n in UNSAFE_YAML}:
            found.append((node.lineno, dotted(node)))
    return found


def forbidden(call):
    name = dotted(call.func) or ""
    # A method named print (of a console) is not the built-in; all other ends count.
    ends = {name} if name.endswith("print") else {name, name.split(".")[-1]}
    yield from ends & FORBIDDEN_CALLS.keys()
    for keyword in call.keywords:
        if keyword.arg == "allow_pickle" and not (
            isinstance(keyword.value, ast.Constant) and keyword.value.value is False
        ):
            yield "allow_pickle"
        if keyword.arg == "shell":
            yield "shell"


def mentions(text):
    """Names of what is left of the barrier, with comments and line breaks out of the way."""
    # Unparsed, so that neither a comment nor a space or break before a bracket matters.
    plain = ast.unparse(ast.parse(text))
    return [name for name in CONFIDENTIAL_NAMES if name in plain]


def relative(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("source", SOURCES, ids=relative)
def test_no_module_unpickles_runs_text_loads_yaml_unsafely_or_prints(source):
    assert offences(source.read_text()) == []


@pytest.mark.parametrize("source", RIGHT_OF_THE_BARRIER, ids=relative)
def test_no_module_right_of_the_barrier_names_what_is_left_of_it(source):
    assert mentions(source.read_text()) == []


@pytest.mark.parametrize("source", RIGHT_OF_THE_BARRIER, ids=relative)
def test_no_module_right_of_the_barrier_imports_one_left_of_it(source):
    left = ("tasks.ingestion", "tasks.stages.ingest", "tasks.stages.cumulative", "pgsr_core.noise")
    imported = set()
    for node in ast.walk(ast.parse(source.read_text())):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    found = {name for name in imported if any((name + ".").startswith(p + ".") for p in left)}
    # Which names are fit for a spreadsheet is a public rule that both sides share.
    assert {name for name in found if not name.startswith("tasks.ingestion.names")} == set()


def test_the_files_that_are_looked_at_are_there():
    assert len(SOURCES) > 50
    assert len(RIGHT_OF_THE_BARRIER) > 12
    assert all(path.is_file() for path in RIGHT_OF_THE_BARRIER)
    assert {path.relative_to(ROOT).parts[0] for path in SOURCES} == set(PACKAGES)


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import os, pickle as p",
        "from pickle import loads",
        "import cloudpickle",
        "def f():\n    from joblib import load",
        "import yaml\nyaml.load(x)",
        "import yaml\nyaml.load(x, Loader=yaml.SafeLoader)",
        "import yaml\nyaml.unsafe_load(x)",
        "from yaml import load",
        "from yaml import full_load as safe",
        "import yaml\nyaml.parse(x, Loader=yaml.UnsafeLoader)",
        "import yaml\nclass L(yaml.FullLoader): pass",
        "print('x')",
        "x = [print(y) for y in z]",
        "np.load(f, allow_pickle=True)",
        "np.load(f, allow_pickle=flag)",
        "frame.to_pickle(path)",
        "pd.read_pickle(path)",
        "eval(text)",
        "subprocess.run(x, shell=True)",
    ],
)
def test_the_search_finds_what_it_looks_for(text):
    assert offences(text)


@pytest.mark.parametrize(
    "text",
    [
        "err.print('x')",
        "console.print(x)",
        "import yaml\nyaml.parse(x, Loader=yaml.SafeLoader)",
        "'''never pickle, never print('''",
        "np.load(f, allow_pickle=False)",
        "pprint = 1",
    ],
)
def test_the_search_finds_nothing_else(text):
    assert offences(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "sql = 'SELECT * FROM true_sizes'",
        "with run.confidential() as store: pass",
        "with run. confidential (\n) as store: pass",
        "from tasks.ingestion.persons import ingest_persons",
        "TABLE = 'true_' 'cumulative'",
    ],
)
def test_the_search_finds_names_from_left_of_the_barrier(text):
    assert mentions(text)
