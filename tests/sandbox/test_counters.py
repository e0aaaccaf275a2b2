"""The counters of a small tree that looks like /proc and /sys are found, and other files are not."""

from pathlib import Path

from agent.sandbox.places import counters


def lay(root: Path, *files: str) -> None:
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("")


def test_what_honest_programs_do_not_ask_for_is_hidden_whatever_it_is_called(tmp_path):
    lay(tmp_path, "proc/stat", "proc/of_the_next_kernel", "proc/pressure/cpu", "proc/1/stat", "proc/cpuinfo")
    lay(tmp_path, "proc/sys/fs/file-nr", "proc/sys/vm/swappiness", "proc/driver/nvidia/params")
    (tmp_path / "proc" / "self").symlink_to("1")
    lay(tmp_path, "sys/devices/system/cpu/online", "sys/devices/system/node/node0/vmstat")
    found = {path.relative_to(tmp_path).as_posix() for path in counters(tmp_path)}
    proc = {"proc/stat", "proc/of_the_next_kernel", "proc/pressure", "proc/sys/fs"}
    assert found == {*proc, "sys/devices/system/node/node0/vmstat"}


def test_of_devices_disks_and_networks_are_hidden_with_their_parts(tmp_path):
    sys = tmp_path / "sys"
    disk, card = "devices/pci0/0000:01/block/vda", "devices/pci0/0000:02/net/eth0"
    lay(sys, f"{disk}/stat", f"{disk}/vda1/stat", f"{card}/statistics/rx", "devices/pci0/0000:03/numa_node")
    lay(sys, "devices/block0/stat", "class/block/nothing")
    for name, place in {"vda": disk, "vda1": f"{disk}/vda1", "odd": "devices/block0", "loop": "nowhere"}.items():
        (sys / "class" / "block" / name).symlink_to(sys / place)
    (sys / "class" / "net").mkdir()
    (sys / "class" / "net" / "eth0").symlink_to(sys / card)
    (tmp_path / "proc").mkdir()
    parts = (sys / "devices/pci0/0000:01/block", sys / "devices/pci0/0000:02/net")
    assert counters(tmp_path) == (sys / "class/block/nothing", *parts)


def test_what_acts_when_it_is_read_is_hidden(tmp_path):
    lay(tmp_path, "sys/class/zram-control/hot_add", "sys/devices/platform/tpu0/numa_node", "proc/cpuinfo")
    (tmp_path / "sys" / "class" / "tpu").mkdir()
    (tmp_path / "sys" / "class" / "tpu" / "tpu0").symlink_to(tmp_path / "sys" / "devices" / "platform" / "tpu0")
    assert counters(tmp_path) == (tmp_path / "sys/class/zram-control/hot_add",)
