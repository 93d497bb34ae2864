"""The store: what is written is whole, what is read is checked, and what a crash or a hand changed is named."""

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import experiential_lab.store
from experiential_lab.records import IntegrityError, Record, UnsupportedError, UsageError, canonical_bytes, digest_of
from experiential_lab.store import Problem, Store

ROOT = Path(experiential_lab.store.__file__).parents[1]
NOWHERE = digest_of(b"never stored")


class Note(Record, frozen=True, kw_only=True):
    text: str
    pages: tuple[int, ...] = ()


class Other(Record, frozen=True, kw_only=True):
    name: str


def fixed_clock() -> str:
    return "2026-01-02T03:04:05Z"


def make(path: Path) -> Store:
    return Store.open(path, create=True, clock=fixed_clock, actor="tester")


def fill(store: Store) -> Store:
    """One of everything that a workspace can hold."""
    source = store.put(b"the bytes of a source\n")
    store.append("evidence_built", source_digest=source, path="a.jsonl")
    note = store.keep("note", Note(text="kept", pages=(1, 2)), inputs={"source": source})
    store.append("artifact_kept", artifact=note)
    store.cache_write("postings", b"made again at any time")
    return store


def snapshot(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return make(tmp_path / ".lab")


# Opening


def test_a_workspace_is_made_once_and_says_so_in_its_first_row(tmp_path):
    made = make(tmp_path / "deep" / ".lab")
    again = Store.open(tmp_path / "deep" / ".lab", create=True)
    assert again.rows() == made.rows()
    [row] = made.rows()
    assert (row.number, row.previous, row.kind, row.fields) == (0, "", "workspace_created", {"schema": 1})
    assert (row.at, row.actor) == ("2026-01-02T03:04:05Z", "tester")
    assert (made.path / "lab.json").read_bytes() == b'{"schema":1}\n'


def test_a_missing_workspace_is_refused_with_its_path_and_the_remedy(tmp_path):
    with pytest.raises(UsageError, match=r"none-here.*xlab import"):
        Store.open(tmp_path / "none-here")
    assert list(tmp_path.iterdir()) == []


def test_a_file_in_place_of_a_workspace_is_refused(tmp_path):
    (tmp_path / "file").write_text("mine")
    for create in (False, True):
        with pytest.raises(UsageError, match="is a file"):
            Store.open(tmp_path / "file", create=create)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_folder_of_other_things_never_becomes_a_workspace(tmp_path):
    (tmp_path / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match=r"not empty \(thesis.tex\)"):
        Store.open(tmp_path, create=True)
    assert os.listdir(tmp_path) == ["thesis.tex"]


def test_a_newer_schema_is_refused_with_both_numbers(store):
    (store.path / "lab.json").write_text('{"schema":7,"shards":2}\n')
    with pytest.raises(UnsupportedError, match=r"schema 7, this version reads schema 1"):
        Store.open(store.path)


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema":0}\n', b'{"schema":1}', b'{"schema":"1"}\n', b"[" * 99_999])
def test_a_damaged_lab_json_is_named(store, damage):
    (store.path / "lab.json").write_bytes(damage)
    with pytest.raises(IntegrityError, match=r"lab.json is damaged"):
        Store.open(store.path)
    assert [problem.artifact for problem in store.verify().problems] == ["lab.json"]


def test_a_lost_lab_json_is_never_replaced_while_the_log_has_rows(store):
    store.append("split_made", families=2)
    (store.path / "lab.json").unlink()
    before = snapshot(store.path)
    with pytest.raises(IntegrityError, match="the log has 2 rows"):
        make(store.path)
    assert snapshot(store.path) == before


def test_a_workspace_that_another_process_made_meanwhile_is_kept(tmp_path):
    path, rows = tmp_path / ".lab", []

    def overtake(step: str) -> None:
        if step == "before lock log":
            rows.append(make(path).append("split_made", families=2))

    assert Store.open(path, create=True, on_write=overtake).rows()[1:] == rows


def test_a_half_made_workspace_is_made_again_however_often(tmp_path):
    for step, actor in (
        ("before place lab.json", "long" * 99),
        ("before cut and sync log", "a"),
        ("after write log", "b"),
    ):
        with pytest.raises(UsageError, match="ENOSPC"):
            Store.open(tmp_path / ".lab", create=True, actor=actor, on_write=failing_at(step, errno.ENOSPC))
    assert [row.actor for row in make(tmp_path / ".lab").rows()] == ["tester"]


def failing_at(stop: str | int, number: int) -> Callable[[str], None]:
    """A watch that raises at a step with that name, or at that many steps after the first."""
    seen: list[str] = []

    def watch(step: str) -> None:
        seen.append(step)
        if stop in (step, len(seen) - 1):
            raise OSError(number, os.strerror(number))

    return watch


# Blobs


def test_put_stores_bytes_under_their_digest_and_get_returns_them(store):
    digest = store.put(b"hello")
    assert digest == digest_of(b"hello")
    assert store.path_of(digest) == store.path / "blobs" / digest[7:9] / digest[9:]
    assert (store.get(digest), store.has(digest), store.has(NOWHERE)) == (b"hello", True, False)


def test_law_10_bytes_are_created_once_and_verified_on_read(store):
    path = store.path_of(store.put(b"hello"))
    first, second = path.stat(), store.path_of(store.put(b"hello")).stat()
    assert (first.st_ino, first.st_mtime_ns) == (second.st_ino, second.st_mtime_ns)
    path.write_bytes(b"other")
    with pytest.raises(IntegrityError, match=digest_of(b"other")):
        store.get(digest_of(b"hello"))


@pytest.mark.parametrize("damage", [b"", b"hell", b"hellp", b"hello "])
def test_a_damaged_blob_raises_on_get_and_put_heals_it(store, damage):
    digest = store.put(b"hello")
    path = store.path_of(digest)
    path.write_bytes(damage)
    with pytest.raises(IntegrityError) as caught:
        store.get(digest)
    assert all(word in str(caught.value) for word in (digest, digest_of(damage), str(path)))
    assert store.put(b"hello") == digest
    assert store.get(digest) == b"hello"
    assert store.verify().ok


def test_a_missing_blob_is_named_as_missing(store):
    with pytest.raises(IntegrityError, match=f"{NOWHERE} is missing"):
        store.get(NOWHERE)


@pytest.mark.parametrize(
    "text", ["", "sha256:", "sha256:" + "g" * 64, "../../etc/passwd", NOWHERE.upper(), NOWHERE + "\n"]
)
def test_what_is_no_digest_never_becomes_a_path(store, text):
    for call in (store.get, store.has, store.path_of):
        with pytest.raises(UsageError, match="is no digest"):
            call(text)


@given(data=st.binary(max_size=2000))
@settings(max_examples=50, deadline=None)
def test_any_bytes_come_back(tmp_path_factory, data):
    store = make(tmp_path_factory.getbasetemp() / "any-bytes")
    assert store.get(store.put(data)) == data


# Kept records


def test_a_kept_record_comes_back_with_its_inputs(store):
    source = store.put(b"source")
    note = Note(text='a "quote" and \n a line', pages=(3,))
    digest = store.keep("note", note, inputs={"source": source})
    assert store.load(digest, "note", Note) == note
    assert store.inputs_of(digest) == {"source": source}


def test_a_kept_record_describes_itself_without_its_type(store):
    source = store.put(b"source")
    kept = store.describe(store.keep("note", Note(text="kept"), schema=2, inputs={"source": source}))
    assert kept == ("note", 2, {"source": source}, {"text": "kept"})
    with pytest.raises(IntegrityError, match="holds plain bytes"):
        store.describe(source)


def test_the_same_record_has_the_same_digest_whatever_the_order_of_its_inputs(tmp_path):
    one, two = make(tmp_path / "one"), make(tmp_path / "two")
    digests = []
    for store, names in ((one, ("a", "b")), (two, ("b", "a"))):
        inputs = {name: store.put(name.encode()) for name in names}
        digests.append(store.keep("note", Note(text="same"), inputs=inputs))
    assert digests[0] == digests[1]
    assert digests[0] != one.keep("note", Note(text="same"))


def test_a_record_is_refused_as_another_kind_with_both_named(store):
    digest = store.keep("note", Note(text="kept"))
    with pytest.raises(IntegrityError, match="kept as note, not as page"):
        store.load(digest, "page", Note)


def test_a_record_of_a_newer_schema_is_refused_with_both_numbers(store):
    digest = store.keep("note", Note(text="kept"), schema=3)
    with pytest.raises(UnsupportedError, match="schema 3; this version reads schema 1"):
        store.load(digest, "note", Note)
    assert store.load(digest, "note", Note, schema=3) == Note(text="kept")


def test_a_record_of_another_shape_or_plain_bytes_are_refused(store):
    with pytest.raises(IntegrityError, match="holds none"):
        store.load(store.keep("note", Note(text="kept")), "note", Other)
    for data in (b"", b"text", b'{"kind":"note"}', b'{"body":' + b"[" * 99_999):
        with pytest.raises(IntegrityError, match="holds plain bytes"):
            store.load(store.put(data), "note", Note)
    with pytest.raises(IntegrityError, match="holds plain bytes"):
        store.inputs_of(store.put(b"text"))


def test_an_input_must_be_stored_before_what_was_built_from_it(store):
    before = snapshot(store.path)
    with pytest.raises(IntegrityError, match=f"its snapshot, {NOWHERE}, is not stored"):
        store.keep("note", Note(text="kept"), inputs={"snapshot": NOWHERE})
    assert snapshot(store.path) == before


# The log


def test_each_row_names_the_line_before_and_head_names_the_last(store):
    store.append("split_made", families=2)
    store.append("index_built", entries=5, parts=["a", None, True])
    lines = (store.path / "log.jsonl").read_bytes().splitlines()
    rows = store.rows()
    assert [row.previous for row in rows] == ["", digest_of(lines[0]), digest_of(lines[1])]
    assert [row.number for row in rows] == [0, 1, 2]
    assert (store.path / "HEAD").read_text() == f'{{"count":3,"digest":"{digest_of(lines[2])}"}}\n'


def test_append_returns_the_row_as_it_is_read(store):
    row = store.append("index_built", kind="a field may be called kind", parts=(1, 2))
    assert store.latest("index_built") == row == store.rows("index_built")[0]
    assert row.fields == {"kind": "a field may be called kind", "parts": [1, 2]}
    assert store.latest("split_made") is None


def test_a_row_after_a_state_that_has_changed_meanwhile_is_not_written(store):
    first = store.append_after(-1, "split_made", families=2)
    before = snapshot(store.path)
    assert (first.number, store.append_after(-1, "split_made", families=3)) == (1, None)
    assert snapshot(store.path) == before
    store.append("index_built", entries=5)  # another kind does not count
    assert store.append_after(first.number, "split_made", families=3).number == 3


@pytest.mark.parametrize("value", [1.0, float("nan"), 2**53, b"bytes", {1: "a"}, {"é": 1}, [[0.5]], "\ud800", {1, 2}])
def test_a_field_outside_of_the_profile_is_refused_and_nothing_is_written(store, value):
    before = snapshot(store.path)
    with pytest.raises(ValueError, match=r"cannot be logged|surrogate"):
        store.append("split_made", value=value)
    assert snapshot(store.path) == before


def test_a_kind_outside_of_the_closed_list_is_refused(store):
    for call in (store.append, store.rows, store.latest):
        with pytest.raises(ValueError, match="'page_accepted' is no kind of log row"):
            call("page_accepted")
    assert len(store.rows()) == 1


def test_a_row_cannot_name_a_digest_that_is_not_stored(store):
    for key in ("artifact", "source_digest"):
        with pytest.raises(IntegrityError, match=f"its {key}, {NOWHERE}, is not stored"):
            store.append("evidence_built", **{key: NOWHERE})
    store.append("evidence_built", snapshot=NOWHERE)  # a hash of something else, under another key
    assert store.verify().ok


@given(text=st.text(st.sampled_from('\n\r\u2028\u0085\0"\\{}:,a'), max_size=40) | st.text(max_size=40))
@settings(max_examples=60, deadline=None)
def test_law_15_no_text_can_forge_a_log_line(tmp_path_factory, text):
    store = make(tmp_path_factory.getbasetemp() / "forged")
    count = len(store.rows())
    line = (store.path / "log.jsonl").read_text().splitlines()[0]
    store.append("artifact_kept", path=text, reason=f"{text}\n{line}\n")
    assert len(store.rows()) == count + 1
    assert store.rows()[-1].fields == {"path": text, "reason": f"{text}\n{line}\n"}


def test_a_row_longer_than_what_an_appender_reads_back_does_not_break_the_chain(store):
    store.append("artifact_kept", reason="x" * 100_000)
    store.append("split_made", families=2)
    assert [row.number for row in store.rows()] == [0, 1, 2]


def test_a_row_of_a_kind_that_only_a_newer_version_knows_is_refused(store):
    row = msgspec.structs.replace(store.append("split_made"), kind="page_accepted")
    rewrite_last(store, canonical_bytes(row))
    with pytest.raises(UnsupportedError, match="row 1 is of kind 'page_accepted'"):
        store.rows()


def test_a_row_with_another_number_is_found_although_the_chain_holds(store):
    row = msgspec.structs.replace(store.append("split_made"), number=7)
    rewrite_last(store, canonical_bytes(row))
    with pytest.raises(IntegrityError, match="row 1 says it is row 7"):
        store.rows()


def rewrite_last(store: Store, line: bytes) -> None:
    log = store.path / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-1]) + line + b"\n")
    (store.path / "HEAD").write_text(f'{{"count":{len(lines)},"digest":"{digest_of(line)}"}}\n')


