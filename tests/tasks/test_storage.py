"""Zones and run stores: closed to others, and no tampered table is ever computed from."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import stat
import threading
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pytest

from pgsr_core.hierarchy import RegionTree
from tasks.storage import tables
from tasks.storage.duck import StoreMissing, StoreUnusable, connect
from tasks.storage.tables import (
    MatrixStore,
    TableRef,
    TableTampered,
    read_regions_table,
    write_regions,
)
from tasks.storage.zones import (
    Home,
    NotARunName,
    SourceKeyDamaged,
    StateNotWritten,
    append_private,
    make_private_folder,
    split_run_name,
    write_private,
)

TREE = RegionTree.from_table(
    ["nation", "north", "south", "n1", "n2"], [None, "nation", "nation", "north", "north"]
)
SIZES = range(1, 5)
VALUES = np.arange(-10, 10, dtype=np.int64).reshape(5, 4)
MASKS = [0o000, 0o022, 0o077]


def mode(path):
    return stat.S_IMODE(Path(path).stat().st_mode)


@pytest.fixture(params=MASKS, ids=oct)
def umask(request):
    previous = os.umask(request.param)
    yield request.param
    os.umask(previous)


# --- zones ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("umask")
def test_every_folder_and_file_is_closed_to_others_whatever_the_umask(tmp_path):
    home = Home(tmp_path / "deep" / "home")
    home.create()
    run = home.run("household-sizes", "2026-Q3")
    run.create()
    home.source_key()
    write_private(run.plan, b"{}")
    append_private(run.operator_log, "one\n")
    append_private(run.operator_log, "two\n")
    assert run.operator_log.read_text() == "one\ntwo\n"
    paths = list((tmp_path / "deep").rglob("*"))
    assert len(paths) == 10
    for path in [tmp_path / "deep", *paths]:
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_the_two_zones_of_a_run_share_no_folder(tmp_path):
    run = Home(tmp_path).run("p", "r")
    assert tmp_path / "confidential" in run.confidential_store.parents
    assert tmp_path / "confidential" in run.operator_log.parents
    for path in (run.safe_store, run.plan):
        assert tmp_path / "confidential" not in path.parents


def test_a_folder_that_was_there_keeps_its_mode_and_only_new_ones_are_closed(tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir(mode=0o755)
    shared.chmod(0o755)
    make_private_folder(shared / "a" / "b")
    assert [mode(path) for path in (shared, shared / "a", shared / "a" / "b")] == [
        0o755,
        0o700,
        0o700,
    ]


def test_a_replaced_file_is_whole_and_leaves_no_draft(tmp_path):
    path = tmp_path / "plan.json"
    write_private(path, b"first")
    write_private(path, b"second")
    assert path.read_bytes() == b"second"
    assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"
    write_private(path, b"first")

    def fail(_descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", fail)
        with pytest.raises(StateNotWritten, match=r"No space left on device.*Remedy:"):
            write_private(path, b"second")
    assert path.read_bytes() == b"first"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_takes_nothing_is_told_with_its_remedy(tmp_path):
    (tmp_path / "file").write_text("where a folder should be")
    inside = tmp_path / "file" / "home"
    for attempt in (
        lambda: make_private_folder(inside),
        lambda: write_private(inside, b""),
        lambda: append_private(inside, ""),
        lambda: Home(inside).source_key(),
        lambda: connect(inside / "run.duckdb").__enter__(),
    ):
        with pytest.raises(StateNotWritten, match=r"Not a directory.*Remedy:") as told:
            attempt()
        assert told.value.exit_code == 3


def test_file_and_folder_reach_the_disk_before_a_write_returns(tmp_path, monkeypatch):
    done = []
    sync, link = os.fsync, os.link

    def spy_sync(descriptor):
        done.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    def spy_link(source, target):
        done.append("link")
        link(source, target)

    monkeypatch.setattr(os, "fsync", spy_sync)
    monkeypatch.setattr(os, "link", spy_link)
    write_private(tmp_path / "plan.json", b"x")
    assert done == ["file", "folder"]
    Home(tmp_path).source_key()
    assert done[-2:] == ["link", "folder"]


def test_the_source_key_is_made_once_and_stays(tmp_path):
    home = Home(tmp_path)
    key = home.source_key()
    assert len(key) == 32
    assert home.source_key() == key
    assert Home(tmp_path / "other").source_key() != key
    assert [path.name for path in (tmp_path / "confidential").iterdir()] == ["source-digest.key"]


def test_a_damaged_source_key_is_refused_and_not_replaced(tmp_path):
    """Under an empty key a digest of raw data would confirm a guess of the whole data set."""
    home = Home(tmp_path)
    home.source_key()
    path = tmp_path / "confidential" / "source-digest.key"
    path.write_bytes(b"")
    with pytest.raises(SourceKeyDamaged, match="Remedy:"):
        home.source_key()
    assert path.read_bytes() == b""


def take_key(root, barrier, results):
    barrier.wait(timeout=60)
    results.put(Home(Path(root)).source_key())


def test_processes_that_race_for_the_source_key_get_the_same_one(tmp_path):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(4), context.Queue()
    processes = [
        context.Process(target=take_key, args=(str(tmp_path), barrier, results)) for _ in range(4)
    ]
    for process in processes:
        process.start()
    keys = {results.get(timeout=60) for _ in processes}
    for process in processes:
        process.join(timeout=20)
    assert keys == {Home(tmp_path).source_key()}
    assert len(list((tmp_path / "confidential").iterdir())) == 1


def test_threads_that_race_for_the_source_key_get_the_same_one(tmp_path):
    for number in range(20):
        home = Home(tmp_path / str(number))
        start, keys = threading.Barrier(4), []

        def take(home=home, start=start, keys=keys):
            start.wait()
            keys.append(home.source_key())

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(keys) == 4
        assert len(set(keys)) == 1


def test_the_home_is_where_the_environment_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PGSR_HOME", "elsewhere")
    assert Home.locate(beside=Path("/srv")).root == tmp_path / "elsewhere"
    assert Home.locate().ledger_url == f"sqlite:///{tmp_path}/elsewhere/ledger.sqlite"
    monkeypatch.setenv("PGSR_LEDGER_URL", "sqlite:////srv/ledger.sqlite")
    assert Home.locate().ledger_url == "sqlite:////srv/ledger.sqlite"


def test_a_run_is_named_by_two_plain_names():
    assert split_run_name("household-sizes/2026-Q3") == ("household-sizes", "2026-Q3")


@pytest.mark.parametrize(
    "name", ["", "a", "a/", "/b", "a/b/c", "../a", "a/..", "a//b", "a/b\n", "a\\b"]
)
def test_any_other_name_of_a_run_is_refused(name):
    with pytest.raises(NotARunName, match="Remedy:"):
        split_run_name(name)


# --- hardened connections -------------------------------------------------------------------


@pytest.fixture
def outside(tmp_path):
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret.csv").write_text("a\n1\n")
    with connect(folder / "other.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    return folder


FORBIDDEN = [
    "SELECT * FROM read_csv('{outside}/secret.csv')",
    "SELECT * FROM '{outside}/secret.csv'",
    "SELECT * FROM read_text('{outside}/secret.csv')",
    "SELECT * FROM read_blob('{outside}/*')",
    "SELECT * FROM read_csv('{inside}/../outside/secret.csv')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM read_csv('http://localhost:1/x.csv')",
    "COPY (SELECT 1) TO '{outside}/leak.csv'",
    "COPY (SELECT 1) TO '{inside}/../outside/leak.parquet' (FORMAT parquet)",
    "EXPORT DATABASE '{outside}/leak'",
    "ATTACH '{outside}/other.duckdb' AS other",
    "ATTACH '{outside}/new.duckdb' AS other",
    "INSTALL httpfs",
    "LOAD '{outside}/evil.duckdb_extension'",
    "LOAD httpfs",
    "SET enable_external_access = true",
    "SET lock_configuration = false",
    "SET memory_limit = '100GB'",
    "SET temp_directory = '{outside}'",
    "SET allowed_directories = ['/']",
    "RESET allowed_paths",
    "PRAGMA threads = 64",
]


@pytest.mark.parametrize("in_memory", [False, True], ids=["file", "memory"])
@pytest.mark.parametrize("statement", FORBIDDEN)
def test_sql_reaches_no_file_extension_or_setting_that_was_not_named(
    tmp_path, outside, statement, in_memory
):
    inside = tmp_path / "inside"
    inside.mkdir()
    before = sorted(outside.rglob("*"))
    with (
        connect(None if in_memory else inside / "run.duckdb") as connection,
        pytest.raises(duckdb.Error),
    ):
        connection.execute(statement.format(outside=outside, inside=inside))
    assert sorted(outside.rglob("*")) == before


def test_a_named_file_is_read_and_its_neighbours_are_not(tmp_path, outside):
    (outside / "neighbour.csv").write_text("a\n2\n")
    named = outside / "secret.csv"
    with connect(tmp_path / "inside" / "run.duckdb", readable=[named]) as connection:
        assert connection.execute(f"SELECT * FROM read_csv('{named}')").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            connection.execute(f"SELECT * FROM read_csv('{outside}/neighbour.csv')")
        with pytest.raises(duckdb.Error):
            connection.execute(f"SELECT * FROM read_csv('{outside}/*.csv')")


def test_a_folder_named_for_writing_takes_files_and_no_other_does(tmp_path, outside):
    bundle = tmp_path / "bundle"
    bundle.mkdir()
    with connect(tmp_path / "inside" / "run.duckdb", writable_folder=bundle) as connection:
        connection.execute(f"COPY (SELECT 1 AS a) TO '{bundle}/t.csv'")
        with pytest.raises(duckdb.Error):
            connection.execute(f"COPY (SELECT 1 AS a) TO '{outside}/t.csv'")
    assert (bundle / "t.csv").read_text() == "a\n1\n"


def test_a_name_in_sql_is_never_a_variable_of_the_program(tmp_path):
    import pandas as pd

    secret_frame = pd.DataFrame({"x": [42]})
    assert len(secret_frame) == 1
    with connect(tmp_path / "run.duckdb") as connection, pytest.raises(duckdb.Error):
        connection.execute("SELECT * FROM secret_frame")


def test_a_store_opened_for_reading_cannot_be_written(tmp_path):
    with connect(tmp_path / "run.duckdb") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    with connect(tmp_path / "run.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,)]
        with pytest.raises(duckdb.Error):
            connection.execute("INSERT INTO t VALUES (2)")


def test_a_store_is_closed_again_after_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), connect(tmp_path / "run.duckdb") as connection:
        raise ZeroDivisionError
    with pytest.raises(duckdb.ConnectionException):
        connection.execute("SELECT 1")
    with connect(tmp_path / "run.duckdb"):
        pass


@pytest.mark.usefixtures("umask")
def test_a_store_its_log_and_its_folders_are_closed_to_others_while_it_is_open(tmp_path):
    database = tmp_path / "deep" / "run" / "store.duckdb"
    with connect(database, memory_limit="50MB", threads=1) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        connection.execute("INSERT INTO t VALUES (2)")
        # More than the memory limit holds, so that it spills to disk.
        connection.execute(
            "CREATE TABLE big AS SELECT range AS x, hash(range) AS h FROM range(2000000)"
        )
        result = connection.execute("SELECT * FROM big ORDER BY h")
        result.fetchone()
        paths = list((tmp_path / "deep").rglob("*"))
        names = {path.name for path in paths}
        assert "store.duckdb.wal" in names
        assert any(name.startswith(".spill-") for name in names)
        for path in [tmp_path / "deep", *paths]:
            assert mode(path) == (0o700 if path.is_dir() else 0o600), path
    for path in (tmp_path / "deep").rglob("*"):
        assert mode(path) == (0o700 if path.is_dir() else 0o600), path


def test_a_store_that_was_open_to_others_is_closed_when_it_is_opened(tmp_path):
    database = tmp_path / "run.duckdb"
    with connect(database):
        pass
    database.chmod(0o644)
    with connect(database):
        assert mode(database) == 0o600


def test_the_umask_is_as_before_when_a_store_is_closed(tmp_path):
    previous = os.umask(0o027)
    try:
        with connect(tmp_path / "run.duckdb"):
            pass
        with pytest.raises(StoreMissing), connect(tmp_path / "none.duckdb", read_only=True):
            pass
        assert os.umask(0o027) == 0o027
    finally:
        os.umask(previous)


def test_a_store_whose_process_was_killed_while_it_was_made_is_made_again(tmp_path, monkeypatch):
    """DuckDB writes its headers in place, and takes a file with half of them for damaged."""
    database = tmp_path / "run.duckdb"

    def die(path):
        Path(path).write_bytes(b"half a header")
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        monkeypatch.setattr(duckdb, "connect", die)
        try:
            connect(database).__enter__()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    with connect(database) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
    with connect(database, read_only=True) as connection:
        assert connection.execute("SELECT x FROM t").fetchall() == [(1,)]


def test_the_log_of_a_deleted_store_does_not_spoil_its_successor(tmp_path):
    database, log = tmp_path / "run.duckdb", tmp_path / "run.duckdb.wal"
    with connect(database) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x")
        left = log.read_bytes()  # as a killed process leaves it
    database.unlink()
    log.write_bytes(left)
    with connect(database) as connection:
        assert connection.execute("SHOW TABLES").fetchall() == []
    assert list(tmp_path.iterdir()) == [database]


def test_a_damaged_store_is_told_with_its_remedy(tmp_path):
    database = tmp_path / "run.duckdb"
    database.write_bytes(b"no store")
    for read_only in (True, False):
        with pytest.raises(StoreUnusable, match="Remedy:"), connect(database, read_only=read_only):
            pass
    assert database.read_bytes() == b"no store"


@contextmanager
def disk_of(size):
    """As if the disk had room for files of this size only."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_disk_that_is_full_at_the_commit_is_told_and_leaves_the_tables_as_they_were(tmp_path):
    database, values = tmp_path / "run.duckdb", np.arange(5 * 40_000).reshape(5, -1)

    def write(table, values):
        with connect(database) as connection, disk_of(1 << 20 if table == "large" else 1 << 30):
            store = MatrixStore(connection, TREE)
            store.write("noise", table, values, sizes=range(values.shape[1]), inputs="i")

    write("small", VALUES)
    with pytest.raises(StoreUnusable, match="Remedy:"):
        write("large", values)
    with connect(database, read_only=True) as connection:
        assert MatrixStore(connection, TREE).record("noise").output.table == "small"
    write("wide", values)


