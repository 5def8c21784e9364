import json
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import fio
from benchmarks.benchmark import BenchmarkError
from benchmarks.fio import FioEngine, FioJob, FioOperation, FioResult, parse_output, run_fio
from benchmarks.fio_sweep import best_job
from benchmarks.interleave import Rounds

MIB = 1024 * 1024
JOB = FioJob(
    path=Path("file"),
    operation=FioOperation.READ,
    byte_count=8 * MIB,
    request_bytes=MIB,
    depth=4,
    jobs=2,
    engine=FioEngine.LIBAIO,
)
needs_fio = pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")


def document(**changes: object) -> str:
    job: dict[str, object] = {
        "error": 0,
        "job_runtime": 400,
        "usr_cpu": 5.0,
        "sys_cpu": 20.0,
        "read": {"io_bytes": 500_000_000, "runtime": 200},
    }
    return "note: an engine is shared\n" + json.dumps({"jobs": [job | changes]})


def test_the_command_shares_the_bytes_and_bypasses_the_cache() -> None:
    command = JOB.command()
    for word in (
        "--rw=read",
        "--bs=1048576",
        "--size=4194304",
        "--offset_increment=4194304",
        "--numjobs=2",
        "--iodepth=4",
        "--ioengine=libaio",
        "--direct=1",
        "--end_fsync=1",
        "--output-format=json",
    ):
        assert word in command


def test_bytes_that_cannot_be_shared_evenly_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be shared by 3 jobs"):
        replace(JOB, jobs=3)


def test_the_output_gives_rate_and_cpu_time() -> None:
    result = parse_output(document(), FioOperation.READ)
    assert result.gb_per_s == pytest.approx(2.5)
    assert result.cpu_s == pytest.approx(0.1)
    assert result.cpu_s_per_gb == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("output", "message"),
    [
        ("", "cannot be understood"),
        ("no document", "cannot be understood"),
        ('{"jobs": []}', "cannot be understood"),
        (document(error=5), "failed with error 5"),
        (document(read={"io_bytes": 0, "runtime": 0}), "failed with error 0"),
    ],
)
def test_output_without_a_complete_job_is_refused(output: str, message: str) -> None:
    with pytest.raises(BenchmarkError, match=message):
        parse_output(output, FioOperation.READ)


def test_a_missing_fio_is_said_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(BenchmarkError, match="apt-get install fio"):
        run_fio(JOB)


@needs_fio
def test_fio_reads_a_file_that_it_has_made(tmp_path: Path) -> None:
    job = replace(JOB, path=tmp_path / "file")
    fio.make_file(job.path, job.byte_count)
    assert job.path.stat().st_size == job.byte_count
    assert run_fio(job).byte_count == job.byte_count
    assert run_fio(replace(job, engine=fio.best_engine(job.path))).gb_per_s > 0


@needs_fio
def test_a_job_that_fails_says_which_and_why(tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="fio read, libaio, 1024 KiB x 4 deep x 2 jobs failed"):
        run_fio(replace(JOB, path=tmp_path))


def test_candidates_are_all_combinations() -> None:
    jobs = fio.candidates(
        JOB.path,
        operation=FioOperation.WRITE,
        byte_count=JOB.byte_count,
        request_bytes=(MIB // 4, MIB),
        depths=(8, 16),
        jobs=(1, 2, 4),
        engine=FioEngine.IO_URING,
    )
    assert len(set(jobs)) == 12


def test_the_sweep_takes_the_best_median() -> None:
    lucky, steady = replace(JOB, depth=8), replace(JOB, depth=16)
    rates = {lucky: [0, 1, 9, 1], steady: [0, 3, 2, 2]}

    def measured(job: FioJob) -> FioResult:
        return FioResult(byte_count=int(1e9), duration_s=1 / (rates[job].pop(0) + 1), cpu_s=0.0)

    best = best_job(
        [lucky, steady],
        generator=random.Random(0),
        announce=lambda _: None,
        rounds=Rounds(count=3, count_min=3, time_limit_s=1e9),
        run=measured,
    )
    assert best == steady