@pytest.mark.parametrize("left", [0, 1, 2])
def test_a_cut_log_tail_is_found_by_readers_and_appenders(store, left):
    fill(store)
    log = store.path / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:left]))
    for call in (store.rows, lambda: store.append("split_made")):
        with pytest.raises(IntegrityError, match=rf"cut log tail: HEAD counts 3 rows.* has {left} rows"):
            call()
    assert [problem.artifact for problem in store.verify().problems] == ["log.jsonl"]


def test_another_line_where_head_counts_the_last_is_found(store):
    row = store.append("split_made", families=2)
    log = store.path / "log.jsonl"
    first = log.read_bytes().splitlines(keepends=True)[0]
    log.write_bytes(first + canonical_bytes(msgspec.structs.replace(row, fields={"families": 3})) + b"\n")
    with pytest.raises(IntegrityError, match="cut log tail: HEAD counts 2 rows"):
        store.rows()


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('"count":2', '"count":5', "cut log tail: HEAD counts 5"),
        ("}\n", "} ", "HEAD is damaged"),
        ("{", "[", "HEAD is damaged"),
    ],
)
def test_a_changed_head_is_found_by_readers_and_appenders(store, old, new, said):
    store.append("split_made", families=2)
    head = store.path / "HEAD"
    head.write_text(head.read_text().replace(old, new))
    before = snapshot(store.path)
    for call in (store.rows, lambda: store.append("split_made")):
        with pytest.raises(IntegrityError, match=said):
            call()
    assert snapshot(store.path) == before


