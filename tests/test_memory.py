"""What is left of a machine's memory, read from files such as Linux writes them."""

import pytest
import torch

from lmhead_course import peaks, vocab_parallel
from lmhead_course.machine import copy_bandwidth
from lmhead_course.memory import memory_left, require_memory

MB = 1_000_000
LONG = "a b " * 300


def write(root, **files):
    """Write files below a folder that stands for "/"; __ in a name is a slash, and a dot is written _dot_."""
    for name, text in files.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def machine(root, available_kb=8_000_000, swap_kb=0):
    text = f"MemTotal:       16000000 kB\nMemAvailable:   {available_kb} kB\nSwapFree:  {swap_kb} kB\n"
    return write(root, proc__meminfo=text)


def second_version(root, limit, used, files=0, path="/"):
    folder = "sys__fs__cgroup" + path.rstrip("/").replace("/", "__")
    stat = f"anon 1\nfile {files}\nactive_file {files // 2}\ninactive_file {files - files // 2}\n"
    write(root, proc__self__cgroup=f"0::{path}\n")
    return write(
        root,
        **{
            f"{folder}__memory_dot_max": f"{limit}\n",
            f"{folder}__memory_dot_current": f"{used}\n",
            f"{folder}__memory_dot_stat": stat,
        },
    )


def first_version(root, limit, used, files=0):
    write(root, proc__self__cgroup="12:cpu,cpuacct:/a\n5:memory:/docker/abc\n0::/\n")
    folder = "sys__fs__cgroup__memory"
    return write(
        root,
        **{
            f"{folder}__memory_dot_limit_in_bytes": f"{limit}\n",
            f"{folder}__memory_dot_usage_in_bytes": f"{used}\n",
            f"{folder}__memory_dot_stat": f"inactive_file 1\ntotal_inactive_file {files}\ntotal_active_file 0\n",
        },
    )


def test_without_a_container_it_is_what_the_machine_has_available(tmp_path):
    assert memory_left(machine(tmp_path, available_kb=1_000)) == 1_024_000


def test_free_swap_counts_so_that_nothing_that_would_work_is_refused(tmp_path):
    assert memory_left(machine(tmp_path, available_kb=1_000, swap_kb=500)) == 1_536_000


@pytest.mark.parametrize("group", [first_version, second_version])
def test_a_container_has_left_what_its_limit_leaves(tmp_path, group):
    assert memory_left(group(machine(tmp_path), 1_000 * MB, 700 * MB)) == 300 * MB


@pytest.mark.parametrize("group", [first_version, second_version])
def test_mapped_weights_and_other_files_in_memory_are_no_false_alarm(tmp_path, group):
    assert memory_left(group(machine(tmp_path), 1_000 * MB, 950 * MB, files=540 * MB)) == 590 * MB


def test_the_limit_of_a_group_further_up_holds_as_well(tmp_path):
    second_version(machine(tmp_path), 500 * MB, 100 * MB, path="/user.slice".replace(".", "_dot_"))
    second_version(tmp_path, "max", 100 * MB, path="/user_dot_slice/kernel")
    write(tmp_path, proc__self__cgroup="0::/user.slice/kernel\n")
    assert memory_left(tmp_path) == 400 * MB


def test_a_container_without_a_limit_has_what_the_machine_has(tmp_path):
    assert memory_left(second_version(machine(tmp_path, available_kb=1_000), "max", 5)) == 1_024_000


@pytest.mark.parametrize("group", ["0::/\n", "nonsense", "", "0::/../..\n", "5:memory\n"])
def test_a_group_without_files_is_left_out(tmp_path, group):
    write(machine(tmp_path, available_kb=1_000), proc__self__cgroup=group)
    assert memory_left(tmp_path) == 1_024_000


def test_where_nothing_is_known_nothing_is_refused(tmp_path):
    assert memory_left(tmp_path) is None
    require_memory(10**15, "this", root=tmp_path)


def test_a_step_too_large_is_refused_with_both_figures_and_what_to_do(tmp_path):
    second_version(machine(tmp_path), 1_000 * MB, 900 * MB)
    with pytest.raises(MemoryError, match=r"The logits needs about 400 MB .* 100 MB are left\. Shut down"):
        require_memory(400 * MB, "The logits", root=tmp_path)


def test_a_step_that_fits_passes(tmp_path):
    second_version(machine(tmp_path), 1_000 * MB, 500 * MB)
    require_memory(400 * MB, "this", root=tmp_path)


def test_a_small_step_is_never_refused(tmp_path):
    second_version(machine(tmp_path), 1_000 * MB, 1_000 * MB)
    require_memory(10 * MB, "this", root=tmp_path)


# ---- where the package asks ------------------------------------------------------------------------------


@pytest.fixture
def full(monkeypatch):
    """A machine with 80 MB left."""
    monkeypatch.setattr("lmhead_course.memory.memory_left", lambda root=None: 80 * MB)
    monkeypatch.setattr("lmhead_course.models.memory_left", lambda root=None: 80 * MB)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda lm: lm.all_logits(LONG), "all_logits at 6.. positions needs about 1.. MB"),
        (lambda lm: lm.hidden_states(LONG), "hidden_states of 6.. tokens needs about 8. MB"),
        (
            lambda lm: lm.step(lm.prompt_ids(LONG), last_only=False),
            "logits at 6.. positions needs about 1.. MB",
        ),
    ],
)
def test_a_long_text_is_refused_before_the_kernel_is_killed(lm, full, ask, words):
    with pytest.raises(MemoryError, match=words):
        ask(lm)


def test_a_short_text_is_read_on_a_full_machine(lm, full):
    assert lm.all_logits("The capital of France is").shape[0] == 5


def test_a_model_that_has_no_room_is_not_loaded(lm, full):
    from lmhead_course import load_model

    with pytest.raises(
        MemoryError, match="loading the model needs about 100 MB of memory, and 80 MB are left"
    ):
        load_model(device="cpu")


def test_a_model_whose_weights_do_not_fit_is_loaded_with_a_warning(lm, monkeypatch):
    from lmhead_course import load_model

    for module in ("memory", "models"):
        monkeypatch.setattr(f"lmhead_course.{module}.memory_left", lambda root=None: 300 * MB)
    with pytest.warns(UserWarning, match="300 MB of memory are left and the model's weights are 538 MB"):
        load_model(device="cpu")


@pytest.mark.parametrize(
    ("step", "words"),
    [
        (lambda: peaks.measure("naive", 1024, 49_152, 576), "measuring 'naive' needs about 9.. MB"),
        (lambda: peaks.measure("ours", 1024, 49_152, 576), "measuring 'ours' needs about 4.. MB"),
        (
            lambda: vocab_parallel(torch.zeros(1, 8), torch.zeros(9, 8), torch.zeros(1, dtype=torch.long)),
            "a head split over 2 processes needs about 400 MB",
        ),
        (
            lambda: copy_bandwidth(torch.empty(1024, 16_384)),
            "measuring the memory's speed needs about 134 MB",
        ),
    ],
)
def test_a_step_that_starts_processes_or_takes_much_asks_first(full, step, words):
    with pytest.raises(MemoryError, match=words):
        step()
