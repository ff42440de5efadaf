"""Reading a configuration: everything wrong at once, with its line; never a traceback."""

from __future__ import annotations

import textwrap
import time
from datetime import date
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasks.configuration.dates import check_template, render
from tasks.configuration.loading import LARGEST_FILE, ConfigurationError, load_configuration
from tasks.configuration.model import render_release
from tasks.configuration.section import exact_fraction

VALID = """\
product: household-sizes
release: "2026-Q3"
population: {name: residents-2026, budget: "4", unit_of_privacy: person}
source:
  persons: persons.parquet
  columns: {person: person_id, unit: unit_id, region: region_id, quantity: null}
regions: regions.csv
units: units.csv
sizes: {max: 20, largest_contribution: 1}
privacy: {epsilon: "0.5", neighbours: add-remove, split: uniform}
mechanism: cumulative
publish: {to: public, formats: [parquet, csv]}
"""


def load(folder, text):
    path = folder / "product.yaml"
    if isinstance(text, bytes):
        path.write_bytes(text)
    else:
        path.write_text(text)
    return load_configuration(path)


def configuration(folder, text=VALID):
    return load(folder, text).configuration


def changed(**lines):
    """VALID with the line of a top-level key replaced (or, if None, left out)."""
    kept = []
    for line in VALID.splitlines():
        key = line.split(":")[0]
        if key in lines:
            replacement = lines.pop(key)
            if replacement is not None:
                kept.append(f"{key}: {replacement}")
        else:
            kept.append(line)
    kept += [f"{key}: {value}" for key, value in lines.items()]
    return "\n".join(kept) + "\n"


def problems(folder, text):
    with pytest.raises(ConfigurationError) as caught:
        load(folder, text)
    error = caught.value
    assert error.exit_code == 2
    assert "Remedy:" in str(error)
    for problem in error.problems:
        assert str(problem) in str(error)
    return [(problem.line, problem.key, problem.message) for problem in error.problems]


def test_margins_are_simulated_by_default_and_zero_repetitions_ask_for_none(tmp_path):
    assert configuration(tmp_path).margins.repetitions > 0
    none = configuration(tmp_path, changed(margins="{repetitions: 0}"))
    assert none.margins.repetitions == 0
    for wrong in ("{repetitions: -1}", "{repetitions: 1001}", "none", "{repeat: 3}"):
        _, key, _ = only_problem(tmp_path, changed(margins=wrong))
        assert key.startswith("margins")


def only_problem(folder, text):
    found = problems(folder, text)
    assert len(found) == 1, found
    return found[0]


# --- what is valid --------------------------------------------------------------------------


def test_a_valid_configuration_is_read_exactly(tmp_path):
    read = configuration(tmp_path)
    assert read.product == "household-sizes"
    assert read.population.budget == 4
    assert read.privacy.epsilon == Fraction(1, 2)
    assert read.privacy.split == "uniform"
    assert read.source.persons == ("persons.parquet",)
    assert read.source.columns.quantity is None
    assert not read.units_from_data
    assert not read.simulate


def test_the_line_and_folder_of_a_configuration_are_known(tmp_path):
    loaded = load(tmp_path, VALID)
    assert loaded.folder == tmp_path
    assert loaded.lines[("privacy", "epsilon")] == 10
    assert loaded.problem(("privacy", "nothing"), "x").line == 10
    assert loaded.problem(("source", "persons"), "x").line == 5


def test_a_configuration_cannot_be_changed(tmp_path):
    with pytest.raises(ValueError, match="frozen"):
        configuration(tmp_path).product = "other"


def test_a_relative_path_is_taken_from_where_it_was_given(tmp_path, monkeypatch):
    (tmp_path / "product.yaml").write_text(VALID)
    monkeypatch.chdir(tmp_path)
    assert load_configuration(Path("product.yaml")).folder == tmp_path