@pytest.mark.parametrize("name", ["HEAD", "log.jsonl"])
def test_a_missing_head_or_log_is_named(store, name):
    (store.path / name).unlink()
    for call in (store.rows, lambda: store.append("split_made")):
        with pytest.raises(IntegrityError, match=f"{name} is missing"):
            call()
    assert name in [problem.artifact for problem in store.verify().problems]


def test_every_part_of_a_torn_line_is_invisible_and_the_next_appender_cuts_and_logs_it(store):
    rows, before = store.rows(), snapshot(store.path)
    store.append("split_made", families=2)
    line = (store.path / "log.jsonl").read_bytes()[len(before["log.jsonl"]) :]
    (store.path / "HEAD").write_bytes(before["HEAD"])
    for size in range(1, len(line), 7):
        torn = line[:size]
        (store.path / "HEAD").write_bytes(before["HEAD"])
        (store.path / "log.jsonl").write_bytes(before["log.jsonl"] + torn)
        assert store.rows() == rows
        assert store.verify().ok
        store.append("split_made", families=3)
        assert [(row.kind, row.fields) for row in store.rows()[1:]] == [
            ("log_tail_cut", {"bytes": size, "digest": digest_of(torn)}),
            ("split_made", {"families": 3}),
        ]


def test_a_torn_line_longer_than_what_replaces_it_is_cut_once(store):
    with open(store.path / "log.jsonl", "ab") as log:
        log.write(b"x" * 5000)
    store.append("split_made", families=2)
    store.append("split_made", families=3)
    assert [row.kind for row in store.rows()[1:]] == ["log_tail_cut", "split_made", "split_made"]


