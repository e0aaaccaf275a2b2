"""A large text of source code: the same sources give the same one, each file once, and no table of numbers."""

import subprocess
import sys
import tarfile
from pathlib import Path
from shutil import make_archive

import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.slow
PROGRAM = Path(__file__).parents[2] / "benchmarks" / "source_text.py"


def source_text(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, PROGRAM, *words], capture_output=True, text=True, check=False)


def a_source(folder: Path) -> Path:
    folder.mkdir()
    for number in range(20):
        (folder / f"module{number}.py").write_text(f"# module {number}\n" + "total = first + second\n" * 40)
    (folder / "copy.py").write_text((folder / "module3.py").read_text())
    (folder / "table.c").write_text("static const u32 table[] = {\n" + "0x8badf00d, 0x1337, 4242,\n" * 40 + "};\n")
    (folder / "short.py").write_text("pass\n")
    (folder / "latin.py").write_bytes(b"# caf\xe9\n" * 100)
    return folder


def texts_of(folder: Path) -> list[str]:
    return [text for path in sorted(folder.iterdir()) for text in pq.read_table(path)["text"].to_pylist()]


def test_an_archive_and_a_folder_give_the_same_text_each_file_once_and_no_table(tmp_path):
    source, archive = a_source(tmp_path / "source"), tmp_path / "source.tar.xz"
    with tarfile.open(archive, "w:xz") as packed:
        packed.add(source, "source")
    first, second = source_text(tmp_path / "a", source), source_text(tmp_path / "b", archive)
    assert first.stdout == second.stdout
    assert sorted(texts_of(tmp_path / "a")) == sorted((source / f"module{i}.py").read_text() for i in range(20))
    assert texts_of(tmp_path / "a") == texts_of(tmp_path / "b")


def test_a_wheel_gives_no_more_than_it_was_allowed_and_another_source_all(tmp_path):
    source = a_source(tmp_path / "source")
    wheel = Path(make_archive(str(tmp_path / "source"), "zip", source)).rename(tmp_path / "source.whl")
    assert source_text(tmp_path / "a", wheel, "--most-mb", "0.005").returncode == 0
    assert 3000 < sum(map(len, texts_of(tmp_path / "a"))) <= 5000
    assert source_text(tmp_path / "b", source, "--most-mb", "0.005").returncode == 0
    assert len(texts_of(tmp_path / "b")) == 20