# --- numbers --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ('"0.1"', Fraction(1, 10)),
        ("0.30", Fraction(3, 10)),
        ("1/3", Fraction(1, 3)),
        ('"1/3"', Fraction(1, 3)),
        ("1", Fraction(1)),
        ("0.000000000001", Fraction(1, 10**12)),
        ("010", Fraction(10)),
        ("2026-07-01", None),
        ("1e-1", None),
        ("1.5e1", None),
        (".5", None),
        ("5.", None),
        (".nan", None),
        ("NaN", None),
        (".inf", None),
        ("-0.5", None),
        ("-1", None),
        ("+1", None),
        ("0", None),
        ("0.0", None),
        ("0/5", None),
        ("1/0", None),
        ("1/3/5", None),
        ("0x10", None),
        ("0b11", None),
        ("1:30", None),
        ("1_0", None),
        ("true", None),
        ("null", None),
        ("[1]", None),
        ("٣", None),
        ("1.0000000000001", None),
        ("!!float 0.5", None),
        ('""', None),
    ],
)
def test_decimals_are_exact_and_everything_else_is_refused(tmp_path, written, value):
    text = changed(privacy=f"\n  epsilon: {written}")
    if value is None:
        line, key, _ = only_problem(tmp_path, text)
        assert (line, key) == (11, "privacy.epsilon") or (line, key) == (11, "")
    else:
        assert configuration(tmp_path, text).privacy.epsilon == value


def test_a_binary_float_is_no_exact_number():
    with pytest.raises(ValueError, match="in quotes"):
        exact_fraction(0.5)
    with pytest.raises(ValueError, match="in quotes"):
        exact_fraction(True)


@pytest.mark.parametrize("size", ["0", "-3", "1000001", "2.5", "many", "1e3", "null", "9" * 5000])
def test_a_size_that_is_no_size_is_refused(tmp_path, size):
    line, key, _ = only_problem(tmp_path, changed(sizes=f"{{max: {size}}}"))
    assert (line, key) == (9, "sizes.max")


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ("[1/2, 1/4, 0.25]", (Fraction(1, 2), Fraction(1, 4), Fraction(1, 4))),
        ("[1/3, 1/3, 0.3333]", None),
        ("[1, 0]", None),
        ("[]", None),
        ("even", None),
        ("[0.5, .5]", None),
    ],
)
def test_a_listed_split_adds_up_to_exactly_one(tmp_path, split, expected):
    text = changed(privacy=f"{{epsilon: 1, split: {split}}}")
    if expected is None:
        assert all(line == 10 and "split" in key for line, key, _ in problems(tmp_path, text))
    else:
        assert configuration(tmp_path, text).privacy.split == expected


def test_a_split_that_is_no_word_is_told_every_form_that_it_may_have(tmp_path):
    text = changed(privacy="{epsilon: 1, split: optimize}")
    [(line, key, message)] = problems(tmp_path, text)
    assert (line, key) == (10, "privacy.split")
    assert all(form in message for form in ("uniform", "optimise", "one share a level", "weights"))


@pytest.mark.parametrize(
    ("split", "keys"),
    [
        ("optimise", None),
        ("{optimise: {weights: [1, 0.5, 1/3]}}", None),
        ("optimize", ["privacy.split"]),
        ("{optimise: {weights: [1, 0]}}", ["privacy.split.optimise.weights"]),
        ("{optimise: {weights: [1, x]}}", ["privacy.split.optimise.weights.1"]),
        ("{optimise: {}}", ["privacy.split.optimise.weights"]),
        ("{weights: [1]}", ["privacy.split.optimise", "privacy.split.weights"]),
    ],
)
def test_an_optimised_split_may_have_positive_weights(tmp_path, split, keys):
    text = changed(privacy=f"{{epsilon: 1, split: {split}}}")
    if keys is None:
        read = configuration(tmp_path, text)
        assert type(read).model_validate_json(read.model_dump_json()) == read
    else:
        found = problems(tmp_path, text)
        assert [(line, key) for line, key, _ in found] == [(10, key) for key in keys]


def test_the_sampler_is_opendp_unless_the_fast_one_is_chosen(tmp_path):
    assert configuration(tmp_path).privacy.sampler == "opendp"
    text = changed(privacy="{epsilon: 1, sampler: fast-exact}")
    assert configuration(tmp_path, text).privacy.sampler == "fast-exact"


@pytest.mark.parametrize("sampler", ["seeded", "seeded-simulation", "numpy", "null", "[opendp]"])
def test_no_other_sampler_can_be_chosen_for_a_release(tmp_path, sampler):
    text = changed(privacy=f"{{epsilon: 1, sampler: {sampler}}}")
    line, key, message = only_problem(tmp_path, text)
    assert (line, key) == (10, "privacy.sampler")
    assert "fast-exact" in message