# --- matrices -------------------------------------------------------------------------------


@pytest.fixture
def connection(tmp_path):
    with connect(tmp_path / "run" / "safe.duckdb") as opened:
        yield opened


@pytest.fixture
def store(connection):
    return MatrixStore(connection, TREE)


def write(store, values=VALUES, *, stage="noise", table="measurements", **facts):
    return store.write(stage, table, values, sizes=SIZES, inputs="key", **facts)


def test_a_matrix_reads_back_exactly(store):
    values = VALUES.copy()
    values[0, 0], values[1, 1] = 2**63 - 1, -(2**63)
    ref = write(store, values)
    read = store.read(ref, sizes=SIZES)
    assert read.dtype == np.int64
    assert (read == values).all()


def test_a_matrix_reads_back_over_many_pieces(store, monkeypatch):
    monkeypatch.setattr(tables, "CELLS_A_WRITE", 7)
    monkeypatch.setattr(tables, "ROWS_A_READ", 3)
    assert (store.read(write(store), sizes=SIZES) == VALUES).all()


def test_sizes_from_zero_and_other_memory_layouts_read_back(store):
    sizes = range(0, 4)
    ref = store.write("cpwl", "group_sizes", np.asfortranarray(VALUES), sizes=sizes, inputs="k")
    assert (store.read(ref, sizes=sizes) == VALUES).all()


