"""Know a failure of the machine by what the driver or the system wrote at the end of a log. Pure.

The words are in the script's power: a script could print them to have a bad run repeated. So they count only where the
process failed, on a night's own kind of device, and for few runs of an attempt.
"""

MOST_LINES = 8  # from the end: a message is followed by a traceback's last lines at most
DISPLAY = "let the display sleep (pmset displaysleepnow), close what draws on it, or lower BATCH_ROWS"
DRIVER = "look at the kernel's log (dmesg, or Console on a Mac); a restart of the machine brings a lost GPU back"
HARDWARE = "the GPU's memory is faulty: run nvidia-smi -q -d ECC"
MEMORY = "close other programs, or lower BATCH_ROWS"
DISK = "free some disk"

# By kind of device ("" for any): words in lower case; what they mean; what a user can do. Sources: IOGPU's errors
# 00000002 to 0000000e and Apple's MTLCommandBufferError; the CUDA runtime's cudaGetErrorString; NVIDIA's Xid 79 and
# NVML; MLX's allocators; errno. Some follow from a script's own fault as well: one that asks for more memory than there
# is gets the same answer as one beside which another program took it all.
MESSAGES = {
    "metal": (
        ("impacting interactivity", "the GPU's watchdog ended it, since it held up the display", DISPLAY),
        ("caused gpu timeout error", "the GPU's watchdog ended it after its time limit", DISPLAY),
        ("caused gpu hang error", "the GPU hung and was reset", DISPLAY),
        ("innocent victim", "the GPU was reset because of another program", DRIVER),
        ("for causing prior/excessive gpu errors", "the GPU accepts no work after earlier errors", DRIVER),
        ("device removed", "the GPU was removed", DRIVER),
        ("insufficient memory", "the GPU found no memory, which is the system's own", MEMORY),
        ("[metal::malloc] resource limit", "the GPU holds as many buffers as it can", MEMORY),
    ),
    "cuda": (
        ("uncorrectable ecc error", "the GPU's memory had an error that could not be corrected", HARDWARE),
        ("uncorrectable nvlink error", "the link between GPUs had an error", DRIVER),
        ("the launch timed out and was terminated", "the display's watchdog ended it", DISPLAY),
        ("fallen off the bus", "the GPU is gone", DRIVER),
        ("no cuda-capable device is detected", "the GPU is gone", DRIVER),
        ("cuda-capable device(s) is/are busy or unavailable", "another program holds the GPU", DRIVER),
        ("system has unsupported display driver", "the driver was replaced while it ran", DRIVER),
        ("driver/library version mismatch", "the driver was replaced while it ran", DRIVER),
        ("out of memory", "the GPU had no memory left", MEMORY),
        ("unspecified launch failure", "the GPU's driver gave up the process", DRIVER),
        ("device-side assert triggered", "an assertion failed on the GPU", DRIVER),
        ("an illegal memory access was encountered", "the GPU's driver gave up the process", DRIVER),
    ),
    "": (
        ("[malloc] unable to allocate", "MLX found no memory", MEMORY),
        ("no space left on device", "the disk was full", DISK),
        ("disk quota exceeded", "the user's share of the disk was full", DISK),
        ("input/output error", "the disk failed", DISK),
    ),
}


def told_by(last_lines: str, device_kind: str) -> str | None:
    """Return what the end of a log says of the machine that ended a process, with the remedy; None if it says nothing.

    device_kind: cpu, metal or cuda; only its own messages, and the system's, are looked for.
    """
    end = "\n".join(last_lines.splitlines()[-MOST_LINES:]).lower()
    for kind in (device_kind, ""):
        for words, meaning, remedy in MESSAGES.get(kind, ()):
            if words in end:
                return f"{meaning} ({kind or 'the system'}: {words}); {remedy}"
    return None