# --- everything at once, with lines ---------------------------------------------------------


def test_everything_wrong_is_told_at_once_each_with_its_line(tmp_path):
    text = textwrap.dedent("""\
        product: ../etc
        release: a/b
        population:
          name: residents
          budget: 1e3
          unit_of_privacy: ""
        source:
          persons: persons.xlsx
          columns:
            person: 'person"; DROP TABLE x; --'
            unit: unit
        regions:
          table: regions.csv
          columns: ["a;b"]
          root: nation
        sizes: {max: 0}
        privacy:
          epsilon: -1
          neighbours: friends
        mechanism: magic
        publish:
          to: public
          formats: [xml]
          colour: red
        simulate: maybe
        colour: blue
    """)
    found = {(line, key) for line, key, _ in problems(tmp_path, text)}
    assert found >= {
        (1, "product"),
        (2, "release"),
        (5, "population.budget"),
        (6, "population.unit_of_privacy"),
        (8, "source.persons"),
        (10, "source.columns.person"),
        (9, "source.columns.region"),
        (14, "regions.columns.0"),
        (None, "units"),
        (16, "sizes.max"),
        (18, "privacy.epsilon"),
        (19, "privacy.neighbours"),
        (20, "mechanism"),
        (23, "publish.formats.0"),
        (24, "publish.colour"),
        (25, "simulate"),
        (26, "colour"),
    }


def test_an_empty_mapping_misses_every_required_key(tmp_path):
    missing = {key for _, key, message in problems(tmp_path, "{}") if message == "is missing"}
    assert missing == {
        "product", "release", "population", "source", "regions", "units", "sizes", "privacy",
        "publish",
    }  # fmt: skip


@pytest.mark.parametrize("key", ["colour", "str", "LevelColumns", "a[b", "<<", "1", "null", "é"])
def test_an_unknown_key_is_named_with_its_line_whatever_it_is_called(tmp_path, key):
    line, named, message = only_problem(tmp_path, VALID + f'"{key}": 1\n')
    assert (line, named, message) == (13, key, "is not a key of a configuration")


@pytest.mark.parametrize(
    ("name", "instead"), [("relaxed-counts", "direct"), ("relaxed-cumulative", "cumulative")]
)
def test_a_mechanism_that_breaks_consistency_is_refused_and_told_what_to_take(
    tmp_path, name, instead
):
    line, key, message = only_problem(tmp_path, changed(mechanism=name))
    assert (line, key) == (11, "mechanism")
    assert "do not add up" in message
    assert f"take {instead}" in message


def test_a_key_that_stands_twice_is_refused_not_silently_replaced(tmp_path):
    line, key, message = only_problem(tmp_path, VALID + "mechanism: direct\n")
    assert (line, key) == (13, "mechanism")
    assert "first on line 11" in message
    nested = changed(privacy='{epsilon: "0.5", epsilon: "5"}')
    assert only_problem(tmp_path, nested)[:2] == (10, "privacy.epsilon")


def test_a_key_that_stands_twice_is_told_along_with_other_problems(tmp_path):
    text = changed(product="../x") + "mechanism: direct\n"
    assert {key for _, key, _ in problems(tmp_path, text)} == {"product", "mechanism"}


# --- names ----------------------------------------------------------------------------------

PATH_LIKE = ["../x", "a/b", "/etc", ".", "..", ".hidden", "a\\b", "-x", "a b", "a\nb", "x" * 65,
             "", "ä", "a;b", "=1", "a\x00b", "~", "$HOME", "%2e"]  # fmt: skip


@pytest.mark.parametrize("name", PATH_LIKE)
@pytest.mark.parametrize("key", ["product", "release"])
def test_names_that_could_be_paths_are_refused(tmp_path, key, name):
    import json

    line, named, _ = only_problem(tmp_path, changed(**{key: json.dumps(name)}))
    assert (line, named) == ({"product": 1, "release": 2}[key], key)


@pytest.mark.parametrize("name", ["a", "household-sizes", "2026-Q3", "v1.2_x", "A" * 64])
def test_plain_names_are_taken(tmp_path, name):
    assert configuration(tmp_path, changed(product=f'"{name}"')).product == name