def test_a_matrix_survives_closing_the_store(tmp_path):
    path = tmp_path / "safe.duckdb"
    with connect(path) as first:
        ref = write(MatrixStore(first, TREE), certificate={"groups": 7})
    with connect(path, read_only=True) as second:
        store = MatrixStore(second, TREE)
        assert store.finished("noise", inputs="key") == ref
        assert store.record("noise").certificate == {"groups": 7}
        assert (store.read(ref, sizes=SIZES) == VALUES).all()


def test_a_stage_is_finished_for_its_own_inputs_only(store):
    assert store.record("noise") is None
    assert store.finished("noise", inputs="key") is None
    ref = write(store)
    assert store.finished("noise", inputs="key") == ref
    assert store.finished("noise", inputs="other") is None
    assert store.finished("isotonic", inputs="key") is None


def test_writing_again_replaces_table_and_record(store):
    first = write(store)
    second = write(store, VALUES + 1)
    assert store.record("noise").output == second
    assert (store.read(second, sizes=SIZES) == VALUES + 1).all()
    with pytest.raises(TableTampered):
        store.read(first, sizes=SIZES)


def test_a_write_that_fails_leaves_neither_table_nor_record(store, connection):
    before = write(store)
    with pytest.raises(TypeError):
        write(store, VALUES + 1, certificate={"not JSON": object()})
    assert store.record("noise").output == before
    assert (store.read(before, sizes=SIZES) == VALUES).all()
    with pytest.raises(TypeError):
        write(store, stage="isotonic", table="isotonic", certificate={"not JSON": object()})
    assert store.record("isotonic") is None
    assert ("isotonic",) not in connection.execute("SHOW TABLES").fetchall()


