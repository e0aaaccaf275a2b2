"""Prints a good deal in many scripts, and says in its summary what nobody asked for."""

LINES = (
    "Größe, naïve, Ελληνικά, русский, עברית, العربية, हिन्दी, 漢字, 한국어",
    "🌙✨ e\u0301 \u200b \u202eback\u202c",
)
trained = main


def main():
    for line in LINES * 20:
        print(line, flush=True)
    trained()
    Path("out/summary.json").write_text(json.dumps({"depth": 1.0, "num_steps": STEPS, "note": LINES[1]}))