@pytest.mark.parametrize(
    "column", ['a"b', "a'b", "a;b", "1a", "a\nb", "", "a-b", "x" * 64, "ä", "a.b"]
)
def test_column_names_that_could_end_a_quotation_are_refused(tmp_path, column):
    import json

    text = VALID.replace("unit: unit_id", f"unit: {json.dumps(column)}")
    assert only_problem(tmp_path, text)[:2] == (6, "source.columns.unit")


@pytest.mark.parametrize(
    ("source", "fine"),
    [
        ("persons: [a.csv, b.csv]", True),
        ("persons: 'part-*.parquet'", True),
        ("persons: [a.csv, b.parquet]", False),
        ("persons: a.xlsx", False),
        ("persons: []", False),
        ("persons: people.duckdb\n  table: persons", True),
        ("persons: people.duckdb", False),
        ("persons: a.csv\n  table: persons", False),
        ("persons: [a.duckdb, b.duckdb]\n  table: persons", False),
        ("persons: people.duckdb\n  table: 'a; drop'", False),
    ],
)
def test_persons_come_from_files_of_one_kind(tmp_path, source, fine):
    text = VALID.replace("persons: persons.parquet", source)
    if fine:
        assert configuration(tmp_path, text).source.persons
    else:
        assert all(
            "source" in key and line in {4, 5, 6} for line, key, _ in problems(tmp_path, text)
        )


# --- schedules ------------------------------------------------------------------------------

EVERY_QUARTER = '"{date:%Y}-Q{quarter}"'


def on_schedule(schedule, release=EVERY_QUARTER):
    return changed(release=release, schedule=schedule)


def test_a_schedule_is_utc_and_catches_up_with_the_latest_slot_unless_it_says_otherwise(tmp_path):
    assert configuration(tmp_path).schedule is None
    short = configuration(tmp_path, on_schedule('{cron: "0 6 * * *"}')).schedule
    assert (short.timezone, short.catch_up) == ("UTC", "latest")
    full = '{cron: "0 6 * * *", timezone: Europe/Berlin, catch_up: none}'
    assert configuration(tmp_path, on_schedule(full)).schedule.zone.key == "Europe/Berlin"