def test_a_keyed_store_has_other_digests_and_refuses_those_of_another_key(connection):
    keyed = MatrixStore(connection, TREE, key=b"a" * 32)
    ref = write(keyed, table="true_sizes", stage="ingest")
    assert (keyed.read(ref, sizes=SIZES) == VALUES).all()
    assert ref.digest != MatrixStore(connection, TREE).digest("true_sizes", VALUES, sizes=SIZES)
    for other in (MatrixStore(connection, TREE, key=b"b" * 32), MatrixStore(connection, TREE)):
        with pytest.raises(TableTampered):
            other.read(ref, sizes=SIZES)


TAMPERING = {
    "changed cell": "UPDATE measurements SET value = value + 1 WHERE region_index = 2 AND size = 3",
    "two cells swapped": "UPDATE measurements SET size = 7 - size WHERE region_index = 1"
    " AND size IN (3, 4)",
    "two regions swapped": "UPDATE measurements SET region_index = 7 - region_index"
    " WHERE region_index IN (3, 4)",
    "missing row": "DELETE FROM measurements WHERE region_index = 4 AND size = 4",
    "missing region": "DELETE FROM measurements WHERE region_index = 4",
    "no rows": "DELETE FROM measurements",
    "extra size": "INSERT INTO measurements VALUES (0, 5, 1)",
    "extra region": "INSERT INTO measurements VALUES (5, 1, 1)",
    "duplicate row": "INSERT INTO measurements SELECT * FROM measurements LIMIT 1",
    "duplicate for missing": "UPDATE measurements SET size = 1 WHERE region_index = 0 AND size = 2",
    "size below the first": "UPDATE measurements SET size = 0 WHERE size = 4",
    "region counted from the end": "UPDATE measurements SET region_index = -1"
    " WHERE region_index = 4",
    "size counted from the end": "UPDATE measurements SET size = size - 4 WHERE size > 2",
    "region far outside": "UPDATE measurements SET region_index = 99 WHERE region_index = 4",
    "null value": "ALTER TABLE measurements ALTER value DROP NOT NULL;"
    " UPDATE measurements SET value = NULL WHERE region_index = 0 AND size = 1",
    "null region": "ALTER TABLE measurements ALTER region_index DROP NOT NULL;"
    " UPDATE measurements SET region_index = NULL WHERE region_index = 0 AND size = 1",
    "fractions": "ALTER TABLE measurements ALTER value TYPE DOUBLE;"
    " UPDATE measurements SET value = value + 0.25 WHERE value > 0",
    "floats": "ALTER TABLE measurements ALTER value TYPE DOUBLE",
    "text": "ALTER TABLE measurements ALTER value TYPE VARCHAR",
    "wider": "ALTER TABLE measurements ALTER value TYPE HUGEINT",
    "narrower": "ALTER TABLE measurements ALTER value TYPE INTEGER",
    "fractional regions": "ALTER TABLE measurements ALTER region_index TYPE DOUBLE",
    "dropped": "DROP TABLE measurements",
    "renamed": "ALTER TABLE measurements RENAME TO others",
    "column dropped": "ALTER TABLE measurements DROP value",
    "column renamed": "ALTER TABLE measurements RENAME value TO number",
    "column added": "ALTER TABLE measurements ADD COLUMN truth BIGINT",
    "columns in another order": "CREATE TABLE others AS SELECT size, region_index, value"
    " FROM measurements; DROP TABLE measurements; ALTER TABLE others RENAME TO measurements",
    "view instead": "ALTER TABLE measurements RENAME TO others;"
    " CREATE VIEW measurements AS SELECT region_index, size, value + 1 AS value FROM others",
}