def test_complete_lines_beyond_head_count_only_when_they_continue_the_chain(store):
    head = (store.path / "HEAD").read_bytes()
    row = store.append("split_made", families=2)
    (store.path / "HEAD").write_bytes(head)
    assert store.latest("split_made") == row
    assert store.verify().ok
    assert store.append("split_made", families=3).number == 2
    with open(store.path / "log.jsonl", "ab") as log:
        log.write(canonical_bytes(msgspec.structs.replace(row, number=3)) + b"\n")
    for call in (store.rows, lambda: store.append("split_made")):
        with pytest.raises(IntegrityError, match="row 3 says"):
            call()


# Read-only and full


def read_only(path: Path, mode: int) -> None:
    for folder in [path, *(place for place in path.rglob("*") if place.is_dir())]:
        folder.chmod(mode)


WRITES = {
    "put": lambda store: store.put(b"more"),
    "keep": lambda store: store.keep("note", Note(text="more")),
    "append": lambda store: store.append("split_made", families=9),
    "cache_write": lambda store: store.cache_write("postings", b"more"),
}


@pytest.mark.parametrize("call", WRITES)
def test_a_read_only_workspace_is_read_and_never_written(store, call):
    before = snapshot(fill(store).path)
    read_only(store.path, 0o555)
    try:
        reader = Store.open(store.path, create=True)
        assert len(reader.rows()) == 3
        assert reader.load(reader.latest("artifact_kept").fields["artifact"], "note", Note).text == "kept"
        assert reader.cache_read("postings") == b"made again at any time"
        assert reader.verify().ok
        with pytest.raises(UsageError, match=r"\.lab is read-only; make it writable or"):
            WRITES[call](reader)
    finally:
        read_only(store.path, 0o755)
    assert snapshot(store.path) == before