@pytest.mark.parametrize(
    ("schedule", "key", "says"),
    [
        ('{cron: "61 * * * *"}', "schedule.cron", "five fields"),
        ('{cron: "0 0 30 2 *"}', "schedule.cron", "come due"),
        ('{cron: "0 6 * * *", timezone: Berlin}', "schedule.timezone", "Europe/Berlin"),
        ('{cron: "0 6 * * *", timezone: ../etc}', "schedule.timezone", "Europe/Berlin"),
        ('{cron: "0 6 * * *", catch_up: some}', "schedule.catch_up", "'latest', 'all' or 'none'"),
        ('{cron: "0 6 * * *", every: day}', "schedule.every", "not a key"),
        ("{timezone: UTC}", "schedule.cron", "is missing"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_with_what_is_wanted(
    tmp_path, schedule, key, says
):
    line, named, message = only_problem(tmp_path, on_schedule(schedule))
    assert (line, named) == (13, key)
    assert says in message


def test_a_scheduled_product_needs_a_name_for_each_slot(tmp_path):
    text = on_schedule('{cron: "0 6 * * *"}', release='"2026-Q3"')
    _, key, message = only_problem(tmp_path, text)
    assert key == "schedule"
    assert "{date:%Y}-Q{quarter}" in message


# --- dates ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("template", "slot", "rendered"),
    [
        ("{date:%Y-%m}", date(2026, 7, 1), "2026-07"),
        ("{date:%Y}-Q{quarter}", date(2026, 1, 1), "2026-Q1"),
        ("{date:%Y}-Q{quarter}", date(2026, 3, 31), "2026-Q1"),
        ("{date:%Y}-Q{quarter}", date(2026, 4, 1), "2026-Q2"),
        ("{date:%Y}-Q{quarter}", date(2026, 9, 30), "2026-Q3"),
        ("{date:%Y}-Q{quarter}", date(2026, 12, 31), "2026-Q4"),
        ("{date:%G-W%V}", date(2027, 1, 1), "2026-W53"),
        ("{date:%y%m%d}.{date:%j}.{date:%u}", date(2026, 7, 1), "260701.182.3"),
        ("plain", date(2026, 7, 1), "plain"),
    ],
)
def test_date_templates_are_filled_in_for_the_slot(tmp_path, template, slot, rendered):
    assert render(template, slot) == rendered
    read = configuration(tmp_path, changed(release=f'"{template}"'))
    assert render_release(read, slot) == rendered


@pytest.mark.parametrize(
    "template",
    ["{", "}", "{x}", "{date}", "{date:}", "{date:%}", "{date:%c}", "{date:%%}", "{date:%Y/%m}",
     "{0}", "{{quarter}}", "{date:%Y", "{quarter!r}", "{date:%Y.__class__[}"],
)  # fmt: skip
def test_other_placeholders_are_refused(tmp_path, template):
    with pytest.raises(ValueError, match="placeholders"):
        check_template(template)
    assert only_problem(tmp_path, changed(release=f'"{template}"'))[:2] == (2, "release")
    persons = VALID.replace("persons.parquet", f'"{template}.parquet"')
    assert only_problem(tmp_path, persons)[1] == "source.persons"


@pytest.mark.parametrize(
    "release", ["{date:%Y}/../x", "../{quarter}", "{date:%Y} {quarter}", "-{quarter}"]
)
def test_a_template_that_renders_to_a_path_is_refused_before_anything_is_done(tmp_path, release):
    assert only_problem(tmp_path, changed(release=f'"{release}"'))[:2] == (2, "release")


# --- simulation -----------------------------------------------------------------------------


def test_a_seed_without_simulation_is_refused(tmp_path):
    line, key, message = only_problem(tmp_path, VALID + "seed: 7\n")
    assert (line, key) == (13, "seed")
    assert "never seeded" in message
    assert only_problem(tmp_path, VALID + "simulate: false\nseed: 7\n")[0] == 14


def test_a_simulation_may_be_seeded_but_not_signed(tmp_path):
    assert configuration(tmp_path, VALID + "simulate: true\nseed: 7\n").seed == 7
    text = changed(publish="{to: public, signing_key: key.pem}") + "simulate: true\n"
    line, key, message = only_problem(tmp_path, text)
    assert (line, key) == (13, "simulate")
    assert "cannot be signed" in message


def test_the_rules_of_simulation_are_told_along_with_other_problems(tmp_path):
    found = {key for _, key, _ in problems(tmp_path, changed(product="../x") + "seed: 7\n")}
    assert found == {"product", "seed"}


@pytest.mark.parametrize("seed", ["-1", str(2**63), "1.5", "x"])
def test_a_seed_that_no_generator_takes_is_refused(tmp_path, seed):
    assert only_problem(tmp_path, VALID + f"simulate: true\nseed: {seed}\n")[:2] == (14, "seed")


@pytest.mark.parametrize("limit", ["4", "4TB", "-4GB", "0GB", "4GB; SELECT 1", "lots"])
def test_a_memory_limit_is_a_number_and_a_unit(tmp_path, limit):
    text = VALID + f"resources: {{memory_limit: '{limit}'}}\n"
    assert only_problem(tmp_path, text)[:2] == (13, "resources.memory_limit")


# --- hostile files --------------------------------------------------------------------------

BILLION_LAUGHS = "a: &a [x, x]\n" + "".join(
    f"{chr(98 + n)}: &{chr(98 + n)} [{', '.join(['*' + chr(97 + n)] * 9)}]\n" for n in range(20)
)
HOSTILE = {
    "empty": b"",
    "comment only": b"# nothing\n",
    "a list": b"- a\n- b\n",
    "a word": b"word\n",
    "null": b"null\n",
    "anchor": (VALID + "x: &a 1\n").encode(),
    "alias": b"a: &a 1\nb: *a\n",
    "alias of nothing": b"a: *nothing\n",
    "billion laughs": BILLION_LAUGHS.encode(),
    "self reference": b"&a [*a]\n",
    "merge key": b"<<: {product: x}\n",
    "python object": b"product: !!python/object/apply:os.system ['true']\n",
    "python name": b"product: !!python/name:os.system\n",
    "custom tag": (VALID.replace("privacy: {", "privacy: !custom {")).encode(),
    "custom tag on a scalar": changed(product="!secret household").encode(),
    "standard tag on a mapping": b"!!set {a, b}\n",
    "integer tag on text": changed(product="!!int many").encode(),
    "integer tag on nothing": changed(product="!!int ''").encode(),
    "float tag on text": changed(product="!!float many").encode(),
    "boolean tag on text": changed(product="!!bool maybe").encode(),
    "timestamp tag on text": changed(product="!!timestamp never").encode(),
    "binary tag on text": changed(product="!!binary '%%'").encode(),
    "sequence tag on text": changed(product="!!seq x").encode(),
    "value sign": b"product: =\n",
    "two documents": (VALID + "---\n" + VALID).encode(),
    "not closed": b"product: [a\n",
    "tab": b"product:\n\t- a\n",
    "unknown version": b"%YAML 9.9\n---\na: 1\n",
    "version of many digits": b"%YAML 1." + b"1" * 5000 + b"\n---\na: 1\n",
    "number of many digits": b"product: " + b"1" * 5000 + b"\n",
    "character beyond Unicode": b'product: "\\U00110000"\n',
    "character far beyond Unicode": b'product: "\\UFFFFFFFF"\n',
    "half a surrogate pair": b'product: "\\ud800"\n',
    "half a surrogate pair as key": b'"\\ud800": 1\n',
    "NUL": b"product: a\x00b\n",
    "control": b"product: \x07\n",
    "latin-1": "product: é\n".encode("latin-1"),
    "UTF-16": VALID.encode("utf-16"),
    "binary": bytes(range(256)) * 20,
    "deep list": b"[" * 5000,
    "deep list, closed": b"[" * 3000 + b"]" * 3000,
    "very deep list": b"[" * 400_000,
    "deep mapping": b"{a: " * 3000,
    "deep blocks": "".join(" " * n + "a:\n" for n in range(900)).encode(),
    "many question marks": b"? " * 3000,
    "list as key": b"? [a, b]\n: c\n",
    "mapping as key": b"{a: b}: c\n",
    "oversized": b"# " + b"x" * LARGEST_FILE,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_a_configuration_error_and_never_a_traceback(tmp_path, name):
    started = time.monotonic()
    assert problems(tmp_path, HOSTILE[name])
    assert time.monotonic() - started < 20


def test_anchors_are_refused_on_their_line(tmp_path):
    line, _, message = only_problem(tmp_path, VALID + "x: &a 1\n")
    assert line == 13
    assert "anchors and aliases" in message


def test_a_tag_never_runs_anything(tmp_path):
    target = tmp_path / "ran"
    problems(tmp_path, f"product: !!python/object/apply:os.mkdir ['{target}']\n")
    assert not target.exists()


def test_a_file_that_is_not_there_or_no_file_is_a_configuration_error(tmp_path):
    for path in (tmp_path / "none.yaml", tmp_path, tmp_path / ("x" * 300)):
        with pytest.raises(ConfigurationError, match="cannot be read"):
            load_configuration(path)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_an_endless_file_is_not_read_to_its_end():
    with pytest.raises(ConfigurationError, match="larger"):
        load_configuration(Path("/dev/zero"))


@settings(max_examples=150)
@given(
    content=st.binary(max_size=200)
    | st.text(max_size=200).map(lambda text: text.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_are_a_configuration_error(tmp_path, content):
    with pytest.raises(ConfigurationError):
        load(tmp_path, content)


YAML_PIECES = st.lists(
    st.sampled_from(
        ["product", ": ", "\n", "  ", "- ", "[", "]", "{", "}", ", ", "'", '"', "!!int ", "!x ",
         "&a ", "*a", "? ", "| ", "> ", "%TAG ! x\n", "---\n", "...\n", "\\x41", "1", "0.5", "1:2",
         "null", "=", "<<", "#", "~", "source", "2026-01-01", "é", "\\U00110000"]
    ),
    max_size=25,
)  # fmt: skip


@settings(max_examples=300)
@given(pieces=YAML_PIECES, at=st.integers(0, len(VALID)))
@example(pieces=['"\\U00110000"'], at=9)
def test_any_damage_to_a_valid_file_is_a_configuration_error_or_nothing(tmp_path, pieces, at):
    text = VALID[:at] + "".join(pieces) + VALID[at:]
    try:
        load(tmp_path, text)
    except ConfigurationError as error:
        assert error.problems  # noqa: PT017  (valid files exist among the damaged ones)


def test_a_problem_names_the_file_but_not_its_folder(tmp_path):
    with pytest.raises(ConfigurationError) as caught:
        load(tmp_path, "{}")
    assert "product.yaml" in str(caught.value)
    assert str(tmp_path) not in str(caught.value)