@pytest.mark.parametrize("tampering", TAMPERING)
def test_a_tampered_table_is_refused(store, connection, tampering):
    ref = write(store)
    connection.execute(TAMPERING[tampering])
    with pytest.raises(TableTampered, match="Remedy:") as caught:
        store.read(ref, sizes=SIZES)
    assert caught.value.exit_code == 1
    assert caught.value.table == "measurements"


def test_a_table_read_for_other_sizes_or_another_tree_is_refused(store, connection):
    ref = write(store)
    for sizes in (range(0, 4), range(1, 4), range(1, 6), range(2, 6)):
        with pytest.raises(TableTampered):
            store.read(ref, sizes=sizes)
    other = RegionTree.from_table(["x", "a", "b", "c", "d"], [None, "x", "x", "a", "a"])
    with pytest.raises(TableTampered):
        MatrixStore(connection, other).read(ref, sizes=SIZES)


FORGERIES = {
    "another digest": "UPDATE stages SET digest = repeat('0', 64)",
    "no digest": "UPDATE stages SET digest = ''",
    "another table": "UPDATE stages SET output = 'decoy'",
    "no table": "UPDATE stages SET output = 'nothing'",
    "SQL for a table": "UPDATE stages SET output = 'measurements; DROP TABLE stages'",
    "a file for a table": "UPDATE stages SET output = '''/etc/passwd'''",
    "certificate that is no JSON": "UPDATE stages SET certificate = '{'",
    "certificate that is no mapping": "UPDATE stages SET certificate = '[1]'",
    "other columns": "ALTER TABLE stages DROP certificate",
    "other types": "ALTER TABLE stages DROP certificate;"
    " ALTER TABLE stages ADD COLUMN certificate INTEGER DEFAULT 1",
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_record_is_refused(store, connection, forgery):
    write(store, VALUES + 5, table="decoy", stage="decoy")
    write(store)
    connection.execute(
        FORGERIES[forgery] + (" WHERE stage = 'noise'" if "UPDATE" in FORGERIES[forgery] else "")
    )
    with pytest.raises(TableTampered):
        store.read(store.record("noise").output, sizes=SIZES)


def test_a_refusal_quotes_no_value(store, connection):
    ref = write(store)
    connection.execute("ALTER TABLE measurements ALTER value TYPE VARCHAR")
    connection.execute("UPDATE measurements SET value = 'canary'")
    with pytest.raises(TableTampered) as caught:
        store.read(ref, sizes=SIZES)
    assert "canary" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize("table", ["", "Upper", "a b", "a;b", 'a"b', "1a", "../a", "x" * 64])
def test_only_plain_table_names_are_ever_written(store, table):
    with pytest.raises(ValueError, match="not a table name"):
        write(store, table=table)


def test_reading_by_a_forged_name_runs_nothing(store, connection):
    write(store)
    with pytest.raises(TableTampered):
        store.read(TableRef("measurements; DROP TABLE stages", "x"), sizes=SIZES)
    assert store.record("noise") is not None


# --- regions --------------------------------------------------------------------------------


def test_the_region_table_reads_back_with_and_without_public_groups(connection):
    groups = TREE.aggregate(np.array([0, 0, 3, 1, 2], dtype=np.int64))
    for written in (groups, None):
        write_regions(connection, TREE, ("",) * 5, written)
        tree, read = read_regions_table(connection)
        assert tree.digest == TREE.digest
        if written is None:
            assert read is None
        else:
            assert (read == written).all()


REGION_TAMPERING = {
    "other order": "UPDATE regions SET region_index = 7 - region_index"
    " WHERE region_index IN (3, 4)",
    "groups that do not add up": "UPDATE regions SET groups = groups + 1 WHERE region = 'n1'",
    "negative groups": "UPDATE regions SET groups = -groups",
    "groups missing": "UPDATE regions SET groups = NULL WHERE region = 'n1'",
    "groups of the root missing": "UPDATE regions SET groups = NULL WHERE region = 'nation'",
    "no rows": "DELETE FROM regions",
    "leaf missing": "DELETE FROM regions WHERE region = 'n1'",
    "root missing": "DELETE FROM regions WHERE region = 'nation'",
    "cycle": "UPDATE regions SET parent = 'n1' WHERE region = 'north'",
    "two rows": "INSERT INTO regions SELECT * FROM regions WHERE region = 'n1'",
    "dropped": "DROP TABLE regions",
    "text": "ALTER TABLE regions ALTER groups TYPE VARCHAR",
}


@pytest.mark.parametrize("tampering", REGION_TAMPERING)
def test_a_tampered_region_table_is_refused(connection, tampering):
    groups = TREE.aggregate(np.array([0, 0, 3, 1, 2], dtype=np.int64))
    write_regions(connection, TREE, ("",) * 5, groups)
    connection.execute(REGION_TAMPERING[tampering])
    with pytest.raises(TableTampered):
        read_regions_table(connection)