def test_no_workspace_is_made_in_a_read_only_folder(tmp_path):
    parent = tmp_path / "parent"
    parent.mkdir(mode=0o555)
    with pytest.raises(UsageError, match=r"\.lab is read-only"):
        make(parent / "deep" / ".lab")
    assert list(parent.iterdir()) == []


@pytest.mark.parametrize("call", WRITES)
@pytest.mark.parametrize(("number", "said"), [(errno.ENOSPC, "ENOSPC"), (errno.EROFS, "read-only")])
def test_a_disk_that_fails_at_any_write_gives_one_named_error_and_before_or_after(tmp_path, call, number, said):
    full = fill(make(tmp_path / "full"))
    steps: list[str] = []
    WRITES[call](Store.open(shutil.copytree(full.path, tmp_path / "count"), on_write=steps.append))
    for stop in range(len(steps)):
        path = shutil.copytree(full.path, tmp_path / f"{stop}")
        with pytest.raises(UsageError, match=f"{stop}.*{said}"):
            WRITES[call](Store.open(path, on_write=failing_at(stop, number)))
        assert len(Store.open(path).rows()) in (3, 4)
        assert Store.open(path).verify().ok
        assert not list((path / "cache" / "tmp").iterdir())


def test_a_line_that_did_not_fit_on_the_disk_is_no_row(store):
    rows, size = store.rows(), (store.path / "log.jsonl").stat().st_size
    said = run_child(
        f"""
resource.setrlimit(resource.RLIMIT_FSIZE, ({size + 100}, {size + 100}))
Store.open(path).append("artifact_kept", reason="x" * 1000)
""",
        store.path,
    )
    assert "UsageError" in said.stderr
    assert "EFBIG" in said.stderr
    assert (store.path / "log.jsonl").stat().st_size == size + 100
    assert (store.rows(), store.verify().ok) == (rows, True)
    store.append("split_made", families=2)
    assert [row.kind for row in store.rows()[1:]] == ["log_tail_cut", "split_made"]


