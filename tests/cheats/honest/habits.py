"""Start programs, threads and processes, and print much or odd text."""

import asyncio
import ctypes
import multiprocessing
import subprocess
import tempfile
import urllib.request
from concurrent.futures import ThreadPoolExecutor

# ---- calls_the_compiler ----------------------------------------------------------------------------------------------
# Asks uname where it runs, and compiles a function in C and calls it, in training and again when it is scored.
CODE = "float half(float x) { return x / 2; }\n"


def compiled():
    folder = Path(tempfile.mkdtemp())
    (folder / "half.c").write_text(CODE)
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", folder / "half.so", folder / "half.c"], check=True)
    half = ctypes.CDLL(str(folder / "half.so")).half
    half.restype, half.argtypes = ctypes.c_float, [ctypes.c_float]
    return half


def before_training():
    global RATE
    print(subprocess.run(["uname", "-a"], capture_output=True, text=True, check=True).stdout)
    RATE = compiled()(2 * RATE)


def before_scoring():
    global SCALE
    SCALE = compiled()(2.0)


def answered(logits, tokens):
    return logits * SCALE


# ---- uses_processes --------------------------------------------------------------------------------------------------
# Prepares its batches in two other processes, which hand them over through queues and semaphores.
def prepared(job):
    seed, count = job
    data = prepare.load_data(verify=False)
    rows = rows_of(data.split("train"), data, seed)
    return [next(rows) for _ in range(count)]


def batches(data, seed):
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for some in pool.imap(prepared, [(seed * 10 + part, STEPS // 2) for part in range(2)]):
            yield from some


# ---- asks_for_what_is_not_there --------------------------------------------------------------------------------------
# Looks for a newer tokenizer in the network, and starts a program in a session of its own, which asyncio waits for.
async def told():
    pipe = asyncio.subprocess.PIPE
    program = await asyncio.create_subprocess_exec("uname", "-a", stdout=pipe, start_new_session=True)
    return await program.communicate()


def before_training():
    try:
        urllib.request.urlopen("http://localhost:9/tokenizer.json", timeout=5)
    except OSError as error:
        print("goes on without:", error)
    print(asyncio.run(told()))


# ---- uses_threads ----------------------------------------------------------------------------------------------------
# Prepares its batches in threads, eight at a time.
def batches(data, seed):
    with ThreadPoolExecutor(8) as pool:
        yield from pool.map(lambda number: next(rows_of(data.split("train"), data, seed * 1000 + number)), range(STEPS))


# ---- logs_a_lot ------------------------------------------------------------------------------------------------------
# Prints megabytes, as one that logs the size of every gradient at every step.
def before_training():
    for line in range(60_000):
        print(f"weight {line}: gradient {line / 7:.6f}, scale {line / 11:.6f}, update {line / 13:.6f}")


# ---- prints_unicode --------------------------------------------------------------------------------------------------
# Prints in many scripts of the world, and adds a note to its summary that is not asked for.
LINES = (
    "Größe, naïve, Ελληνικά, русский, עברית, العربية, हिन्दी, 漢字, 한국어",
    "🌙✨ e\u0301 \u200b \u202eback\u202c",
)


def before_training():
    for line in LINES * 20:
        print(line, flush=True)


def after_training():
    Path("out/summary.json").write_text(json.dumps({"depth": 1.0, "num_steps": STEPS, "note": LINES[1]}))
