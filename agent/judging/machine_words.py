"""Know a failure of the machine by what the driver or the system wrote at the end of a log.

The words are in the script's power: a script could print them to have a bad run repeated. So they count only where the
process failed, on a night's own kind of device, and as often as jobs.has_chances() allows. Some words are also those of
a script's own fault: a process that asks for more memory than there is gets the same answer as one beside which another
program took it all. Those are doubtful: they count only if attempt 0 fails as well.
"""

from dataclasses import dataclass
from enum import StrEnum

MOST_LINES = 8  # from the end: a message is followed by a traceback's last lines at most


class Platform(StrEnum):
    METAL = "Metal"
    CUDA = "CUDA"
    SYSTEM = "the system"


class Remedy(StrEnum):
    """Name what a user can do against a failure."""

    DISPLAY = "let the display sleep (pmset displaysleepnow), close what draws on it, or lower BATCH_ROWS"
    DRIVER = "look at the kernel's log (dmesg, or Console on a Mac); a restart of the machine brings a lost GPU back"
    HARDWARE = "the GPU's memory is faulty: run nvidia-smi -q -d ECC"
    DISK = "free some disk"
    MEMORY = "close other programs, or lower BATCH_ROWS"


@dataclass(frozen=True, slots=True)
class MachineMessage:
    """Hold words by which a platform says that it, and not the script, ended a process."""

    words: str  # compared without case
    platform: Platform
    meaning: str
    remedy: Remedy
    is_doubtful: bool = False  # a script's own fault has the same words


MESSAGES = (
    # ml-explore/mlx#3267; IOGPU error 0000000e
    MachineMessage(
        "impacting interactivity", Platform.METAL, "the GPU's watchdog ended it, since it held up the display",
        Remedy.DISPLAY,
    ),
    # ollama/ollama#17902, jundot/omlx#2029; IOGPU error 00000002
    MachineMessage(
        "caused gpu timeout error", Platform.METAL, "the GPU's watchdog ended it after its time limit",
        Remedy.DISPLAY,
    ),
    # tinygrad/tinygrad#7172; IOGPU error 00000003
    MachineMessage(
        "caused gpu hang error", Platform.METAL, "the GPU hung and was reset",
        Remedy.DISPLAY,
    ),
    # Apple, MTLCommandBufferError; IOGPU error 00000005
    MachineMessage(
        "innocent victim", Platform.METAL, "the GPU was reset because of another program",
        Remedy.DRIVER,
    ),
    # flutter/flutter#155538; IOGPU error 00000004
    MachineMessage(
        "for causing prior/excessive gpu errors", Platform.METAL, "the GPU accepts no work after earlier errors",
        Remedy.DRIVER,
    ),
    # Apple, MTLCommandBufferError.deviceRemoved
    MachineMessage(
        "device removed", Platform.METAL, "the GPU was removed",
        Remedy.DRIVER,
    ),
    # CUDA, cudaErrorECCUncorrectable (214)
    MachineMessage(
        "uncorrectable ecc error", Platform.CUDA, "the GPU's memory had an error that could not be corrected",
        Remedy.HARDWARE,
    ),
    # CUDA, cudaErrorNvlinkUncorrectable (220)
    MachineMessage(
        "uncorrectable nvlink error", Platform.CUDA, "the link between GPUs had an error",
        Remedy.DRIVER,
    ),
    # CUDA, cudaErrorLaunchTimeout (702)
    MachineMessage(
        "the launch timed out and was terminated", Platform.CUDA, "the display's watchdog ended it",
        Remedy.DISPLAY,
    ),
    # NVIDIA driver, Xid 79
    MachineMessage(
        "fallen off the bus", Platform.CUDA, "the GPU is gone",
        Remedy.DRIVER,
    ),
    # CUDA, cudaErrorNoDevice (100)
    MachineMessage(
        "no cuda-capable device is detected", Platform.CUDA, "the GPU is gone",
        Remedy.DRIVER,
    ),
    # CUDA, cudaErrorDevicesUnavailable (46)
    MachineMessage(
        "cuda-capable device(s) is/are busy or unavailable", Platform.CUDA, "another program holds the GPU",
        Remedy.DRIVER,
    ),
    # CUDA, cudaErrorSystemDriverMismatch (803)
    MachineMessage(
        "system has unsupported display driver", Platform.CUDA, "the driver was replaced while it ran",
        Remedy.DRIVER,
    ),
    # NVIDIA, NVML_ERROR_LIB_RM_VERSION_MISMATCH
    MachineMessage(
        "driver/library version mismatch", Platform.CUDA, "the driver was replaced while it ran",
        Remedy.DRIVER,
    ),
    # ml-explore/mlx#479; IOGPU error 00000008
    MachineMessage(
        "insufficient memory", Platform.METAL, "the GPU found no memory, which is the system's own",
        Remedy.MEMORY, is_doubtful=True,
    ),
    # ml-explore/mlx#4464; MLX, mlx/backend/metal/allocator.cpp
    MachineMessage(
        "[metal::malloc] resource limit", Platform.METAL, "the GPU holds as many buffers as it can",
        Remedy.MEMORY, is_doubtful=True,
    ),
    # MLX, mlx/backend/metal/allocator.cpp and cuda/allocator.cpp
    MachineMessage(
        "[malloc] unable to allocate", Platform.SYSTEM, "MLX found no memory",
        Remedy.MEMORY, is_doubtful=True,
    ),
    # CUDA, cudaErrorMemoryAllocation (2)
    MachineMessage(
        "out of memory", Platform.CUDA, "the GPU had no memory left",
        Remedy.MEMORY, is_doubtful=True,
    ),
    # CUDA, cudaErrorLaunchFailure (719)
    MachineMessage(
        "unspecified launch failure", Platform.CUDA, "the GPU's driver gave up the process",
        Remedy.DRIVER, is_doubtful=True,
    ),
    # CUDA, cudaErrorAssert (710)
    MachineMessage(
        "device-side assert triggered", Platform.CUDA, "an assertion failed on the GPU",
        Remedy.DRIVER, is_doubtful=True,
    ),
    # CUDA, cudaErrorIllegalAddress (700)
    MachineMessage(
        "an illegal memory access was encountered", Platform.CUDA, "the GPU's driver gave up the process",
        Remedy.DRIVER, is_doubtful=True,
    ),
    # errno ENOSPC
    MachineMessage(
        "no space left on device", Platform.SYSTEM, "the disk was full",
        Remedy.DISK, is_doubtful=True,
    ),
    # errno EDQUOT
    MachineMessage(
        "disk quota exceeded", Platform.SYSTEM, "the user's share of the disk was full",
        Remedy.DISK, is_doubtful=True,
    ),
    # errno EIO
    MachineMessage(
        "input/output error", Platform.SYSTEM, "the disk failed",
        Remedy.DISK, is_doubtful=True,
    ),
)  # fmt: skip


def told_by(last_lines: str, device_kind: str) -> MachineMessage | None:
    """Return the message at the end of a log by which the machine says that it ended a process; None without one.

    device_kind: cpu, metal or cuda; only its own messages, and the system's, are looked for.
    """
    end = "\n".join(last_lines.splitlines()[-MOST_LINES:]).lower()
    platforms = (Platform.SYSTEM.lower(), device_kind)
    own = (message for message in MESSAGES if message.platform.lower() in platforms)
    return next((message for message in own if message.words in end), None)


def sentence(message: MachineMessage) -> str:
    """Return what happened, in the harness's words and the platform's own."""
    return f"{message.meaning} ({message.platform}: {message.words}); {message.remedy}"