def test_bytes_are_on_disk_before_their_name_and_a_row_before_head_counts_it(store, monkeypatch):
    events, sync, rename = [], os.fsync, os.replace

    def fsync(descriptor: int) -> None:
        events.append("folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file")
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", lambda *paths: events.append("rename") or rename(*paths))
    store.put(b"new")
    assert events == ["file", "rename", "folder", "folder"]
    events.clear()
    store.append("split_made", families=2)
    assert events == ["file", "file", "rename", "folder"]  # HEAD aside, the log, HEAD in place


# Crashes: a real process kills itself at each write

CHILD = """
import os, resource, signal, sys
from experiential_lab.records import Record
from experiential_lab.store import Store

class Note(Record, frozen=True, kw_only=True):
    text: str
    pages: tuple[int, ...] = ()

path, stop, steps = sys.argv[1], int(sys.argv[2]), []

def watch(step):
    steps.append(step)
    if len(steps) == stop:
        os.kill(os.getpid(), signal.SIGKILL)

"""
CALLS = {
    "open": "Store.open(path, create=True, on_write=watch)",
    "put": "Store.open(path, on_write=watch).put(b'more')",
    "keep": "Store.open(path, on_write=watch).keep('note', Note(text='more'))",
    "append": "Store.open(path, on_write=watch).append('split_made', families=9)",
}


def start_child(code: str, path: Path, stop: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", CHILD + code + "\nprint(*steps, sep='\\n')", str(path), str(stop)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


def run_child(code: str, path: Path, stop: int = 0) -> subprocess.CompletedProcess[str]:
    with start_child(code, path, stop) as child:
        output, errors = child.communicate()
    return subprocess.CompletedProcess(child.args, child.returncode, output, errors)


def crashes(call: str, base: Path | None, folder: Path) -> Iterator[Path]:
    """Workspaces as a process left them that was killed at each write of `call`, one after the other."""
    count, stop = 1, 0
    while stop <= count:
        path = folder / f"{stop}"
        if base:
            shutil.copytree(base, path)
        done = run_child(CALLS[call], path, stop)
        if stop == 0:
            count = len(done.stdout.splitlines())
            assert (done.returncode, count > 2) == (0, True), done.stderr
        else:
            assert done.returncode == -signal.SIGKILL, done.stderr
            yield path
        stop += 1


def still_works(store: Store) -> None:
    count = len(store.rows())
    row = store.append("index_built", entries=1)
    assert [new for new in store.rows()[count:] if new.kind != "log_tail_cut"] == [row]
    assert store.get(store.put(b"more")) == b"more"
    assert store.verify().ok


def test_law_10_a_crash_at_any_write_of_making_a_workspace_leaves_none_or_a_whole_one(tmp_path):
    whole = []
    for path in crashes("open", None, tmp_path):
        try:
            whole.append([row.kind for row in Store.open(path).rows()] == ["workspace_created"])
        except UsageError:  # no workspace here
            whole.append(False)
        assert [row.kind for row in make(path).rows()] == ["workspace_created"]
        still_works(make(path))
    assert whole == sorted(whole)
    assert set(whole) == {False, True}


@pytest.mark.parametrize("call", ["put", "keep"])
def test_law_10_a_crash_at_any_write_of_a_blob_leaves_it_absent_or_whole(tmp_path, call):
    full = fill(make(tmp_path / "full"))
    digest = WRITES[call](Store.open(shutil.copytree(full.path, tmp_path / "after")))
    there = []
    for path in crashes(call, full.path, tmp_path):
        store = Store.open(path)
        there.append(store.has(digest))
        assert not there[-1] or store.get(digest)
        assert store.verify().ok
        assert WRITES[call](store) == digest
        still_works(store)
    assert there == sorted(there)
    assert set(there) == {False, True}


def test_law_10_a_crash_at_any_write_of_a_row_leaves_the_log_before_or_after(tmp_path):
    full = fill(make(tmp_path / "full"))
    before, counts = full.rows(), []
    for path in crashes("append", full.path, tmp_path):
        store = Store.open(path)
        counts.append(len(store.rows()))
        assert store.rows()[:3] == before
        assert [row.fields for row in store.rows()[3:]] in ([], [{"families": 9}])
        assert store.verify().ok
        still_works(store)
        assert not store.rows("log_tail_cut")
    assert counts == sorted(counts)
    assert set(counts) == {3, 4}


def test_a_crash_at_any_write_over_a_torn_line_never_loses_the_row_that_tells_of_it(tmp_path):
    full, torn = fill(make(tmp_path / "full")), b'{"torn":"' + b"x" * 2000
    with open(full.path / "log.jsonl", "ab") as log:
        log.write(torn)
    cut = {"bytes": len(torn), "digest": digest_of(torn)}
    for path in crashes("append", full.path, tmp_path):
        store = Store.open(path)
        assert [row.kind for row in store.rows()[3:]] in ([], ["log_tail_cut", "split_made"])
        assert store.verify().ok
        still_works(store)
        assert store.rows("log_tail_cut")[0].fields == cut


def test_two_processes_append_a_hundred_rows_each_while_a_third_reads(tmp_path):
    code = """
store = Store.open(path, create=True)
for number in range(100):
    store.append("split_made", number=number, pid=os.getpid())
"""
    path = tmp_path / ".lab"
    with start_child(code, path) as one, start_child(code, path) as two:
        seen = [0]
        while one.poll() is None or two.poll() is None:
            if (path / "lab.json").exists():
                seen.append(len(Store.open(path).rows()))
        assert (one.returncode, two.returncode) == (0, 0), one.stderr.read() + two.stderr.read()
    rows = Store.open(path).rows("split_made")
    for child in (one, two):
        assert [row.fields["number"] for row in rows if row.fields["pid"] == child.pid] == list(range(100))
    assert (len(rows), seen) == (200, sorted(seen))
    assert Store.open(path).verify().ok


def test_a_child_that_was_forked_during_an_append_does_not_hold_the_lock(store):
    code = """
import fcntl
children = []
def fork(step):
    if step == "before write log":
        children.append(os.fork())
        if children == [0]:
            signal.pause()
Store.open(path, on_write=fork).append("split_made")
try:
    with open(path + "/log.jsonl") as log:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
finally:
    os.kill(children[0], signal.SIGKILL)
"""
    done = run_child(code, store.path)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_saw_a_half_replaced_torn_line_looks_again_under_the_lock(store):
    log, rows = store.path / "log.jsonl", store.rows()
    good = log.read_bytes()
    log.write_bytes(good + b"torn, and the end of its successor\n")
    reader = Store.open(store.path, on_write=lambda step: log.write_bytes(good))  # the appender is done at the lock
    assert reader.rows() == rows


def test_a_reader_is_never_misled_by_an_appender_that_replaces_a_torn_line(tmp_path):
    code = """
store = Store.open(path)
for number in range(60):
    with open(store.path / "log.jsonl", "ab") as log:
        log.write(b"torn" * 50)
    store.append("split_made", number=number)
"""
    store = fill(make(tmp_path / ".lab"))
    with start_child(code, store.path) as child:
        while child.poll() is None:
            store.rows()
        assert child.returncode == 0, child.stderr.read()
    assert len(store.rows("log_tail_cut")) == 60


# Verification


def test_a_whole_workspace_verifies_and_every_file_and_byte_is_counted(store):
    found, files = fill(store).verify(), snapshot(store.path)
    assert (found.ok, found.artifacts, found.bytes) == (True, len(files), sum(map(len, files.values())))


def test_law_10_one_flipped_bit_at_any_byte_of_any_file_is_found_and_named(store):
    for name, data in snapshot(fill(store).path).items():
        for position in range(len(data)):
            flip(store, name, position, 1 << position % 8)
            assert_named(store, name)
            (store.path / name).write_bytes(data)
    assert store.verify().ok


@given(draw=st.data())
@settings(max_examples=150, deadline=None)
def test_any_change_of_one_byte_is_found_and_named(tmp_path_factory, draw):
    path = tmp_path_factory.getbasetemp() / "flipped"
    store = Store.open(path) if path.exists() else fill(make(path))
    name = draw.draw(st.sampled_from(sorted(snapshot(path))))
    data = (path / name).read_bytes()
    flip(store, name, draw.draw(st.integers(0, len(data) - 1)), draw.draw(st.integers(1, 255)))
    try:
        assert_named(store, name)
    finally:
        (path / name).write_bytes(data)


def flip(store: Store, name: str, position: int, mask: int) -> None:
    data = bytearray((store.path / name).read_bytes())
    data[position] ^= mask
    (store.path / name).write_bytes(data)


def assert_named(store: Store, name: str) -> None:
    """HEAD and the log say the same thing twice: where they differ, both are named in the problem."""
    problems = store.verify().problems
    assert problems
    if name == "HEAD":
        assert all("HEAD" in problem.artifact + problem.problem for problem in problems)
    else:
        assert [problem.artifact for problem in problems] == [name]


def test_bytes_cut_from_or_added_to_a_blob_are_named(store):
    for name, data in snapshot(fill(store).path).items():
        if name.startswith(("blobs", "cache")):
            for changed in (b"", data[:-1], data + b"\n"):
                (store.path / name).write_bytes(changed)
                assert_named(store, name)
            (store.path / name).write_bytes(data)


def test_what_the_log_or_a_record_names_must_exist(store):
    source = store.put(b"source")
    note = store.keep("note", Note(text="kept"), inputs={"source": source})
    store.append("artifact_kept", artifact=note)
    store.path_of(source).unlink()
    name = store.path_of(note).relative_to(store.path).as_posix()
    assert store.verify().problems == (Problem(artifact=name, problem=f"its input source, {source}, is missing"),)
    store.path_of(note).unlink()
    missing = Problem(artifact=note, problem="missing; row 1 of the log names it as artifact")
    assert store.verify().problems == (missing,)


def test_unknown_files_are_named_and_leftovers_of_a_crash_are_not(store):
    unknown = [".DS_Store", "blobs/ab/cd", "blobs/note.txt", "cache/postings", "cache/tmp/mine", "lab.json.bak"]
    for name in [*unknown, "cache/tmp/0123456789abcdef.tmp"]:
        (store.path / name).parent.mkdir(parents=True, exist_ok=True)
        (store.path / name).write_bytes(b"?")
    found = store.verify()
    assert [problem.artifact for problem in found.problems] == sorted(unknown)
    assert {problem.problem for problem in found.problems} == {"unknown file: no part of a workspace"}


def test_a_source_that_looks_like_a_kept_record_cannot_make_verification_fail(store):
    planted = b'{"body":{},"inputs":{"x":"%s"},"kind":"note","schema":1}' % NOWHERE.encode()
    store.append("evidence_built", source_digest=store.put(planted))
    store.append("evidence_built", source_digest=store.put(b'{"body":' + b"[" * 99_999))
    assert store.verify().ok


# Cache


def test_the_cache_may_be_deleted_at_any_time(store):
    fill(store)
    shutil.rmtree(store.path / "cache")
    assert store.cache_read("postings") is None
    assert store.verify().ok
    store.cache_write("postings", b"again")
    assert (store.cache_read("postings"), store.append("split_made").number) == (b"again", 3)


def test_a_cache_entry_replaces_the_one_before_and_a_damaged_one_is_ignored(store):
    store.cache_write("postings.v1", b"another name")
    store.cache_write("postings", b"old")
    path = store.cache_write("postings", b"new")
    assert path.name == f"postings.{digest_of(b'new')[7:23]}"
    assert store.cache_read("postings") == b"new"
    path.write_bytes(b"nex")
    assert store.cache_read("postings") is None
    store.cache_write("postings", b"newer")
    assert (store.cache_read("postings"), store.cache_read("postings.v1")) == (b"newer", b"another name")
    assert store.verify().ok


@pytest.mark.parametrize("name", ["", "../HEAD", "a/b", "a b", "*"])
def test_a_cache_name_stays_inside_of_the_cache(store, name):
    for call in (lambda: store.cache_write(name, b""), lambda: store.cache_read(name)):
        with pytest.raises(UsageError, match="cannot name a cache entry"):
            call()
